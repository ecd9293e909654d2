"""A real proxy under clients that send garbage or almost valid requests: other clients notice nothing, and no memory is
kept.
"""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry, specs
from kafka_share_proxy.wire.values import Address

from tests.support.blocking_connection import Connection, build
from tests.support.memory import own_mib
from tests.support.raw import LIMIT_S, until
from tests.wire.samples import Samples

pytestmark = pytest.mark.broker

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
NONSENSE = (
    HELLO + bytes(500),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\xff" * 64,
    bytes(64),
)
SIZES = (-1, 0, 1, 7, -(2**31), 2**31 - 1, (100 << 20) + 1, (64 << 20) + 5)
CONNECTIONS = 400
RSS_GROWTH_MAX_KIB = 8 * 1024


@pytest.fixture
def steady(proxy_39: Front) -> Iterator[Connection]:
    """Connection of a well-behaved client."""
    connection = Connection(Address("127.0.0.1", proxy_39.port))
    yield connection
    connection.close()


def versions(connection: Connection) -> list[tuple[int, int]]:
    """Return what is offered, as far as its layout is known (Produce is offered from 0 for old clients' sake)."""
    request = build("ApiVersionsRequest", client_software_name="t", client_software_version="1")
    offered = connection.send_request(18, 3, request).api_keys
    return [
        (api.api_key, version)
        for api in offered
        for version in range(max(api.min_version, registry.versions(api.api_key)[0]), api.max_version + 1)
    ]


def mutated(draw: random.Random, key: int, version: int) -> bytes:
    """A request that was valid, with something wrong with it; or nothing like one."""
    message = Samples(draw.random()).message(specs.load(f"{registry.API_KEYS[key]}Request"), version)
    frame = bytearray(frames.request(key, version, draw.randrange(-(2**31), 2**31), "fuzz", message))
    kind = draw.randrange(6)
    if kind == 0:
        frame[draw.randrange(len(frame))] = draw.randrange(256)
    elif kind == 1:
        for _ in range(5):
            frame[draw.randrange(min(12, len(frame) - 1), len(frame))] = draw.choice((0, 0x7F, 0x80, 0xFF))
    elif kind == 2:
        del frame[draw.randrange(1, len(frame)) :]
    elif kind == 3:
        frame[:4] = struct.pack(">i", draw.choice(SIZES))
    elif kind == 4:
        return draw.choice(NONSENSE)
    else:  # counts that promise far more than the bytes can hold
        body = b"\x00\x01x" + b"\xff\xff\xff\x7f" * draw.randrange(1, 40)
        return struct.pack(">i", 8 + len(body)) + bytes(frame[4:12]) + body
    return bytes(frame)


def rss_kib(front: Front) -> float:
    """Resident memory of the proxy without code; 0 if the system does not report it."""
    return 0.0 if front.child is None else 1024 * own_mib(front.child.pid)


def connections(front: Front) -> int:
    match = re.search(r"^ksp_connections (\d+)", front.send_request("/metrics")[1], re.MULTILINE)
    return int(match[1]) if match else -1


def test_garbage_of_every_kind_disturbs_no_other_client(proxy_39: Front, steady: Connection) -> None:
    """Each bad connection ends by itself or with its client; the proxy does not grow and does not fail."""
    draw = random.Random(20_261_121)
    listed = versions(steady)
    before = (rss_kib(proxy_39), connections(proxy_39))
    for number in range(CONNECTIONS):
        with socket.create_connection(("127.0.0.1", proxy_39.port), timeout=LIMIT_S) as sock:
            try:
                for _ in range(draw.randrange(1, 4)):
                    sock.sendall(mutated(draw, *draw.choice(listed)))
            except OSError:
                pass  # it was refused before all of it was sent
            if draw.random() < 0.3:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if number % 20 == 0:
            assert versions(steady) == listed
    until(lambda: connections(proxy_39) <= before[1], "all bad connections to be gone")
    assert rss_kib(proxy_39) - before[0] < RSS_GROWTH_MAX_KIB
    events = proxy_39.send_request("/metrics")[1]
    assert re.search(r'ksp_events_total\{event="client-protocol-error"\} [1-9]', events)
    assert "connection-failed" not in events
    assert "handler-failed" not in events
    assert "callback-failed" not in events


def test_a_request_too_large_to_be_served_here_is_logged(kafka_39: Cluster, tmp_path: Path) -> None:
    """64 MiB of ShareFetch would become gigabytes of objects before any rights are checked.

    The proxy is the test's own: lines of one kind are limited by the minute, and others here cause many.
    """
    with Front(
        kafka_39.bootstrap, tmp_path / "proxy", {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
    ) as front:
        steady = Connection(Address("127.0.0.1", front.port))
        with socket.create_connection(("127.0.0.1", front.port), timeout=LIMIT_S) as sock:
            sock.sendall(struct.pack(">ihhih", 60 << 20, 78, 2, 1, -1))
            assert sock.recv(1) == b""
        until(lambda: "limits.served_request_bytes" in front.output(), "a line in the log")
        assert versions(steady)
        steady.close()
