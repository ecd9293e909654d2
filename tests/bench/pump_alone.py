"""Forwarding by the pump alone, a lower bound of this proxy for the bench of forwarding.

    python -m tests.bench.pump_alone LISTEN_PORT BROKER_PORT

One process with the pump and the walk in C (`forwarding/walk`) and nothing else of the proxy: no Trio, no other thread,
no alarms, no features, no limits. Its table has the requests that `kload` sends. Responses to Metadata and ApiVersions
are replaced by what an equal one was rewritten to before, which here means: with this port for the broker's.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafka_share_proxy.forwarding.dispatch.request_inspection import SILENT, AcksMatch
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.forwarding.walk.walking import Pending, RequestWalk, ResponseWalk, Table
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.loop.iterations import Iterations
from kafka_share_proxy.loop.polling import READ, WRITE
from kafka_share_proxy.loop.reactor import POLL_MAX_S, RECEIVE_BYTES

BACKLOG = 1024
FRAME_MAX = 100 << 20
PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
VERSIONS = {PRODUCE: 7, FETCH: 11, METADATA: 9, API_VERSIONS: 3}
"""API key -> the version that kload sends."""
RESPONSE_HEAD = 8


class Unchanged:
    """Treatment of requests whose responses are forwarded as they arrive."""

    rewrite = None


class Known:
    """Rewriter whose cache the walk in C reads (`address_book.Remembered`)."""

    def __init__(self) -> None:
        self.known: dict[bytes, tuple[bytes, bytes]] = {}

    def __call__(self) -> None:
        """Only makes it a rewriter: the cache is filled by `Responses`."""


class Rewritten:
    """Treatment of requests whose responses are replaced."""

    def __init__(self) -> None:
        self.rewrite = Known()


class Direction:
    """One direction of a connection, which continues in Python when the kernel does not accept all bytes."""

    alone: Alone
    source: socket.socket
    target: socket.socket
    flows: bool
    unsent = b""

    def ended(self, _code: int, _: int) -> None:
        self.alone.close(self.source, self.target)

    def failed(self, error: Exception) -> None:
        raise SystemExit(f"error: {error}")

    def walked(self, upto: int, count: int) -> bool:
        raise SystemExit(f"error: no request of kload: {upto} of {count} bytes")

    def sent(self, sent: int, count: int) -> None:
        """Stop reading, and wait until the rest of the buffer is accepted."""
        if sent < 0:
            self.alone.close(self.source, self.target)
            return
        self.unsent = bytes(self.alone.buffer[sent:count])
        self.flows = False
        self.alone.want(self.source, 0)
        self.alone.want(self.target, READ | WRITE)

    def flush(self) -> None:
        with suppress(BlockingIOError):
            self.unsent = self.unsent[self.target.send(self.unsent) :]
        if not self.unsent:
            self.flows = True
            self.alone.want(self.target, READ)
            self.alone.want(self.source, READ)


class Requests(Direction, RequestWalk):
    """Client to broker."""


class Responses(Direction, ResponseWalk):
    """Broker to client."""

    def walked(self, upto: int, count: int) -> bool:
        """Remember a response, and forward it unchanged: kload does not read addresses."""
        if upto:
            raise SystemExit("error: a response to be rewritten arrived with others")
        _, expected = self.pending.popleft()
        assert isinstance(expected, Rewritten)
        size, body = bytes(self.alone.buffer[:4]), bytes(self.alone.buffer[RESPONSE_HEAD:count])
        expected.rewrite.known[body] = (size, body.replace(*self.alone.ports))
        return True


class Alone:
    """Connections and the pump between them."""

    def __init__(self, listen_port: int, broker_port: int) -> None:
        self.buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.ports = (struct.pack(">i", broker_port), struct.pack(">i", listen_port))
        self._broker_port = broker_port
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        pump = new_pump(self._epoll, self.buffer, self._ready, Iterations())
        if pump is None:
            raise SystemExit("error: the pump in C is not built")
        self._pump = pump
        self._table = table()
        self._listener = socket.create_server((HOST, listen_port), backlog=BACKLOG)
        self._ready[self._listener.fileno()] = self._accept
        self._epoll.register(self._listener.fileno(), READ)

    def run(self) -> None:
        while True:
            self._pump.iterate(POLL_MAX_S)

    def want(self, sock: socket.socket, mask: int) -> None:
        self._epoll.modify(sock.fileno(), mask)

    def close(self, *socks: socket.socket) -> None:
        for sock in socks:
            if self._ready.pop(sock.fileno(), None) is not None:
                self._pump.forget(sock.fileno())
            sock.close()

    def _accept(self, _mask: int) -> None:
        client, _ = self._listener.accept()
        broker = socket.create_connection((HOST, self._broker_port))
        pending = Pending()
        requests, responses = Requests(pending, self._table, FRAME_MAX), Responses(pending, FRAME_MAX)
        self._pass(requests, client, broker, responses)
        self._pass(responses, broker, client, requests)

    def _pass(self, walk: Any, source: socket.socket, target: socket.socket, back: Direction) -> None:
        def ready(mask: int) -> None:
            if mask & WRITE and back.unsent:
                back.flush()
            elif not mask & READ:
                self.close(source, target)

        walk.alone, walk.source, walk.target = self, source, target
        source.setblocking(False)
        source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ready[source.fileno()] = ready
        self._pump.connect(source.fileno(), walk, target.fileno(), None, None)
        self._epoll.register(source.fileno(), READ)
        walk.flows = True


def table() -> Table:
    """Return the requests of kload."""
    names = {key: struct.pack(">hh", key, version) for key, version in VERSIONS.items()}
    treatments = {FETCH: Unchanged(), METADATA: Rewritten(), API_VERSIONS: Rewritten()}
    plain = {names[key]: treatment for key, treatment in treatments.items()}
    inspected = {names[PRODUCE]: AcksMatch(VERSIONS[PRODUCE], Unchanged())}
    return Table(plain, inspected, SILENT)  # type: ignore[arg-type]


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        Alone(*map(int, sys.argv[1:])).run()
