"""Connections of load balancers: their header is read, and nothing after it."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.proxy_headers import LEFT, ProxyHeaders
from kafka_share_proxy.loop.reactor import Reactor

from tests.support.proxy_headers import LOCAL, header, of_client

HOST = "127.0.0.1"
SOURCES = [ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("2001:db8::/32")]


class Room:
    """The stage on a loop of its own."""

    def __init__(self, timeout_s: float = 600.0) -> None:
        self.reactor = Reactor(new_pump)
        self.headers = ProxyHeaders(self.reactor, SOURCES, timeout_s, "proxy_protocol.clients")
        self.accepted: list[tuple[str, socket.socket]] = []
        self.failed: list[str] = []
        self.sockets: list[socket.socket] = []

    def connect(self, sent: bytes = b"") -> socket.socket:
        peer, accepted = socket.socketpair()
        self.sockets += [peer, accepted]
        peer.settimeout(5)
        peer.sendall(sent)
        self.headers.begin(accepted, HOST, self._accept, lambda error: self.failed.append(str(error)))
        return peer

    def _accept(self, sock: socket.socket, host: str) -> None:
        self.accepted.append((host, sock))

    def iterate_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            self.reactor.iterate(0.01)

    def close(self) -> None:
        self.headers.close()
        self.reactor.shut()
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Room]]:
    rooms: list[Room] = []

    def build(timeout_s: float = 600.0) -> Room:
        rooms.append(Room(timeout_s))
        return rooms[-1]

    yield build
    for room in rooms:
        room.close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.9", True), ("2001:db8::1", True), ("192.0.2.1", False), ("::1", False), ("fe80::1%eth0", False)],
)
def test_only_named_networks_send_headers(make: Callable[..., Room], host: str, expected: bool) -> None:
    assert make().headers.expects(host) is expected


def test_bytes_after_the_header_stay_in_the_socket(make: Callable[..., Room]) -> None:
    room = make()
    room.connect(of_client("192.0.2.7") + b"\x16\x03\x01 the client's own bytes")
    ((host, sock),) = room.accepted
    assert (host, sock.recv(100), room.headers.pending) == ("192.0.2.7", b"\x16\x03\x01 the client's own bytes", 0)


def test_a_header_may_arrive_byte_by_byte(make: Callable[..., Room]) -> None:
    room = make()
    peer = room.connect()
    for byte in of_client("2001:db8::7"):
        assert not room.accepted
        peer.send(bytes([byte]))
        for _ in range(3):
            room.reactor.iterate(0.0)
    room.iterate_until(lambda: room.accepted)
    assert room.accepted[0][0] == "2001:db8::7"
    peer.sendall(b"more")
    for _ in range(3):
        room.reactor.iterate(0.0)  # the socket is not watched here anymore
    assert room.accepted[0][1].recv(10) == b"more"


def test_a_health_check_of_the_load_balancer_keeps_its_own_address(make: Callable[..., Room]) -> None:
    room = make()
    room.connect(header(LOCAL, 0, b""))
    assert room.accepted[0][0] == HOST


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"PROXY TCP4 192.0.2.7\r\n", "the PROXY protocol header is of version 1, which is not supported"),
        (b"\x00\x00\x00\x20\x00\x12", "the connection begins without a PROXY protocol header"),
        (b"\x16\x03\x01\x02\x00", "the connection begins without a PROXY protocol header"),
    ],
)
def test_a_connection_without_a_header_of_version_2_is_closed_with_advice(
    make: Callable[..., Room], sent: bytes, reason: str
) -> None:
    room = make()
    peer = room.connect(sent)
    assert room.failed == [
        f"{reason}: let the load balancer send version 2 (HAProxy: send-proxy-v2), or take 127.0.0.1 out of "
        "proxy_protocol.clients"
    ]
    room.reactor.iterate(0.0)
    with suppress(ConnectionResetError):  # of Unix sockets with unread bytes
        assert peer.recv(1) == b""
    assert (room.headers.pending, room.accepted) == (0, [])


def test_a_header_that_does_not_end_is_closed_at_the_deadline(make: Callable[..., Room]) -> None:
    room = make(timeout_s=0.1)
    for sent in (b"", of_client("192.0.2.7")[:-1]):
        room.connect(sent)
    room.iterate_until(lambda: len(room.failed) == 2)
    assert all(reason.startswith("no PROXY protocol header within 0.1 s: let the") for reason in room.failed)
    assert room.headers.pending == 0


def test_connection_closed_before_its_header_is_not_reported_as_a_mistake(make: Callable[..., Room]) -> None:
    room = make()
    room.connect(of_client("192.0.2.7")[:20]).close()
    room.connect().close()
    room.iterate_until(lambda: len(room.failed) == 2)
    assert room.failed == [LEFT, LEFT]


def test_closing_ends_incomplete_headers_without_a_report(make: Callable[..., Room]) -> None:
    room = make()
    peer = room.connect(b"\r\n")
    assert room.headers.pending == 1
    room.headers.close()
    room.reactor.iterate(0.0)
    assert (peer.recv(1), room.failed, room.headers.pending) == (b"", [], 0)
