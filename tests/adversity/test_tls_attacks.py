"""A real proxy whose TLS port is attacked by clients without credentials: others are served, and no memory stays.

`python -m tests.support.tls_attack HOST:PORT --kind hello --connections 76000 --sockets 400 --pid PID` runs the same
attacks for as long as wanted.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.fleet import SECRET, certificates
from tests.support.memory import own_mib
from tests.support.raw import until
from tests.support.tls_attack import KINDS, REQUESTS, Flood, TinyRecords, TlsClient

pytestmark = pytest.mark.broker

SECONDS = 1.5
"""Duration of each attack."""
EVERY_S = 0.004
"""Seconds between two requests of the bystander."""
P99_MAX_S = 0.3
"""Limit for a machine shared with other tests; about 0.03 on an idle one."""
NEW_CLIENT_MAX_S = 5.0
"""A new TLS client waited for 10 s, which is when it gives up, before handshakes had limits."""
RSS_GROWTH_MAX_MIB = 24.0
"""400 unfinished handshakes of 50 KiB."""
ATTEMPTS = 5
ALL_KINDS = [kind for kind in KINDS if kind != "connect"]


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def peer_port() -> int:
    return int(free_ports(1)[0])


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster, peer_port: int, tmp_path_factory: pytest.TempPathFactory) -> Front:
    files = certificates(tmp_path_factory.mktemp("certificates"))
    clients = {name: files[name] for name in ("cert_file", "key_file")}
    peer = {"listen": f"{HOST}:{peer_port}", "secret": SECRET, "tls": files}
    return running.front(kafka.bootstrap, {"client_tls": clients, "cluster": {"mode": "fleet", "peer": peer}})


@pytest.fixture
def bystander(front: Front) -> Iterator[TlsClient]:
    client = TlsClient((HOST, front.port))
    yield client
    client.close()


def p99_beside(bystander: TlsClient, seconds: float = SECONDS) -> float:
    """Send a small request every few milliseconds; return the 99th percentile of the waits."""
    waits = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        bystander.send_request()
        waits.append(time.monotonic() - began)
        time.sleep(EVERY_S)
    return sorted(waits)[int(0.99 * len(waits))]


def gauge(front: Front, name: str) -> float:
    match = re.search(rf"^ksp_{name} (\S+)", front.send_request("/metrics")[1], re.MULTILINE)
    assert match is not None
    return float(match[1])


def rss(front: Front) -> float:
    assert front.child is not None
    return own_mib(front.child.pid)


def beside(front: Front, attack: Flood | TinyRecords, bystander: TlsClient) -> tuple[float, float]:
    """Return the bystander's 99th percentile, and how long a new TLS client takes, in seconds."""
    thread = threading.Thread(target=attack.run)
    thread.start()
    try:
        waits = p99_beside(bystander)
        began = time.monotonic()
        client = TlsClient((HOST, front.port))
        client.send_request()
        client.close()
        newcomer = time.monotonic() - began
        assert thread.is_alive(), f"the attack ended early: {attack}"
        return waits, newcomer
    finally:
        attack.ended.set()
        thread.join()


def harmless(front: Front, attack: type[Flood] | type[TinyRecords], bystander: TlsClient, *options: object) -> None:
    """The best of some attempts: other tests take the processors for seconds at a time."""
    for attempt in range(ATTEMPTS):
        prepared = attack((HOST, front.port), *options)  # type: ignore[arg-type]
        p99, newcomer = beside(front, prepared, bystander)
        print(f"p99 {1e3 * p99:.0f} ms, new client {newcomer:.2f} s, {prepared}, {rss(front):.0f} MiB", file=sys.stderr)
        if p99 < P99_MAX_S and newcomer < NEW_CLIENT_MAX_S:
            return
        assert attempt < ATTEMPTS - 1, front.output()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_unfinished_handshakes_keep_neither_memory_nor_other_clients_waiting(
    front: Front, bystander: TlsClient, kind: str
) -> None:
    TlsClient((HOST, front.port)).close()  # loads what the first connection needs
    before = rss(front)
    harmless(front, Flood, bystander, kind)
    until(lambda: gauge(front, "tls_handshakes") == 0, "all handshakes to end")
    until(lambda: gauge(front, "connections") == 1, "nobody but the bystander to be connected")
    assert rss(front) - before < RSS_GROWTH_MAX_MIB
    events = front.send_request("/metrics")[1]
    for failure in ("connection-failed", "callback-failed", "handler-failed", "accept-failed"):
        assert failure not in events, front.output()


@pytest.mark.parametrize("requests", REQUESTS)
def test_one_byte_in_each_tls_record_keeps_others_served(front: Front, bystander: TlsClient, requests: str) -> None:
    harmless(front, TinyRecords, bystander, requests)


@pytest.mark.parametrize("kind", ["connect", "hello"])
def test_a_flood_of_connections_on_the_peer_port_keeps_clients_served(
    front: Front, bystander: TlsClient, peer_port: int, kind: str
) -> None:
    for attempt in range(ATTEMPTS):
        flood = Flood((HOST, peer_port), kind, per_second=1400)
        p99, _ = beside(front, flood, bystander)
        print(f"p99 {1e3 * p99:.0f} ms beside {flood.connections} connections", file=sys.stderr)
        if p99 < P99_MAX_S:
            return
        assert attempt < ATTEMPTS - 1, front.output()
