"""A cluster with its server: many in one process, and what a test does to the nodes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio
import trio.testing

from tests.support.target_client import METADATA, TargetClient, connected, served

CLUSTERS = 100


async def test_a_hundred_clusters_run_in_one_process() -> None:
    brokers: list[int] = []

    async def run_one(index: int, started: trio.Event, end: trio.Event) -> None:
        async with served(seed=index) as server:
            client = await connected(server)
            brokers.append(len((await client.call(METADATA)).brokers))
            if len(brokers) == CLUSTERS:
                started.set()
            await end.wait()

    started, end = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        for index in range(CLUSTERS):
            nursery.start_soon(run_one, index, started, end)
        with trio.fail_after(60):
            await started.wait()
        assert brokers == [3] * CLUSTERS
        end.set()


def loaded_by(program: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after a program."""
    shown = f"{program}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


OPENED = """
import trio
import trio.testing
from kafka_share_proxy.conformance.target.server import open_target
async def main():
    async with open_target() as server:
        assert all(server.accepts(node) for node in (1, 2, 3))
        CONNECT
trio.run(main)
"""
CONNECT = """
        with trio.fail_after(60):
            stream = await trio.open_tcp_stream(*server.cluster.addresses[1])
            while not server.connections:
                await trio.sleep(0.01)
"""


def test_what_serves_a_connection_is_loaded_with_the_first_one() -> None:
    """The time to start is the time to import: tests/bench/conformance_target.py measures it."""
    package = "kafka_share_proxy.conformance"
    late = {f"{package}.judge.judge", f"{package}.target.request_serving", "kafka_share_proxy.wire.codec.frames"}
    never = {f"{package}.target.actions", f"{package}.target.apis.k01_fetch", "pydantic", "construct"}
    started = loaded_by(OPENED.replace("CONNECT", ""))
    assert started & (late | never) == set()
    connected = loaded_by(OPENED.replace("CONNECT", CONNECT))
    assert connected & (late | never) == late


async def test_two_clusters_with_the_same_seed_have_the_same_ids() -> None:
    async with served(seed=5) as first, served(seed=5) as second, served(seed=6) as third:
        ids = [server.cluster.create_topic("t").topic_id for server in (first, second, third)]
        assert ids[0] == ids[1] != ids[2]


async def test_clients_in_the_same_loop_connect_in_memory(autojump_clock: trio.testing.MockClock) -> None:
    async with served() as server:
        node_1, node_2 = (server.cluster.addresses[node] for node in (1, 2))
        client = TargetClient(await server.connect(*node_1))
        assert len((await client.call(METADATA)).brokers) == 3
        await server.refuse_connections(2)
        with pytest.raises(ConnectionRefusedError, match="no node accepts connections at"):
            await server.connect(*node_2)
        await server.take_node_down(1)
        with pytest.raises(ConnectionError):
            await client.call(METADATA)


async def test_a_node_that_does_not_exist_is_an_error() -> None:
    async with served() as server:
        for action in (server.take_node_down, server.bring_node_up, server.refuse_connections):
            with pytest.raises(ValueError, match="there is no node 9"):
                await action(9)


async def test_a_callback_runs_at_a_time_of_the_cluster() -> None:
    async with served() as server:
        server.clock.stop()
        called = trio.Event()

        async def callback() -> None:
            called.set()

        server.run_at(server.clock.now() + 3600, callback)
        await trio.testing.wait_all_tasks_blocked()
        assert not called.is_set()
        server.clock.advance(3600)
        with trio.fail_after(10):
            await called.wait()


def test_a_cluster_loads_codecs_and_apis_when_they_are_used() -> None:
    """Most of the time to start would be spent on message classes that no client needs."""
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, timeout=60, check=True)
    ready, responded = (set(line.split()) for line in done.stdout.splitlines())
    assert not {
        name for name in ready if name.startswith(("wire.codec.compiler", "wire.definitions.registry", "sharegroups"))
    }
    assert not {
        name for name in ready if name.startswith(("conformance.judge", "conformance.target.apis.", "pydantic"))
    }
    assert {name for name in responded if name.startswith("conformance.target.apis.k")} == {
        "conformance.target.apis.k18_api_versions"
    }
    assert {name for name in responded if name.startswith("message.")} == {
        "message.ApiVersionsRequest",
        "message.ApiVersionsResponse",
    }


STARTED = """
import sys
import trio
import trio.testing
from kafka_share_proxy.conformance.target.server import open_target

def show():
    own = [name.removeprefix("kafka_share_proxy.") for name in sys.modules if "kafka_share_proxy" in name]
    classes = sys.modules.get("kafka_share_proxy.wire.definitions.message_classes")
    built = [] if classes is None else [f"message.{name}" for name in classes._CLASSES]
    print(*own, *built, *({"pydantic"} & set(sys.modules)))

async def main():
    async with open_target() as server:
        show()
        stream = await trio.open_tcp_stream(*server.cluster.addresses[1])
        await stream.send_all(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        assert len(await stream.receive_some(4)) == 4
        show()

trio.run(main)
"""
"""Print modules and message classes: of a cluster that is ready, and after an ApiVersions request."""
