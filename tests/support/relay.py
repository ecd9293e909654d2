"""A TCP relay that behaves like a bad network: cuts, stalls, trickles, and loses responses in flight."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from kafka_share_proxy.localkafka.addresses import HOST

CHUNK = 1 << 16
DROP_S = 0.005
"""Between the pieces of data that trickles."""
PRODUCE = 0


@dataclass
class Relay:
    """Relays every connection to one target. Its settings also apply to later connections."""

    target: str
    port: int = 0
    stalled: bool = False
    """True if nothing is forwarded, in either direction; bytes are kept, as by a network that recovers."""
    trickle: int = CHUNK
    """Bytes that pass at a time, with a pause between."""
    losing_responses: bool = False
    """True if requests are forwarded, responses are not: the connection is cut at the first response."""
    lost_responses: int = 0
    response_bytes: int = 0
    """Passed on to clients so far."""
    refusing: bool = False
    """True if new connections are cut immediately."""
    _listener: socket.socket | None = None
    _pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)
    _moves: threading.Condition = field(default_factory=threading.Condition)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Relay:
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self.go_on()
        self.cut()

    def cut(self) -> None:
        """End every connection."""
        pairs, self._pairs = self._pairs, []
        for sock in (sock for pair in pairs for sock in pair):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Forward nothing from now on."""
        with self._moves:
            self.stalled = True

    def lose_responses(self) -> None:
        """Forward requests from now on, and lose their responses."""
        self.losing_responses = True

    def go_on(self) -> None:
        """A good network again."""
        with self._moves:
            self.stalled = self.losing_responses = self.refusing = False
            self.trickle = CHUNK
            self._moves.notify_all()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            for _ in range(100_000):
                client = listener.accept()[0]
                if self.refusing:
                    client.close()
                    continue
                host, _, port = self.target.rpartition(":")
                try:
                    server = socket.create_connection((host, int(port)))
                except OSError:  # the target is down for now
                    client.close()
                    continue
                self._pairs.append((client, server))
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(server, client, True), daemon=True)
        back.start()
        self._pump(client, server, False)
        back.join()
        client.close()
        server.close()

    def _send(self, sink: socket.socket, data: bytes) -> None:
        sent = 0
        while sent < len(data):
            piece = data[sent : sent + self.trickle]
            sink.sendall(piece)
            sent += len(piece)
            if sent < len(data):
                time.sleep(DROP_S)

    def _pump(self, source: socket.socket, sink: socket.socket, is_response: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                with self._moves:
                    self._moves.wait_for(lambda: not self.stalled)
                if is_response and self.losing_responses:
                    self.lost_responses += 1
                    break
                self.response_bytes += len(data) if is_response else 0
                self._send(sink, data)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
