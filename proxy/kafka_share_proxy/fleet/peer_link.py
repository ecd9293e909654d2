"""Link between two proxies, driven by the loop: a socket, the protocol over it, and keep-alives.

A link ends as a whole (fleet/README.md rule 16).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafka_share_proxy.fleet.peer_protocol import PeerProtocol
from kafka_share_proxy.loop.interfaces import Notes, Transport
from kafka_share_proxy.loop.polling import READ, WRITE
from kafka_share_proxy.loop.promise import Callback
from kafka_share_proxy.loop.reactor import Reactor, ReactorTimer
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import MIB

CLOSED_BY_PEER = "the other proxy closed the link"
"""Reason for the end of a link, also if a message is sent before the end is read."""
PING_S = 0.5
"""Seconds between two pings of each side."""
SILENT_S = 3.0
"""Seconds of silence after which a side is lost. Below the session timeout of the group of proxies."""
HANDSHAKE_S = 3.0
UNSENT_BYTES_MAX = 128 * MIB
"""Maximum number of bytes that wait to be sent."""
READS_MAX = 16
"""Maximum number of reads in one call, so that a busy link does not delay others."""


def next_common(now: float, period_s: float) -> float:
    """Return the next time that is a multiple of the period: the same for all links, and for all workers of a machine.

    An idle worker then wakes up for all of them together.
    """
    return (now // period_s + 1) * period_s


class LinkUser(Protocol):
    """Receiver of the messages of an established link: `edge.PeerEdge` or `owner.PeerOwner`."""

    def receive(self, message: Message) -> None:
        """Process a message. An exception ends the link."""

    def lost(self, reason: str) -> None:
        """End everything that depends on the link, which has ended."""


class PeerLink:
    """Link to another proxy. Owns its socket in the sense of `faults`, and callbacks in that of `loop.promise`."""

    def __init__(
        self,
        reactor: Reactor,
        transport: Transport,
        protocol: PeerProtocol,
        notes: Notes,
        generation: Callable[[], int],
        established: Callable[[PeerLink], LinkUser],
        ended: Callable[[PeerLink], None],
        on_rejoin: Callable[[], None],
    ) -> None:
        """`established` returns the user once the other side has proven itself; `ended` is called once in any case.

        `on_rejoin`: called when the other side rejoins the group of proxies.
        """
        self.protocol = protocol
        self.user: LinkUser | None = None
        self.closed = False
        self._reactor = reactor
        self._transport = transport
        self._notes = notes
        self._generation = generation
        self._established = established
        self._ended = ended
        self._on_rejoin = on_rejoin
        self._unsent = bytearray()
        self._is_planned = False
        self._received_at = reactor.now()
        self._deadline = reactor.now() + HANDSHAKE_S
        self._reported: set[int] = set()
        """Kinds of skipped messages that were reported."""
        self._alarm: ReactorTimer = reactor.call_at(next_common(reactor.now(), PING_S), self._ring)
        transport.attach(self._on_event, READ)
        self._queue(protocol.outgoing())

    def send(self, message: Message) -> None:
        """Send unless the link has ended. For a kind that the other side does not know `user` gets PeerUnknown."""
        if self.closed:
            return
        kind = self.protocol.kind_of(message)
        if kind < self.protocol.peer_kinds:
            self._queue(self.protocol.send(message))
        elif self.user is not None:
            unknown = messages.PeerUnknown(kind=kind, id=getattr(message, "id", 0))
            self._reactor.call_soon(self, partial(self.user.receive, unknown))

    def ping(self, *, rejoins: bool = False) -> None:
        """Send a sign of life. `rejoins`: see PeerPing."""
        if self.protocol.is_established:
            self.send(messages.PeerPing(generation=self._generation(), rejoins=rejoins))

    def close(self, reason: str) -> None:
        """End the link as a whole (fleet/README.md rule 16)."""
        if self.closed:
            return
        self.closed = True
        self._transport.close()
        self._alarm.cancel()
        self._unsent.clear()
        if self.user is not None:
            self._notes("peer-lost", peer=self.protocol.peer, reason=reason)
            self.user.lost(reason)
        else:
            self._notes("peer-refused", peer=self.protocol.peer, reason=reason)
        self._ended(self)

    def call_soon(self, callback: Callback) -> None:
        self._reactor.call_on_behalf_of(self, callback)

    def failed(self, error: Exception) -> None:
        if not isinstance(error, ProxyError | OSError):
            self._notes("callback-failed", error=error)
        self.close(str(error) or type(error).__name__)

    # The loop

    def _queue(self, data: bytes) -> None:
        """Queue bytes. All of one loop iteration are sent at its end, in one piece."""
        if not data:
            return
        self._unsent += data
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self.close("the other proxy does not read what is sent")
        elif not self._is_planned:
            self._is_planned = True
            self._reactor.call_soon(self, self._flush)

    def _flush(self) -> None:
        self._is_planned = False
        if self.closed:
            return
        while self._unsent:
            try:
                with memoryview(self._unsent) as waiting:
                    sent_bytes = self._transport.send(waiting)
            except BlockingIOError:
                break
            except ConnectionError:  # the end of the stream was not read yet
                self.close(CLOSED_BY_PEER)
                return
            del self._unsent[:sent_bytes]
        self._transport.want(READ | WRITE if self._unsent else READ)

    def _on_event(self, mask: int) -> None:
        if mask & WRITE:
            self._flush()
        if mask & ~WRITE and not self.closed:
            self._receive()

    def _receive(self) -> None:
        buffer = self._reactor.buffer
        for _ in range(READS_MAX):
            size = self._received_bytes(buffer)
            if not size:
                return
            self._received_at = self._reactor.now()
            for message in self.protocol.receive_data(bytes(buffer[:size])):
                if self.user is None:
                    self._begin()
                if isinstance(message, messages.PeerPing):
                    if message.rejoins:
                        self._on_rejoin()
                elif self.user is not None:
                    self.user.receive(message)
                if self.closed:
                    return
            self._report_unknown_kinds()
            if self.protocol.is_established and self.user is None:
                self._begin()
            self._queue(self.protocol.outgoing())
            if size < len(buffer):
                return

    def _received_bytes(self, buffer: memoryview) -> int:
        """Receive bytes. Return their number: 0 if there are none now, or the link has ended."""
        try:
            size = self._transport.recv_into(buffer)
        except BlockingIOError:
            return 0
        except ConnectionError:  # the other side has not read all that was sent
            size = 0
        if not size:
            self.close(CLOSED_BY_PEER)
        return size

    def _report_unknown_kinds(self) -> None:
        """Report messages of later versions that were skipped, each kind once."""
        for kind in self.protocol.unknown_kinds - self._reported:
            self._reported.add(kind)
            self._notes("peer-message-unknown", peer=self.protocol.peer, kind=kind)

    def _begin(self) -> None:
        self._queue(self.protocol.outgoing())
        self.user = self._established(self)
        self._notes("peer-linked", peer=self.protocol.peer)

    def _ring(self) -> None:
        now = self._reactor.now()
        if self.user is None and now >= self._deadline:
            self.close("no proxy of this fleet responds there")
        elif now - self._received_at >= SILENT_S:
            self.close(f"silent for {SILENT_S:g} s")
        else:
            self.ping()
            self._alarm = self._reactor.call_at(next_common(now, PING_S), self._ring)
