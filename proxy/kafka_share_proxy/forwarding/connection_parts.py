"""Interfaces between the parts of a client connection that several parts need.

Each part receives its connection and uses only the members of its interface. An interface that only one part needs is
in that part's own file. No part imports `connection` or `data_plane`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kafka_share_proxy.brokers.dialling import Dial, Dialled
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.connection_state import ClientState, Progress
from kafka_share_proxy.forwarding.dispatch.routes import Context, Routes
from kafka_share_proxy.forwarding.held_bytes import HeldBytes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.memory_budget import GatherBudget, ResponseBudget
from kafka_share_proxy.forwarding.peer_socket import PeerSocket
from kafka_share_proxy.forwarding.walk.client_requests import Passing
from kafka_share_proxy.forwarding.walk.walking import RequestWalk, ResponseWalk
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.slices import Slices
from kafka_share_proxy.loop.transports import Transport
from kafka_share_proxy.wire.values import Address

Query = tuple[int, int, bytes]
"""API key, version and body of a request."""


class ListenedPort(Protocol):
    """Data that all connections of one listener share."""

    @property
    def node_id(self) -> int:
        """Node id of the listener's broker. UNKNOWN_NODE for the bootstrap listener."""

    @property
    def targets(self) -> Callable[[], Sequence[Address]]:
        """Function that returns the upstream addresses. Connections go to the first one that accepts."""

    @property
    def context(self) -> Context:
        """Context for response rewriters."""


class EndedConnection(Protocol):
    """Data of a connection that has ended."""

    @property
    def id(self) -> int:
        """Id that is unique in this process."""

    @property
    def node_id(self) -> int:
        """See brokers.interfaces.Connection."""

    @property
    def client_host(self) -> str:
        """Client's address without port."""

    @property
    def requests(self) -> RequestWalk:
        """Walk over the requests, with the bytes forwarded to the broker."""

    @property
    def responses(self) -> ResponseWalk:
        """Walk over the responses, with the bytes forwarded to the client."""


class SharedByConnections(Protocol):
    """Data plane: the state that all connections share."""

    reactor: Reactor
    limits: Limits
    notes: Notes
    routes: Routes
    passing: Passing
    """Requests that are forwarded without further inspection, by `routes`."""
    slices: Slices
    budget: ResponseBudget
    gathered: GatherBudget
    introduction: Query | None
    """Request that brokers serve for known clients only. None: every client counts as known."""
    keep_alive: Callable[[Connection], Query | None]
    """Function that returns a request to keep an upstream connection from being closed as idle, or None."""
    node_at: Callable[[Address | None], int]
    """Function that returns the broker that advertises this address. UNKNOWN_NODE if none does or the address is None.
    """
    served: Callable[[int, float], None]
    """Function called after each locally served request with its API key and the duration in seconds."""
    dial: Dial

    def next_id(self) -> int:
        """Return a number that no other connection of this process has."""

    def upstream_transport(self, dialled: Dialled) -> Transport:
        """Return the transport of a new upstream connection."""

    def count_local_response(self) -> None:
        """Count a local response."""

    def hold(self, held: HeldBytes, change: int) -> None:
        """See held_bytes.Account."""

    def linger(self, peer: PeerSocket, response_bytes: int = 0) -> None:
        """Send the peer's waiting bytes, let it disconnect, then close. `response_bytes` then leave the budget."""

    def forget(self, connection: EndedConnection, event: str, context: Mapping[str, Any]) -> None:
        """Remove and log a connection that has ended."""


class PartOwner(Protocol):
    """Connection as each of its parts sees it."""

    @property
    def plane(self) -> SharedByConnections:
        """State that all connections share."""

    @property
    def state(self) -> Progress[ClientState]:
        """State of the client's half. The part that causes a change calls `move`."""

    @property
    def closed(self) -> bool:
        """True if the connection has ended."""

    @property
    def held(self) -> HeldBytes:
        """Share of this connection in the bytes that all connections keep."""

    def describe(self) -> dict[str, object]:
        """Return fields for log lines about this connection."""

    def failed(self, error: Exception) -> None:
        """See CallbackOwner."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call at the end of this loop iteration, on behalf of this connection."""

    def update(self) -> None:
        """Send held data, start waiting requests and set the awaited events, after anything outside the fast path."""
