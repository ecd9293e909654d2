"""Clients that pipeline small requests for some seconds: PORT CONNECTIONS SECONDS < REQUEST

Runs as a separate process, so that its work does not delay the client whose waits are measured. Discards responses,
reopens connections that are closed, and prints the number of requests sent. `NUMBER` in the request is a different
number in each copy.
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

BLOCK_BYTES = 2 << 20
"""Requests that differ, about; then they are repeated."""
SEND_BYTES = 1 << 20
NUMBER = b"00000000"
RECEIVE_BYTES = 1 << 18


class Pipeliner:
    """One connection."""

    def __init__(self, port: int, block: bytes, selector: selectors.BaseSelector) -> None:
        self._port, self._block, self._selector = port, memoryview(block), selector
        self.sent = 0
        """Bytes."""
        self._open()

    def _open(self) -> None:
        self._at = 0
        self._socket = socket.create_connection(("127.0.0.1", self._port), 10)
        self._socket.setblocking(False)
        self._selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def close(self) -> None:
        self._selector.unregister(self._socket)
        self._socket.close()

    def ready(self, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ and not self._socket.recv(RECEIVE_BYTES):
                raise ConnectionResetError
            if mask & selectors.EVENT_WRITE:
                count = self._socket.send(self._block[self._at : self._at + SEND_BYTES])
                self.sent += count
                self._at = (self._at + count) % len(self._block)
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            self._open()


def play(port: int, connections: int, seconds: float, request: bytes) -> int:
    """Return how many requests were sent."""
    block = b"".join(request.replace(NUMBER, b"%08d" % number) for number in range(BLOCK_BYTES // len(request)))
    with selectors.DefaultSelector() as selector:
        clients = [Pipeliner(port, block, selector) for _ in range(connections)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, mask in selector.select(0.1):
                with suppress(KeyError):
                    key.data.ready(mask)
        for client in clients:
            client.close()
        return sum(client.sent for client in clients) // len(request)


@contextmanager
def pipelining(port: int, connections: int, seconds: float, request: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """Run this file concurrently with the caller; the process ends by itself, and with the block at the latest."""
    command = [sys.executable, __file__, str(port), str(connections), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(request)
        child.stdin.close()
        try:
            yield child
        finally:
            child.kill()


if __name__ == "__main__":
    print(play(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.stdin.buffer.read()))
