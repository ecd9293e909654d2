"""The whole proxy as a process: starting, probes, stopping, and what it says when it cannot start."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from kafka_share_proxy.app.serving import server
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.cluster_connection import (
    ClusterClientSettings,
    ClusterConnection,
    connection,
    open_connection,
)
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.memory import rss_mib
from tests.support.small_broker import RANGES, Broker

CHECKOUT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.slow

LATE_S = 60.0
"""A process on a machine that others use is ready, or has ended, long before."""


@dataclass
class Running:
    """A proxy process."""

    process: trio.Process
    port: int
    admin: int
    folder: Path

    @property
    def bootstrap(self) -> Address:
        return Address(HOST, self.port)

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines() if line.startswith("{")]

    def events(self) -> list[object]:
        return [line["event"] for line in self.log()]

    def resident_kib(self) -> int:
        """Resident memory."""
        return round(1024 * rss_mib(self.process.pid))

    async def ready(self) -> tuple[int, dict[str, object]]:
        """Return status and body of /readyz; 0 if nothing listens, or only the attempt whether the port is free."""
        response = b""
        try:
            async with await trio.open_tcp_stream(HOST, self.admin) as stream:
                await stream.send_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                async for data in stream:
                    response += data
        except (OSError, trio.BrokenResourceError):
            return 0, {}
        head, _, body = response.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    async def until(self, status: int) -> dict[str, object]:
        """Wait until /readyz has this status. Return the body."""
        with trio.fail_after(LATE_S):
            while (response := await self.ready())[0] != status:
                assert self.process.returncode is None, (self.folder / "log").read_text()
                await trio.sleep(0.02)
        return response[1]

    async def until_logged(self, event: str) -> None:
        """Wait until the log has this event."""
        with trio.fail_after(LATE_S):
            while event not in self.events():  # noqa: ASYNC110 - the log of another process
                await trio.sleep(0.02)


@asynccontextmanager
async def proxy(
    folder: Path,
    upstream: Address,
    settings: Mapping[str, object] | None = None,
    port: int | None = None,
    config: Path | None = None,
    program: Sequence[str] = ("-m", "kafka_share_proxy"),
) -> AsyncIterator[Running]:
    """A proxy in front of `upstream`, killed at the end if it still runs."""
    first = free_ports(8)[0] if port is None else port
    arguments = ["--upstream", str(upstream), "--listen", f"{HOST}:{first}", "--admin", f"{HOST}:{first + 7}"]
    arguments += ["--set", "share_groups.state=memory"]  # the brokers here are too small to keep it
    arguments += [] if config is None else ["--config", str(config)]
    for key, value in (settings or {}).items():
        arguments += ["--set", f"{key}={value}"]
    with (folder / "log").open("wb") as log:
        process = await trio.lowlevel.open_process(
            [sys.executable, *program, "serve", "--log-format", "json", *arguments],
            cwd=CHECKOUT,
            stdout=log,
            stderr=log,
        )
        try:
            yield Running(process, first, first + 7, folder)
        finally:
            with trio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def request_metadata(address: Address) -> dict[int, Address]:
    """Return the brokers in a client's Metadata response."""
    async with connection(address, ClusterClientSettings()) as opened:
        response = await opened.send_request(ApiKey.METADATA, registry.message("MetadataRequest")(topics=[]))
    return {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}


