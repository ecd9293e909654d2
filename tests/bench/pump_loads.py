"""Small and large requests through the pump alone, over socket pairs in one process, for `pump_instructions`.

    valgrind --tool=callgrind ... python tests/bench/pump_loads.py PAIRS PORTIONS

It runs as a file, with the Python and the packages of the checkout that is counted, and uses only what all of them
have. Before each portion the counts are set to zero, and after it they are written with the name of the case.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

from kafka_share_proxy.forwarding.dispatch.request_inspection import SILENT, AcksMatch
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.forwarding.walk.walking import Pending, RequestWalk, ResponseWalk, Table

READ = 1
BUFFER_BYTES, SOCKET_BYTES, FRAME_MAX = 256 << 10, 1 << 20, 100 << 20
FETCH, PRODUCE, CLIENT_ID = (1, 11), (0, 9), b"bench"
IN_FLIGHT_MAX = 100
WARM = 20
"""Pairs before the first portion of a case."""


class Passes:
    """Treatment of a request that is forwarded with its response."""

    rewrite = None


class Quiet:
    """Receiver of long iterations, which valgrind makes."""

    ended = took = staticmethod(abs)


class Unexpected:
    """Callbacks of a way: nothing may need Python."""

    def walked(self, *about: object) -> None:
        raise AssertionError(about)

    ended = sent = failed = walked


class Requests(Unexpected, RequestWalk):
    """Client to broker."""


class Responses(Unexpected, ResponseWalk):
    """Broker to client."""


def frame(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def fetch(number: int) -> bytes:
    return frame(struct.pack(">hhih", *FETCH, number, len(CLIENT_ID)), CLIENT_ID, bytes(60))


def produce(size: int, number: int) -> bytes:
    """Build a Produce v9 with acks=-1."""
    head = struct.pack(">hhih", *PRODUCE, number, len(CLIENT_ID))
    return frame(head, CLIENT_ID, b"\0\0", struct.pack(">hi", -1, 5000), b"\x02\x06bench\x02", bytes(size))


CASES: dict[str, Callable[[int], bytes]] = {
    "fetch": fetch,
    "produce-150": lambda number: produce(150, number),
    "produce-64k": lambda number: produce(65_000, number),
}


class Pipe:
    """A client and a broker with the pump between them."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        ready: dict[int, Callable[..., object]] = {}
        pump = new_pump(self._epoll, memoryview(bytearray(BUFFER_BYTES)), ready, Quiet())  # type: ignore[arg-type]
        assert pump is not None, "the pump is not built in this checkout"
        self._pump = pump
        self._client, inner = socket.socketpair()
        self._broker, outer = socket.socketpair()
        for sock in (self._client, inner, self._broker, outer):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        plain = Passes()
        table = Table({struct.pack(">hh", *FETCH): plain}, {struct.pack(">hh", *PRODUCE): AcksMatch(9, plain)}, SILENT)
        pending = Pending()
        requests, responses = Requests(pending, table, FRAME_MAX), Responses(pending, FRAME_MAX)
        requests.in_flight_max = IN_FLIGHT_MAX
        self._inner = (inner, outer)
        for sock, walk, other in ((inner, requests, outer), (outer, responses, inner)):
            sock.setblocking(False)
            self._epoll.register(sock.fileno(), READ)
            pump.connect(sock.fileno(), walk, other.fileno(), None, None)
            ready[sock.fileno()] = walk.walked
            walk.flows = True

    def pairs(self, make: Callable[[int], bytes], count: int) -> None:
        """Requests with their responses, one at a time."""
        for number in range(count):
            self._pass(self._client, self._broker, make(number))
            self._pass(self._broker, self._client, frame(struct.pack(">i", number), bytes(40)))

    def _pass(self, sender: socket.socket, receiver: socket.socket, data: bytes) -> None:
        sender.sendall(data)
        self._pump.iterate(0.0)
        missing = len(data)
        while missing:
            missing -= len(receiver.recv(missing))


def control(*arguments: str) -> None:
    command = ["callgrind_control", *arguments, str(os.getpid())]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(pairs: int, portions: int) -> None:
    pipe = Pipe()
    control("-i", "on")
    for name, make in CASES.items():
        pipe.pairs(make, WARM)
        for _ in range(portions):
            control("-z")
            pipe.pairs(make, pairs)
            control("-d", name)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
