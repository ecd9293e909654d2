"""What the parts of a client connection know of each other: small interfaces, here what several parts need.

A part is given its connection and reads of it only what its interface names; what one part alone needs stands in the
part's own file. No part imports `connection` or `data_plane`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from proxy.brokers.dialling import Dial, Dialled
from proxy.brokers.interfaces import Connection
from proxy.forwarding.client_requests import Passing
from proxy.forwarding.connection_state import ClientState, Progress
from proxy.forwarding.held_bytes import HeldBytes
from proxy.forwarding.memory_budget import AnswerBudget, GatherBudget
from proxy.forwarding.peer_socket import PeerSocket
from proxy.forwarding.routes import Context, Routes
from proxy.forwarding.walking import AnswerWalk, RequestWalk
from proxy.loop.interfaces import Notes
from proxy.loop.reactor import Reactor
from proxy.loop.slices import Slices
from proxy.loop.transports import Transport
from proxy.wire.values import Address, Limits

Question = tuple[int, int, bytes]
"""API key, version, request body."""


class ListenedPort(Protocol):
    """What all connections of one listener share."""

    @property
    def node_id(self) -> int:
        """The broker it stands for; UNKNOWN_NODE: bootstrap."""

    @property
    def targets(self) -> Callable[[], Sequence[Address]]:
        """Where its connections go: to the first that answers."""

    @property
    def context(self) -> Context:
        """What rewriters of answers may know."""


class EndedConnection(Protocol):
    """What is told of a connection that has ended."""

    @property
    def id(self) -> int:
        """Unique in this process."""

    @property
    def node_id(self) -> int:
        """See brokers.interfaces.Connection."""

    @property
    def client_host(self) -> str:
        """The client's address without port."""

    @property
    def requests(self) -> RequestWalk:
        """What was passed on to the broker."""

    @property
    def answers(self) -> AnswerWalk:
        """What was passed on to the client."""


class SharedByConnections(Protocol):
    """The data plane: what all connections share."""

    reactor: Reactor
    limits: Limits
    notes: Notes
    routes: Routes
    passing: Passing
    """Which requests pass without being looked at further, by `routes`."""
    slices: Slices
    budget: AnswerBudget
    gathered: GatherBudget
    introduction: Question | None
    """What brokers answer to clients they know only; None: every client is taken as known."""
    keep_alive: Callable[[Connection], Question | None]
    """What keeps an upstream connection from being closed idle."""
    node_at: Callable[[Address | None], int]
    """The broker that advertises this address; UNKNOWN_NODE where none does, or where there is no address."""
    served: Callable[[int, float], None]
    """Told the API key of each request that was answered here, and how long that took (seconds)."""
    dial: Dial

    def next_id(self) -> int:
        """A number no other connection of this process has."""

    def upstream_transport(self, dialled: Dialled) -> Transport:
        """What a connection speaks with a broker through."""

    def count_local_answer(self) -> None:
        """An answer was made here."""

    def hold(self, held: HeldBytes, change: int) -> None:
        """See held_bytes.Account."""

    def linger(self, peer: PeerSocket, answer_bytes: int = 0) -> None:
        """Send what waits for this peer, let it end, then close; `answer_bytes` leave the budget with it."""

    def forget(self, connection: EndedConnection, event: str, context: Mapping[str, Any]) -> None:
        """A connection has ended; says so."""


class PartOwner(Protocol):
    """The connection, as each of its parts sees it."""

    @property
    def plane(self) -> SharedByConnections:
        """What all connections share."""

    @property
    def state(self) -> Progress[ClientState]:
        """What becomes of the client's next bytes; the part that brings a change about moves it."""

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""

    @property
    def held(self) -> HeldBytes:
        """Its part of what all connections keep."""

    def describe(self) -> dict[str, object]:
        """For log lines about what this connection did."""

    def failed(self, error: Exception) -> None:
        """See CallbackOwner."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call at the end of this turn, on behalf of this connection."""

    def update(self) -> None:
        """After anything unusual: send what was held, start what waited, and wait for what matters now."""
