"""A socket of a connection, and the bytes that its peer has not accepted yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_share_proxy.loop import faults
from kafka_share_proxy.loop.interfaces import Data, Transport
from kafka_share_proxy.loop.polling import ERROR, HANGUP, READ, WRITE
from kafka_share_proxy.wire.codec.frames import Pieces

PIECES_MAX = 1024
"""Maximum number of pieces in one call on Linux, BSD and macOS (IOV_MAX)."""


class PeerSocket:
    """Socket to a client or a broker. Without a transport while the broker is being dialled."""

    __slots__ = ("_send", "_sendmsg", "_waiting", "has_unsent", "progress", "transport", "waits_for")

    def __init__(self, transport: Transport | None = None) -> None:
        self.transport: Transport | None = None
        self._waiting: list[memoryview] = []
        self.has_unsent = False
        self.progress = 0
        """Grows whenever the peer accepts bytes that had to wait."""
        self.waits_for = 0
        self._send: Callable[[Data], int] | None = None
        self._sendmsg: Callable[[Sequence[Data]], int] | None = None
        if transport is not None:
            self.open(transport)

    def open(self, transport: Transport) -> None:
        self.transport = transport
        self._send = transport.send
        self._sendmsg = transport.sendmsg

    @property
    def is_open(self) -> bool:
        return self.transport is not None

    @property
    def unsent(self) -> int:
        return sum(map(len, self._waiting))

    def write(self, data: Data | Pieces) -> None:
        """Send, and keep a copy of the rest. Raises OSError if the peer has gone."""
        if isinstance(data, Pieces):
            data = self._push_pieces(data)
            if not data:
                return
        if not self._waiting and self._send is not None:
            sent = self._push(data)
            if sent == len(data):
                return
            data = memoryview(data)[sent:]
        self.keep(data)

    def keep(self, data: Data) -> None:
        self._waiting.append(memoryview(bytes(data)))
        self.has_unsent = True

    def flush(self) -> None:
        """Raises OSError if the peer has gone."""
        while self._waiting:
            first = self._waiting[0]
            sent = self._push(first)
            self.progress += sent
            if sent < len(first):
                self._waiting[0] = first[sent:]
                return
            del self._waiting[0]
        self.has_unsent = False

    def want(self, mask: int) -> None:
        self.waits_for = mask
        if self.transport is not None:
            self.transport.want(mask)

    def discard(self) -> None:
        self._waiting.clear()
        self.has_unsent = False

    def close(self) -> None:
        self.discard()
        self._send = self._sendmsg = None
        if self.transport is not None:
            self.transport.close()

    def _push_pieces(self, data: Pieces) -> Data:
        """Return the unsent rest."""
        if self._waiting or self._sendmsg is None:
            return bytes(data)
        try:
            sent = self._sendmsg(data.parts[:PIECES_MAX])
        except BlockingIOError:
            sent = 0
        return b"" if sent == len(data) else data.rest(sent)

    def _push(self, data: Data) -> int:
        """Return the number of bytes accepted. Repeats because TLS may accept fewer bytes than possible."""
        send, size, total = self._send, len(data), 0
        assert send is not None  # noqa: S101  # callers have looked
        try:
            while total < size:
                total += send(memoryview(data)[total:] if total else data)
        except BlockingIOError:
            pass
        return total


FAREWELL_S = 1.0
"""Seconds for a peer to disconnect after the end was signalled to it."""


class Linger:
    """Sender of the remaining bytes to a peer whose other half has gone. Closes after the peer, or when its time is up:
    closing while the kernel holds unread bytes resets the connection, which discards what the peer has not read yet
    (RFC 1122).
    """

    __slots__ = ("_clock", "_ended", "_has_sent_eof", "_peer", "deadline")

    def __init__(
        self, peer: PeerSocket, deadline: float, clock: Callable[[], float], ended: Callable[[Linger], None]
    ) -> None:
        self._peer = peer
        self._clock = clock
        self._ended: Callable[[Linger], None] | None = ended
        self._has_sent_eof = False
        self.deadline = deadline
        """Time (by `clock`) at which the owner has to call `end`."""

    @property
    def has_unsent(self) -> bool:
        return self._peer.has_unsent

    def proceed(self) -> None:
        transport = self._peer.transport
        assert transport is not None  # noqa: S101  # callers have looked
        transport.want(0)
        transport.attach(self.ready, WRITE)
        if not self._peer.has_unsent:
            faults.guard(self, self._send_eof)

    def ready(self, mask: int) -> None:
        transport = self._peer.transport
        if mask & (ERROR | HANGUP) or transport is None:
            self.end()
        elif self._has_sent_eof:
            if transport.discard_received():
                self.end()
        else:
            self._peer.flush()
            if not self._peer.has_unsent:
                self._send_eof()

    def failed(self, error: Exception) -> None:
        del error  # the peer has gone; the error is of no use
        self.end()

    def end(self) -> None:
        self._peer.close()
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended(self)

    def _send_eof(self) -> None:
        transport = self._peer.transport
        assert transport is not None  # noqa: S101  # it is open until `end`
        self._has_sent_eof = True
        self.deadline = min(self.deadline, self._clock() + FAREWELL_S)
        transport.send_eof()
        transport.want(READ)
