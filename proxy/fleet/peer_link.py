"""One link between two proxies, driven by the loop: a socket, the protocol over it, and signs of life.

A link ends as a whole: when the socket does, when the other side is silent for `SILENT_S`, when it takes what is said
too slowly, when it does not belong to the fleet. Whoever uses the link is told so once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from proxy.fleet.peer_protocol import PeerProtocol
from proxy.loop.interfaces import Notes
from proxy.loop.polling import READ, WRITE
from proxy.loop.promise import Callback
from proxy.loop.reactor import Reactor, ReactorTimer
from proxy.loop.transports import Transport
from proxy.wire import messages
from proxy.wire.errors import ProxyError
from proxy.wire.messages import Message
from proxy.wire.values import MIB

PING_S = 0.5
"""So often each side says something."""
SILENT_S = 3.0
"""A side that says nothing for so long is lost: below the session timeout of the group of proxies."""
HANDSHAKE_S = 3.0
UNSENT_BYTES_MAX = 128 * MIB
"""What may wait for the other side to take it."""
READS_MAX = 16
"""Reads in one call, so that a busy link does not hold up others."""


class User(Protocol):
    """What is done with an established link: `peer_edge.PeerEdge` or `peer_owner.PeerOwner`."""

    def receive(self, message: Message) -> None:
        """A message came. What it raises ends the link."""

    def lost(self, reason: str) -> None:
        """The link has ended."""


class PeerLink:
    """An owner of its socket in the sense of `faults`, and of callbacks in that of `loop.promise`."""

    def __init__(
        self,
        reactor: Reactor,
        transport: Transport,
        protocol: PeerProtocol,
        notes: Notes,
        generation: Callable[[], int],
        established: Callable[[PeerLink], User],
        ended: Callable[[PeerLink], None],
    ) -> None:
        """`established` gives the user once the other side has proven itself; `ended` is called once in any case."""
        self.protocol = protocol
        self.user: User | None = None
        self.closed = False
        self._reactor = reactor
        self._transport = transport
        self._notes = notes
        self._generation = generation
        self._established = established
        self._ended = ended
        self._unsent = bytearray()
        self._is_planned = False
        self._heard_at = reactor.now()
        self._deadline = reactor.now() + HANDSHAKE_S
        self._alarm: ReactorTimer = reactor.call_at(reactor.now() + PING_S, self._ring)
        transport.attach(self._on_event, READ)
        self._say(protocol.outgoing())

    def send(self, message: Message) -> None:
        """Say something; on a link that has ended it is lost."""
        if not self.closed:
            self._say(self.protocol.send(message))

    def close(self, reason: str) -> None:
        """End it; harmless twice."""
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
        """See CallbackOwner."""
        self._reactor.call_on_behalf_of(self, callback)

    def failed(self, error: Exception) -> None:
        """See CallbackOwner."""
        if not isinstance(error, ProxyError | OSError):
            self._notes("callback-failed", error=error)
        self.close(str(error) or type(error).__name__)

    # The loop

    def _say(self, data: bytes) -> None:
        """All that is said in one turn goes out at its end, in one piece."""
        if not data:
            return
        self._unsent += data
        if len(self._unsent) > UNSENT_BYTES_MAX:
            self.close("the other proxy does not take what it is told")
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
                    taken = self._transport.send(waiting)
            except BlockingIOError:
                break
            del self._unsent[:taken]
        self._transport.want(READ | WRITE if self._unsent else READ)

    def _on_event(self, mask: int) -> None:
        if mask & WRITE:
            self._flush()
        if mask & ~WRITE and not self.closed:
            self._receive()

    def _receive(self) -> None:
        buffer = self._reactor.buffer
        for _ in range(READS_MAX):
            try:
                size = self._transport.recv_into(buffer)
            except BlockingIOError:
                return
            if not size:
                self.close("the other proxy closed the link")
                return
            self._heard_at = self._reactor.now()
            for message in self.protocol.receive_data(bytes(buffer[:size])):
                if self.user is None:
                    self._begin()
                if self.user is not None:
                    self.user.receive(message)
                if self.closed:
                    return
            if self.protocol.is_established and self.user is None:
                self._begin()
            self._say(self.protocol.outgoing())
            if size < len(buffer):
                return

    def _begin(self) -> None:
        self._say(self.protocol.outgoing())
        self.user = self._established(self)
        self._notes("peer-linked", peer=self.protocol.peer)

    def _ring(self) -> None:
        now = self._reactor.now()
        if self.user is None and now >= self._deadline:
            self.close("no proxy of this fleet answers there")
        elif now - self._heard_at >= SILENT_S:
            self.close(f"silent for {SILENT_S:g} s")
        else:
            if self.protocol.is_established:
                self.send(messages.PeerPing(generation=self._generation()))
            self._alarm = self._reactor.call_at(now + PING_S, self._ring)
