"""A proxy that may open few files: clients get what is left, and the proxy's own connections always have theirs."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka_share_proxy.app.serving.open_files import RESERVED
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.loop.listeners import PAUSE_S
from kafka_share_proxy.wire.values import Address

from tests.support.blocking_connection import Connection, build
from tests.support.raw import LIMIT_S, Raw, until

pytestmark = pytest.mark.broker

ROOM = 60
FILES = RESERVED + 2 * ROOM + 1
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.fixture
def front(kafka_39: Cluster, tmp_path: Path) -> Iterator[Front]:
    settings = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
    with Front(kafka_39.bootstrap, tmp_path / "proxy", settings, files_max=FILES) as front:
        yield front


def client(front: Front) -> Connection:
    return Connection(Address("127.0.0.1", front.port))


def is_served(connection: Connection) -> bool:
    """Send a request to its broker, so that it has an upstream connection."""
    request = build("ApiVersionsRequest", client_software_name="t", client_software_version="1")
    return bool(connection.send_request(18, 3, request).api_keys)


def is_closed(front: Front) -> bool:
    """One more is closed immediately."""
    with socket.create_connection(("127.0.0.1", front.port), LIMIT_S) as sock:
        try:
            return sock.recv(1) == b""
        except ConnectionResetError:
            return True


def test_clients_get_what_is_left_and_the_proxy_keeps_its_own(front: Front, fresh: Callable[[str], str]) -> None:
    assert f"connections={ROOM}" in front.log.read_text().replace("'", "")
    base = fresh("base")
    with ExitStack() as stack:
        raw = stack.enter_context(Raw(front.bootstrap))
        raw.create_topic(base)
        used = len(raw._connections)
        clients = [stack.enter_context(client(front)) for _ in range(ROOM - used)]
        assert all(map(is_served, clients))
        assert is_closed(front)
        until(lambda: f"limits.connections ({ROOM}) is reached" in front.output(), "a line in the log")
        assert front.send_request("/readyz")[0]
        assert f"ksp_connections {ROOM}.0" in front.send_request("/metrics")[1]
        assert until(lambda: raw.view(f"__view.r2.{base}"), "the view")  # the proxy's own connections make it
        assert all(map(is_served, clients))
        clients[0].close()
        until(lambda: not is_closed_or_full(front), "room for another")
    assert "accept-failed" not in front.log.read_text()


def is_closed_or_full(front: Front) -> bool:
    try:
        with client(front) as connection:
            return not is_served(connection)
    except OSError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux sets the limits of another process")
def test_without_any_descriptor_left_accepting_pauses_and_continues(front: Front) -> None:
    """An unexpected shortage (an operator lowers the limit, the system runs out) causes no busy loop, and ends."""
    assert front.child is not None
    pid = front.child.pid
    with client(front) as served:
        assert is_served(served)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        opened = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
        lowest_free = min(set(range(len(opened) + 1)) - opened)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
        waiting = [socket.create_connection(("127.0.0.1", front.port), LIMIT_S) for _ in range(4)]
        try:
            until(lambda: "accept-failed" in front.output(), "a line in the log")
            began, cpu = time.monotonic(), cpu_s(pid)
            time.sleep(2 * PAUSE_S)
            assert cpu_s(pid) - cpu < (time.monotonic() - began) / 4
            assert is_served(served)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            until(lambda: not is_closed_or_full(front), "accepting to go on")
        finally:
            for sock in waiting:
                sock.close()


def cpu_s(pid: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux sets the limits of another process")
def test_a_proxy_that_starts_without_free_descriptors_still_loads_its_views(
    front: Front, kafka_39: Cluster, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    """Files (message definitions, libraries) are read before the proxy serves anything."""
    with Raw(front.bootstrap) as raw:
        base = raw.create_topic(fresh("base"))
        until(lambda: raw.view(f"__view.r2.{base.name}"), "the view")
    with Front(
        kafka_39.bootstrap, tmp_path / "second", {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
    ) as second:
        assert second.child is not None
        pid = second.child.pid
        opened = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
        limit = resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(opened) + 1, HARD))
        time.sleep(2 * PAUSE_S)
        assert second.child.status is None, second.log.read_text()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
