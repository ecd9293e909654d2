"""Interfaces of a client connection that several of its parts use. No part imports `connection` or `data_plane`."""

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


class ListenedPort(Protocol):
    """Data that all connections of one listener share."""

    @property
    def node_id(self) -> int:
        """Node id of the listener's broker. UNKNOWN_NODE for the bootstrap listener."""

    @property
    def targets(self) -> Callable[[], Sequence[Address]]:
        """Function that returns the upstream addresses. Connections go to the first one that accepts."""

    @property
    def context(self) -> Context: ...


class EndedConnection(Protocol):
    """Data of a connection that has ended."""

    @property
    def id(self) -> int: ...

    @property
    def node_id(self) -> int: ...

    @property
    def client_host(self) -> str: ...

    @property
    def requests(self) -> RequestWalk:
        """Walk with the bytes forwarded to the broker."""

    @property
    def responses(self) -> ResponseWalk:
        """Walk with the bytes forwarded to the client."""


class SharedByConnections(Protocol):
    """State that all connections share: the data plane."""

    reactor: Reactor
    limits: Limits
    notes: Notes
    routes: Routes
    passing: Passing
    """Requests that `routes` forwards without inspection."""
    slices: Slices
    budget: ResponseBudget
    gathered: GatherBudget
    introduction: Query | None
    """Request that brokers serve for known clients only. None: every client counts as known."""
    keep_alive: Callable[[Connection], Query | None]
    """Function that returns a request to keep an idle upstream connection open, or None."""
    node_at: Callable[[Address | None], int]
    """Function that returns the broker that advertises an address. UNKNOWN_NODE if there is none."""
    served: Callable[[int, float], None]
    """Function called after each locally served request with its API key and its duration in seconds."""
    dial: Dial

    def next_id(self) -> int:
        """Return a number that no other connection of this process has."""

    def upstream_transport(self, dialled: Dialled) -> Transport: ...

    def count_local_response(self) -> None: ...

    def hold(self, held: HeldBytes, change: int) -> None: ...

    def linger(self, peer: PeerSocket, response_bytes: int = 0) -> None:
        """Send the waiting bytes, let the peer disconnect, then close. `response_bytes` then leave the budget."""

    def forget(self, connection: EndedConnection, event: str, context: Mapping[str, Any]) -> None:
        """Remove and log an ended connection."""


class PartOwner(Protocol):
    """Connection as each of its parts sees it."""

    @property
    def plane(self) -> SharedByConnections: ...

    @property
    def state(self) -> Progress[ClientState]:
        """State of the client's half. The part that causes a change calls `move`."""

    @property
    def closed(self) -> bool: ...

    @property
    def held(self) -> HeldBytes:
        """This connection's share of the bytes that all connections keep."""

    def describe(self) -> dict[str, object]: ...

    def failed(self, error: Exception) -> None: ...

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call at the end of this loop iteration, on behalf of this connection."""

    def update(self) -> None:
        """Send held data, start waiting requests and set the awaited events."""
