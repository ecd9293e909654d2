"""Attacks on a TLS port by clients without credentials: unfinished handshakes, tiny records, a flood of connections.

    .venv/bin/python -m tests.support.tls_attack HOST:PORT --kind hello --connections 76000 --sockets 400

runs one of them for as long as it takes and prints a line per second: connections made, and with `--pid` the resident
memory of the proxy. `tests/adversity/test_tls_attacks.py` runs all of them for seconds. Loopback only.
"""

from __future__ import annotations

import argparse
import select
import selectors
import socket
import ssl
import struct
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from kafka_share_proxy.wire.codec.primitives import uvarint

from tests.support.memory import rss_mib

HOLD_S = 0.2
"""Seconds after which a `hello` connection is closed, whether or not the server has responded."""
RESET = struct.pack("ii", 1, 0)
GARBAGE = b"GET / HTTP/1.1\r\nHost: proxy\r\n\r\n" + bytes(range(256))
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions v0, without a client id."""
LONG_NAME = 16_000
LARGE = struct.pack(">hhih", 18, 3, 1, -1) + b"\0" + uvarint(LONG_NAME + 1) + b"x" * LONG_NAME + b"\x021\0"
REQUESTS = {"small": API_VERSIONS * 200, "large": struct.pack(">i", len(LARGE)) + LARGE}
"""Requests of which every byte is sent in a separate TLS record: pipelined small ones, or a large ApiVersions v3."""


def client_hello() -> bytes:
    """Return the first flight of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = client_hello()
KINDS: dict[str, bytes] = {
    "hello": HELLO,
    "half": HELLO[: len(HELLO) // 2],
    "silence": HELLO,
    "garbage": GARBAGE,
    "reset": HELLO,
    "connect": b"",
}
"""Bytes that a connection sends, by the kind of the attack. `hello` closes soon, `silence` keeps the connection until
its socket is needed, `reset` ends with RST immediately, `connect` sends nothing and closes immediately."""
AT_ONCE = {"reset", "connect"}


@dataclass
class Flood:
    """Many connections from one thread, of which at most `sockets` are open."""

    address: tuple[str, int]
    kind: str
    sockets: int = 400
    per_second: float = float("inf")
    source: str = "127.0.0.1"
    connections: int = 0
    """Connections made."""
    refused: int = 0
    """Connections that the proxy closed first."""
    ended: threading.Event = field(default_factory=threading.Event)
    _open: OrderedDict[socket.socket, float] = field(default_factory=OrderedDict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def run(self, seconds: float = float("inf"), connections: float = float("inf")) -> None:
        """Attack until the time is over, this many connections were made, or `ended` is set."""
        began = time.monotonic()
        try:
            while not self.ended.is_set() and self.connections < connections:
                now = time.monotonic()
                if now > began + seconds:
                    break
                while len(self._open) >= self.sockets:
                    self._close(next(iter(self._open)))
                if self.connections < (now - began) * self.per_second:
                    self._begin()
                else:
                    time.sleep(0.001)
                self._check()
        finally:
            for sock in list(self._open):
                self._close(sock)
            self._selector.close()

    def _begin(self) -> None:
        self.connections += 1
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self.source, 0))
        sock.connect_ex(self.address)
        self._open[sock] = time.monotonic()
        self._selector.register(sock, selectors.EVENT_WRITE)

    def _check(self) -> None:
        for key, mask in self._selector.select(0):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            try:
                if mask & selectors.EVENT_WRITE:
                    self._connected(sock)
                elif not sock.recv(1 << 16):
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                self.refused += 1
                self._close(sock)
        if self.kind == "hello":
            now = time.monotonic()
            while self._open and next(iter(self._open.values())) < now - HOLD_S:
                self._close(next(iter(self._open)))

    def _connected(self, sock: socket.socket) -> None:
        if sent := KINDS[self.kind]:
            sock.send(sent)
        if self.kind in AT_ONCE:
            if self.kind == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._close(sock)
        else:
            self._selector.modify(sock, selectors.EVENT_READ)

    def _close(self, sock: socket.socket) -> None:
        if self._open.pop(sock, None) is not None:
            self._selector.unregister(sock)
            sock.close()


@dataclass
class TinyRecords:
    """TLS clients that send requests with one byte in each record, and read the responses."""

    address: tuple[str, int]
    requests: str = "small"
    clients: int = 2
    records: int = 0
    """Records sent."""
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self, seconds: float = float("inf")) -> None:
        """Attack until the time is over, or `ended` is set."""
        end = time.monotonic() + seconds
        clients = [TlsClient(self.address) for _ in range(self.clients)]
        try:
            while not self.ended.is_set() and time.monotonic() < end:
                for client in clients:
                    self.records += client.send_in_tiny_records(REQUESTS[self.requests])
        except OSError:
            pass
        finally:
            for client in clients:
                client.close()


class TlsClient:
    """One established TLS connection, written to without waiting for responses. Certificates are not verified."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 20.0, source: str = "127.0.0.1") -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._socket = socket.create_connection(address, timeout_s, (source, 0))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
            self._until_done(self._object.do_handshake)
        except BaseException:
            self.close()
            raise
        self._flush()

    def send_request(self) -> bytes:
        """Send ApiVersions v0 and return its response."""
        self._object.write(API_VERSIONS)
        self._flush()
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def send_in_tiny_records(self, data: bytes) -> int:
        """Send these bytes, one in each record, and drop what has come; return how many records these were."""
        for byte in data:
            self._object.write(bytes((byte,)))
        self._flush()
        while select.select([self._socket], [], [], 0)[0]:
            if not self._socket.recv(1 << 18):
                raise ConnectionResetError("the proxy closed the connection")
        return len(data)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self._until_done(partial(self._object.read, count - len(data)))
        return data

    def _until_done(self, step: Callable[[], bytes | None]) -> bytes:
        while True:
            try:
                return step() or b""
            except ssl.SSLWantReadError:
                self._flush()
                received = self._socket.recv(1 << 16)
                if not received:
                    raise ConnectionResetError("the proxy closed the connection") from None
                self._incoming.write(received)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())


def main(arguments: list[str]) -> None:
    """Run one attack and print how it goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--kind", choices=[*KINDS, *REQUESTS], default="hello")
    parser.add_argument("--connections", type=float, default=float("inf"))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--sockets", type=int, default=400)
    parser.add_argument("--per-second", type=float, default=float("inf"))
    parser.add_argument("--source", default="127.0.0.1")
    parser.add_argument("--pid", type=int)
    options = parser.parse_args(arguments)
    host, _, port = options.address.rpartition(":")
    address = (host, int(port))
    attack = (
        TinyRecords(address, options.kind)
        if options.kind in REQUESTS
        else Flood(address, options.kind, options.sockets, options.per_second, options.source)
    )
    limits = {} if isinstance(attack, TinyRecords) else {"connections": options.connections}
    thread = threading.Thread(target=attack.run, args=(options.seconds,), kwargs=limits)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(1.0)
            attempts = attack.records if isinstance(attack, TinyRecords) else attack.connections
            print(attempts, f"{rss_mib(options.pid):.0f} MiB" if options.pid else "", file=sys.stderr)
    finally:
        attack.ended.set()
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1:])
