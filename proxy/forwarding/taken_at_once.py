"""A request that is answered here without a task (forwarding/README.md rule 39): one connection's part of it.

The connection is SERVING from the moment the request is taken until the answer goes out, so nothing behind it is looked
at. What it waits for on its sockets stays as it is: bytes that come meanwhile are reported once, and mute the socket.

What goes on to the broker is sent when the turn ends, one right behind the other: a coordinator of 4.3 writes what
comes together with one append to its log.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol

from proxy.brokers.interfaces import Connection
from proxy.forwarding.connection_parts import PartOwner
from proxy.forwarding.connection_state import ClientState
from proxy.forwarding.interfaces import AwaitedAnswer
from proxy.forwarding.peer_socket import PeerSocket
from proxy.forwarding.sasl import Sasl
from proxy.forwarding.walking import Pending
from proxy.loop.interfaces import Request
from proxy.loop.polling import READ
from proxy.loop.transports import Data

_PASSING, _SERVING = ClientState.PASSING, ClientState.SERVING
"""Looked up with every request, which is slow in an enum (CPython 3.11)."""


class Answers(Protocol):
    """The other direction of the connection."""

    bytes: int

    @property
    def owes_client(self) -> bool:
        """Whether an answer to the client is only half here."""


class Requests(Protocol):
    """This direction of the connection."""

    flows: bool
    """Nothing is in the way: the fast path may be taken."""


class TakesAtOnce(PartOwner, Connection, Protocol):
    """The connection whose request is taken."""

    is_known: bool
    """Whether the broker has answered a request that it answers to clients it knows only."""
    client: PeerSocket
    broker: PeerSocket | None

    @property
    def answers(self) -> Answers:
        """What is read from the broker."""

    @property
    def pending(self) -> Pending:
        """Requests that wait for their answer."""

    @property
    def sasl(self) -> Sasl:
        """How far the client has come with SASL."""

    def to_broker(self, data: Data) -> None:
        """Pass on, or keep until there is a connection that takes it."""

    def to_client(self, data: Data) -> None:
        """Pass on, or keep until the client takes it."""


class TakenAtOnce:
    """See interfaces.AtOnceConnection; made when the first such request comes."""

    __slots__ = ("_begun", "_requests", "_taken", "owner")

    def __init__(self, connection: TakesAtOnce, requests: Requests) -> None:
        self.owner = connection
        self._requests = requests
        self._taken: Request | None = None
        self._begun = 0.0

    @property
    def may_take(self) -> bool:
        """Whether a request that has just come, alone, while the fast path is open, has to wait for nothing."""
        owner = self.owner
        if owner.pending or not owner.is_known or owner.state.now is not _PASSING:
            return False
        if owner.answers.owes_client or owner.client.has_unsent:
            return False
        return owner.sasl.may_ask(owner.plane.reactor.now())

    def begin_at_once(self, request: Request) -> None:
        """See interfaces.AtOnceConnection."""
        owner = self.owner
        owner.sasl.ordinary_request()
        owner.state.move(_SERVING)
        self._taken, self._begun = request, time.perf_counter()

    def to_broker_at_once(self, correlation_id: int, expected: AwaitedAnswer, frame: bytes) -> None:
        """See interfaces.AtOnceConnection."""
        self.owner.pending.append((correlation_id, expected))
        self.owner.call_soon(partial(self._send, frame))

    def _send(self, frame: bytes) -> None:
        owner = self.owner
        if owner.state.now is not _SERVING:
            return  # it has ended, and whoever waits for the answer was told
        owner.to_broker(frame)
        broker = owner.broker
        if broker is not None and broker.has_unsent:
            owner.update()

    def answer_at_once(self, frame: bytes) -> None:
        """See interfaces.AtOnceConnection."""
        owner, taken, self._taken = self.owner, self._taken, None
        if taken is None or owner.state.now is not _SERVING:
            return
        owner.answers.bytes += len(frame)
        owner.to_client(frame)
        owner.plane.served(taken.key, time.perf_counter() - self._begun)
        owner.plane.count_local_answer()
        if owner.state.now is _SERVING:
            owner.state.move(_PASSING)
            self._go_on()

    def _go_on(self) -> None:
        """Behind the answer: mostly nothing has come between.

        Whatever has (bytes of the client, a question of ours, a drain) has changed what the client's socket waits for.
        """
        owner = self.owner
        if owner.client.waits_for == READ and not owner.client.has_unsent:
            self._requests.flows = True
        else:
            owner.update()
