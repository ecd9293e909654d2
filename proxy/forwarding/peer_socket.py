"""One socket of a connection, and the bytes its peer has not taken yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.loop import faults
from proxy.loop.polling import ERROR, HANGUP, READ, WRITE
from proxy.loop.transports import Data, Transport
from proxy.wire.frames import Pieces

PIECES_MAX = 1024
"""Pieces in one call: what Linux, BSD and macOS take (IOV_MAX)."""


class PeerSocket:
    """Towards a client, or towards a broker; without a transport while it is being dialled.

    Memory: what waits here came from one receive (the source is not read until it is gone) or is one answer.
    """

    __slots__ = ("_send", "_sendmsg", "_waiting", "has_unsent", "progress", "transport", "waits_for")

    def __init__(self, transport: Transport | None = None) -> None:
        self.transport: Transport | None = None
        self._waiting: list[memoryview] = []
        self.has_unsent = False
        """Whether bytes wait for the peer."""
        self.progress = 0
        """Grows whenever the peer takes bytes that had to wait."""
        self.waits_for = 0
        """What `want` was told last."""
        self._send: Callable[[Data], int] | None = None
        self._sendmsg: Callable[[Sequence[Data]], int] | None = None
        if transport is not None:
            self.open(transport)

    def open(self, transport: Transport) -> None:
        """From now on there is a socket; what waits is sent by `flush`."""
        self.transport = transport
        self._send = transport.send
        self._sendmsg = transport.sendmsg

    @property
    def is_open(self) -> bool:
        """Whether there is a socket."""
        return self.transport is not None

    @property
    def unsent(self) -> int:
        """How many bytes wait for the peer."""
        return sum(map(len, self._waiting))

    def write(self, data: Data | Pieces) -> None:
        """Send, and keep a copy of what the kernel does not take.

        Raises:
            OSError: the peer has gone.
        """
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
        """Queue a copy, to be sent by `flush`."""
        self._waiting.append(memoryview(bytes(data)))
        self.has_unsent = True

    def flush(self) -> None:
        """Send what waits, as far as the peer takes it.

        Raises:
            OSError: the peer has gone.
        """
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
        """Wait for something else on the socket."""
        self.waits_for = mask
        if self.transport is not None:
            self.transport.want(mask)

    def discard(self) -> None:
        """Forget the bytes that wait to be sent."""
        self._waiting.clear()
        self.has_unsent = False

    def close(self) -> None:
        """Close the socket, if there is one."""
        self.discard()
        self._send = self._sendmsg = None
        if self.transport is not None:
            self.transport.close()

    def _push_pieces(self, data: Pieces) -> Data:
        """One call for all of it, where the transport has that; what is left."""
        if self._waiting or self._sendmsg is None:
            return bytes(data)
        try:
            sent = self._sendmsg(data.parts[:PIECES_MAX])
        except BlockingIOError:
            sent = 0
        return b"" if sent == len(data) else memoryview(bytes(data))[sent:]

    def _push(self, data: Data) -> int:
        """Bytes taken. More than one call only where the transport takes less than it could (TLS)."""
        send, size, total = self._send, len(data), 0
        assert send is not None  # noqa: S101  # callers have looked
        try:
            while total < size:
                total += send(memoryview(data)[total:] if total else data)
        except BlockingIOError:
            pass
        return total


FAREWELL_S = 1.0
"""How long a peer that was told the end may take to end as well."""


class Linger:
    """Sends the rest to a peer whose other half has gone, tells it that this was all, and closes when it has left.

    A socket that is closed while bytes of the peer stand unread in the kernel resets the connection, and a reset takes
    away what the peer has not read yet: answers, or requests without acks. So the peer ends first, or its time is up.
    Ends in any case when told to `end`.
    """

    __slots__ = ("_clock", "_ended", "_has_parted", "_peer", "deadline")

    def __init__(
        self, peer: PeerSocket, deadline: float, clock: Callable[[], float], ended: Callable[[Linger], None]
    ) -> None:
        """`ended(self)` is called once the socket is closed; `proceed` begins."""
        self._peer = peer
        self._clock = clock
        self._ended: Callable[[Linger], None] | None = ended
        self._has_parted = False
        self.deadline = deadline
        """When the owner is to call `end` (as `clock`)."""

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait for the peer."""
        return self._peer.has_unsent

    def proceed(self) -> None:
        """Begin to wait for the peer."""
        transport = self._peer.transport
        assert transport is not None  # noqa: S101  # callers have looked
        transport.want(0)
        transport.attach(self.ready, WRITE)
        if not self._peer.has_unsent:
            faults.guard(self, self._part)

    def ready(self, mask: int) -> None:
        """The peer takes more, sends something nobody wants any more, or has gone."""
        transport = self._peer.transport
        if mask & (ERROR | HANGUP) or transport is None:
            self.end()
        elif self._has_parted:
            if transport.drop():
                self.end()
        else:
            self._peer.flush()
            if not self._peer.has_unsent:
                self._part()

    def failed(self, error: Exception) -> None:
        """See faults.FaultOwner."""
        del error  # the peer has gone: there is nobody to tell
        self.end()

    def end(self) -> None:
        """Close the socket at once."""
        self._peer.close()
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended(self)

    def _part(self) -> None:
        transport = self._peer.transport
        assert transport is not None  # noqa: S101  # it is open until `end`
        self._has_parted = True
        self.deadline = min(self.deadline, self._clock() + FAREWELL_S)
        transport.part()
        transport.want(READ)