async def test_clients_get_the_proxys_addresses_and_sigterm_ends_it_with_0(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """Bootstrap, one listener per broker, and an end in order."""
    broker = Broker(2)
    upstream = await broker.listen(nursery)
    async with proxy(tmp_path, upstream) as running:
        body = await running.until(200)
        ours = Address(HOST, running.port + 1 + 2)
        assert body["brokers"] == {"2": str(ours)}
        assert await request_metadata(running.bootstrap) == {2: ours}
        assert await request_metadata(ours) == {2: ours}
        running.process.send_signal(signal.SIGTERM)
        with trio.fail_after(LATE_S):
            assert await running.process.wait() == 0
        assert running.events()[-2:] == ["stopping", "stopped"]


async def test_the_ports_are_the_same_after_a_restart_while_clients_hold_connections(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """A client that was connected to a broker's port dials it again and is served."""
    upstream = await Broker(0).listen(nursery)
    async with proxy(tmp_path, upstream) as running:
        await running.until(200)
        ours = Address(HOST, running.port + 1)
        held = await open_connection(ours, ClusterClientSettings())
        running.process.kill()
        await running.process.wait()
        await held.aclose()
    async with proxy(tmp_path, upstream, port=running.port) as again:
        await again.until(200)
        assert await request_metadata(ours) == {0: ours}


async def test_upstream_that_is_not_there_yet_is_waited_for(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Not ready, with the reason; clients are admitted as soon as a broker responds. A signal meanwhile ends it."""
    with socket.create_server((HOST, 0)) as listener:
        nobody = Address(HOST, listener.getsockname()[1])
    async with proxy(tmp_path, nobody) as running:
        body = await running.until(503)
        await running.until_logged("upstream-not-reachable")
        assert "Connection refused" in str((await running.ready())[1]["reasons"])
        assert body["ready"] is False
        broker = Broker(1)
        broker.metadata_brokers = {1: nobody}
        opened = await trio.open_tcp_listeners(nobody.port, host=HOST)
        nursery.start_soon(trio.serve_listeners, broker.serve, opened)
        await running.until(200)
    async with proxy(tmp_path, Address(HOST, 1)) as running:
        await running.until(503)
        running.process.send_signal(signal.SIGINT)
        with trio.fail_after(LATE_S):
            assert await running.process.wait() == 0


async def test_requests_in_flight_are_finished_before_the_end_and_a_second_signal_does_not_wait(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """Draining waits for a slow broker, up to the deadline or a second signal."""
    broker = Broker(1)
    upstream = await broker.listen(nursery)
    async with proxy(tmp_path, upstream, {"drain_s": 60}) as running:
        await running.until(200)
        opened = await open_connection(running.bootstrap, ClusterClientSettings())
        broker.silent = True
        nursery.start_soon(_request_and_ignore, opened)
        await trio.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        await running.until_logged("stopping")
        await trio.sleep(0.3)
        assert running.process.returncode is None
        assert (await running.ready())[0] == 503
        running.process.send_signal(signal.SIGTERM)
        with trio.fail_after(LATE_S):
            assert await running.process.wait() == 1
        assert running.events()[-1] == "stopped-at-once"


async def test_the_drain_deadline_ends_it_with_0(tmp_path: Path, nursery: trio.Nursery) -> None:
    """A request that never ends does not keep the process."""
    broker = Broker(1)
    upstream = await broker.listen(nursery)
    async with proxy(tmp_path, upstream, {"drain_s": 0.5}) as running:
        await running.until(200)
        opened = await open_connection(running.bootstrap, ClusterClientSettings())
        broker.silent = True
        nursery.start_soon(_request_and_ignore, opened)
        await trio.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        with trio.fail_after(LATE_S):
            assert await running.process.wait() == 0
        assert "drain-incomplete" in running.events()


async def _request_and_ignore(opened: ClusterConnection) -> None:
    """Send a request that gets no response; its outcome is not tested."""
    try:
        with suppress(UpstreamLost):
            await opened.send_request(ApiKey.METADATA, registry.message("MetadataRequest")(topics=[]))
    finally:
        await opened.aclose()


async def test_a_broker_that_appears_later_gets_a_listener_and_one_that_vanished_loses_it(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """Addresses follow the cluster without a restart, and are never those of upstream."""
    broker, other = Broker(0), Broker(1)
    upstream, second = await broker.listen(nursery), await other.listen(nursery)
    settings = {"upstream.metadata_interval_s": 0.2, "vanished_broker_grace_s": 0.5}
    async with proxy(tmp_path, upstream, settings) as running:
        await running.until(200)
        broker.metadata_brokers[1] = second
        first_port = running.port + 1
        expected = {0: Address(HOST, first_port), 1: Address(HOST, first_port + 1)}
        assert await request_metadata(running.bootstrap) == expected
        other.metadata_brokers = dict(broker.metadata_brokers)
        assert await request_metadata(expected[1]) == expected
        del broker.metadata_brokers[1]
        await running.until_logged("broker-forgotten")
        with trio.fail_after(LATE_S):  # the socket is closed at the end of the loop iteration that logs it
            while await _accepts(expected[1]):  # noqa: ASYNC110 - by another process
                await trio.sleep(0.02)


async def _accepts(address: Address) -> bool:
    try:
        await (await trio.open_tcp_stream(*address)).aclose()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("level", "share_fetch", "where"), [(1, (1, 2), "brokers"), (0, (1, 2), "proxy"), (1, (1, 1), "proxy")]
)
async def test_share_groups_are_served_where_every_broker_can(
    tmp_path: Path, nursery: trio.Nursery, level: int, share_fetch: tuple[int, int], where: str
) -> None:
    """ShareFetch v2 and a finalized share.version of 1, else here."""
    broker = Broker(0, ranges={**RANGES, 78: share_fetch})
    broker.share_level = level
    upstream = await broker.listen(nursery)
    async with proxy(tmp_path, upstream, {"upstream.metadata_interval_s": 0.2}) as running:
        assert (await running.until(200))["share_groups"] == where
        broker.ranges, broker.share_level = {**RANGES, 78: (1, 2)}, 1 - level
        broker.cut()
        await running.until_logged("share-groups-served")
        if where == "brokers":
            await running.until_logged("share-groups-need-restart")
        elif share_fetch == (1, 2):
            await running.until_logged("share-groups-of-brokers-noticed")
            where = "proxy or brokers, by group"
        assert (await running.until(200))["share_groups"] == where


async def test_a_port_that_is_taken_is_a_clear_error(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Immediately for the bootstrap port, as soon as brokers are known for theirs; status 1."""
    upstream = await Broker(3).listen(nursery)
    first = free_ports(8)[0]
    for busy_port, words in ((first, f"cannot listen on {HOST}:{first}"), (first + 4, "broker 3 has no listener")):
        with socket.create_server((HOST, busy_port)):
            async with proxy(tmp_path, upstream, port=first) as running:
                with trio.fail_after(LATE_S):
                    assert await running.process.wait() == 1
                text = (tmp_path / "log").read_text()
                assert words in text
                assert "Address already in use" in text
                assert "Traceback" not in text


async def test_all_ports_that_are_taken_are_named_together(tmp_path: Path, nursery: trio.Nursery) -> None:
    """All taken ports are named, so that one restart is enough after freeing them."""
    broker = Broker(1)
    upstream = broker.metadata_brokers[2] = await broker.listen(nursery)
    first = free_ports(8)[0]
    for busy_ports in ((first, first + 7), (first + 2, first + 3)):
        with socket.create_server((HOST, busy_ports[0])), socket.create_server((HOST, busy_ports[1])):
            async with proxy(tmp_path, upstream, port=first) as running:
                with trio.fail_after(LATE_S):
                    assert await running.process.wait() == 1
            error = (tmp_path / "log").read_text().splitlines()[-1]
            assert [port for port in busy_ports if f"cannot listen on {HOST}:{port}" in error] == list(busy_ports)


async def test_a_broker_id_without_a_port_is_a_clear_error(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Ports end at 65535."""
    upstream = await Broker(60_000).listen(nursery)
    async with proxy(tmp_path, upstream) as running:
        with trio.fail_after(LATE_S):
            assert await running.process.wait() == 1
    assert "ports end at 65535" in (tmp_path / "log").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_an_idle_proxy_is_small(tmp_path: Path, nursery: trio.Nursery) -> None:
    """At most 50 MiB are resident once memory and code that only the start needed are returned."""
    upstream = await Broker(0).listen(nursery)
    async with proxy(tmp_path, upstream) as running:
        await running.until(200)
        for _ in range(20):
            await trio.sleep(0.5)
            resident = running.resident_kib()
            if resident <= 50 * 1024:
                break
        assert resident <= 50 * 1024


BLOCKED_AT_ITS_END = """
import time
from kafka_share_proxy.app import cli
from kafka_share_proxy.app.serving.server import Server

drain = Server._drain

async def drain_slowly(self, parts):
    time.sleep(6)
    await drain(self, parts)

Server._drain = drain_slowly
cli.main()
"""


async def test_a_blocked_loop_is_logged_with_the_calls_that_block_it(tmp_path: Path, nursery: trio.Nursery) -> None:
    upstream = await Broker(0).listen(nursery)
    async with proxy(tmp_path, upstream, program=("-c", BLOCKED_AT_ITS_END)) as running:
        await running.until(200)
        running.process.send_signal(signal.SIGTERM)
        with trio.fail_after(LATE_S):
            assert await running.process.wait() == 0
        (line,) = [each for each in running.log() if each["event"] == "loop-blocked"]
        assert "drain_slowly" in str(line["calls"])


def test_wrong_settings_end_it_with_2() -> None:
    """Before anything is opened."""
    command = [sys.executable, "-m", "kafka_share_proxy", "serve", "--upstream", "nonsense"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "2 settings cannot work" in done.stderr


@pytest.mark.parametrize(("mechanism", "loads"), [("PLAIN", False), ("SCRAM-SHA-512", True)])
def test_the_library_of_scram_is_loaded_only_where_the_proxy_logs_in_with_it(mechanism: str, loads: bool) -> None:
    """It takes 2.1 MiB of an idle proxy."""
    sasl = {"mechanism": mechanism, "username": "proxy", "password": "secret"}
    config = Config.model_validate({"upstream": {"bootstrap": "127.0.0.1:9092", "sasl": sasl}})
    assert (server.SCRAM in server.needed_libraries(config)) is loads


PREPARED = """
import gc, socket, sys
from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.serving import server
walked_s = server.prepare()
loaded = set(sys.modules)
observe.log_lines("console")
socket.getaddrinfo("127.0.0.1", 1)
assert walked_s > 0
assert gc.get_freeze_count() > len(gc.get_objects())
print(sorted(set(sys.modules) - loaded))
"""


def test_prepared_process_imports_nothing_later_and_walks_through_few_objects() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PREPARED], cwd=CHECKOUT, capture_output=True, text=True, timeout=LATE_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
