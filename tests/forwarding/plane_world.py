"""A data plane on the real loop without Trio: clients and brokers over loopback, the real clock.

The loop is its own host here: nothing happens but in `iterate_until`, so a test says when time passes. Every wait is
bounded.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka_share_proxy.brokers.dialling import Dialled
from kafka_share_proxy.forwarding.data_plane import Plane
from kafka_share_proxy.forwarding.dispatch.routes import Context, Kind, Route, Routes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

LIMIT_S = 10.0
WAY_BYTES = 64 << 10
"""Approximate bytes that the kernel keeps, at either end of the way to a broker that does not read."""
UPSTREAM = Address("broker.test", 9092)

PRODUCE, FETCH, METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, HEARTBEAT, LOCAL, LIST = (
    0, 1, 3, 17, 18, 36, 12, 76, 16,
)  # fmt: skip
"""API keys; LOCAL is served here, LIST is inspected, METADATA is rewritten."""


def request(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    """A request frame with a header v0 (what the data plane reads of it)."""
    head = struct.pack(">hhi", key, version, correlation_id)
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce(correlation_id: int, acks: int, size: int = 100) -> bytes:
    """Produce v7."""
    return request(PRODUCE, 7, correlation_id, struct.pack(">hhh", -1, -1, acks) + bytes(size))


def response(correlation_id: int, body: bytes = b"") -> bytes:
    """A response frame with header v0."""
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


class Peer:
    """A client or a broker: one end of a socket."""

    def __init__(self, world: World, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.world = world
        self.sock = sock
        self.data = bytearray()
        self.ended = False

    def send(self, data: bytes) -> None:
        """All of it; the loop turns, and every other peer reads, while the proxy does not take it."""
        view = memoryview(data)
        deadline = time.monotonic() + LIMIT_S
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                assert time.monotonic() < deadline, "the proxy takes no more"
                self.world.iterate()
                for peer in self.world.peers:
                    if peer is not self and peer.sock.fileno() >= 0:
                        peer.take()

    def take(self) -> bytearray:
        """Return what has come, without waiting for more."""
        try:
            while chunk := self.sock.recv(1 << 20):
                self.data += chunk
            self.ended = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.ended = True
        return self.data

    def receive(self, count: int) -> bytes:
        """Receive exactly this many bytes more."""
        self.world.iterate_until(lambda: len(self.take()) >= count or self.ended)
        assert len(self.data) >= count, f"ended after {len(self.data)} bytes, {count} were expected"
        data = bytes(self.data[:count])
        del self.data[:count]
        return data

    def frame(self) -> bytes:
        """One whole frame, its size taken off."""
        (size,) = struct.unpack(">i", self.receive(4))
        return self.receive(size)

    def expect(self, data: bytes) -> None:
        """The next bytes are these."""
        assert self.receive(len(data)) == data

    def expect_end(self) -> None:
        """Expect no further bytes, and the end of the connection."""
        self.world.iterate_until(lambda: self.take() or self.ended)
        assert (bytes(self.data), self.ended) == (b"", True)

    def expect_silence(self, turns: int = 5) -> None:
        """Expect nothing although the loop runs."""
        for _ in range(turns):
            self.world.iterate()
        assert (bytes(self.take()), self.ended) == (b"", False)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close without a farewell."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class World:
    """One plane; every upstream connection it dials appears in `brokers`."""

    def __init__(self, routes: Routes | None = None, limits: Limits | None = None, **options: Any) -> None:
        self.reactor = Reactor(new_pump)
        self.routes = routes if routes is not None else some_routes()
        self.brokers: list[Peer] = []
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.dialled: list[Sequence[Address]] = []
        self.hold_dials = False
        self.dials: list[Callable[[], None]] = []
        self.refuse_dials: OSError | None = None
        self.peers: list[Peer] = []
        self.plane = Plane(
            self.reactor,
            self.routes,
            limits or Limits(),
            self.note,
            self.dial,
            **options,
        )
        self.port = self.plane.ports.listen(UNKNOWN_NODE, "127.0.0.1", 0, lambda: [UPSTREAM])

    def note(self, event: str, /, **context: Any) -> None:
        self.notes.append((event, context))

    def dial(self, targets: Sequence[Address], done: Callable[[Dialled | OSError], None]) -> Callable[[], None]:
        self.dialled.append(list(targets))
        cancelled = []

        def finish() -> None:
            if cancelled:
                return
            if self.refuse_dials is not None:
                done(self.refuse_dials)
                return
            ours, theirs = tcp_pair()
            self.brokers.append(self.peer(theirs))
            done(Dialled(ours, targets[0]))

        if self.hold_dials:
            self.dials.append(finish)
        else:
            self.reactor.call_soon(self, finish)
        return lambda: cancelled.append(True)

    def failed(self, error: Exception) -> None:
        raise AssertionError from error

    def peer(self, sock: socket.socket) -> Peer:
        self.peers.append(Peer(self, sock))
        return self.peers[-1]

    def client(self, port: int | None = None) -> Peer:
        """A new client connection, accepted. `port`: that of a broker instead of the bootstrap one."""
        before = self.plane.statistics().connections_total
        sock = socket.create_connection(("127.0.0.1", port or self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.iterate_until(lambda: self.plane.statistics().connections_total > before)
        return self.peer(sock)

    def pair(self, port: int | None = None) -> tuple[Peer, Peer]:
        """Return a client, and the broker it reached by a first request with a response."""
        client, before = self.client(port), len(self.brokers)
        client.send(request(FETCH, 11, 0))
        self.iterate_until(lambda: len(self.brokers) > before)
        broker = self.brokers[-1]
        broker.expect(request(FETCH, 11, 0))
        broker.send(response(0))
        client.expect(response(0))
        return client, broker

    def iterate(self) -> None:
        self.reactor.iterate(0.01)

    def iterate_until(self, condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, "it never came about"
            self.iterate()

    def events(self) -> list[str]:
        return [event for event, _ in self.notes]

    def reason(self) -> str:
        """Why the last connection ended."""
        self.iterate_until(lambda: self.notes)
        return str(self.notes[-1][1].get("reason", ""))

    def close(self) -> None:
        self.plane.close()
        for _ in range(3):
            self.reactor.iterate(0)  # a dial in progress is closed when it completes
        for peer in self.peers:
            peer.close()
        self.reactor.shut()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection, as between hosts: a socket pair knows no windows. Little waits on the way."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    for end in (ours, theirs):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WAY_BYTES)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WAY_BYTES)
    return ours, theirs


@contextmanager
def world(routes: Routes | None = None, limits: Limits | None = None, **options: Any) -> Iterator[World]:
    """A world that is given back."""
    plane_world = World(routes, limits, **options)
    try:
        yield plane_world
    finally:
        plane_world.close()


def some_routes(**handlers: Any) -> Routes:
    """Routes of every kind; `local` and `inspect` are handlers, `serve_here` decides for the latter."""
    routes = Routes()

    def add(key: int, versions: range, kind: Kind, **options: Any) -> None:
        for version in versions:
            routes.add(Route(kind=kind, key=key, version=version, **options))

    add(PRODUCE, range(3, 12), Kind.PRODUCE)
    add(FETCH, range(16), Kind.FORWARD)
    add(HEARTBEAT, range(5), Kind.FORWARD)
    add(API_VERSIONS, range(5), Kind.FORWARD)
    add(SASL_HANDSHAKE, range(2), Kind.SASL_HANDSHAKE)
    add(SASL_AUTHENTICATE, range(3), Kind.SASL_AUTHENTICATE)
    add(METADATA, range(13), Kind.RESPONSE, rewrite=handlers.get("rewrite", rewrite))
    if "local" in handlers:
        add(LOCAL, range(2), Kind.LOCAL, handler=handlers["local"], opaque=True)
    if "inspect" in handlers:
        options = {"handler": handlers["inspect"], "serve_here": handlers["serve_here"], "opaque": True}
        add(LIST, range(2), Kind.INSPECT, **options)
    return routes


def rewrite(frame: memoryview, _context: Context) -> bytes | None:
    """Write the body in capitals; a response without a body passes unchanged."""
    body = bytes(frame[4:]).upper()
    return struct.pack(">i", len(body) + 4) + bytes(frame[:4]) + body if body else None
