"""Connections to brokers by node and lane, dialled when they are needed (client/README.md rules 8-12).

Theory of operation. A place (`_Place`) is a node and a lane: it has at most one connection, and requests that wait for
it. The first request begins to dial, after the backoff that earlier failures of the node ask for; once there is a
connection everything that waits is sent, and when there is none everything that waits fails. A request for any node
takes an open connection, else a node that has not failed, else the bootstrap servers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from proxy.brokers.own_connection import AuthenticationFailed, OwnConnection, OwnSettings, open_connection
from proxy.client.broker_connection import BrokerConnection
from proxy.consumer.requests import ANY_NODE, FailureKind, Lane, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from proxy.loop.first_success import Race, race
from proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from proxy.wire.values import Address

RECONNECT_BACKOFF_S, RECONNECT_BACKOFF_MAX_S = 0.05, 1.0
"""reconnect.backoff.ms and reconnect.backoff.max.ms"""
UNSENT_MAX = 100
"""Requests that wait for one connection to be made; one more fails at once."""
SETUP_S = 30.0
"""For all of dialling, TLS, versions and SASL; a server that takes longer counts as one that is not there."""
FAILURES_MAX = 100
"""Nodes whose failures are remembered: those that vanish from the cluster are forgotten, and may come back."""

_TROUBLE: tuple[type[ProxyError], ...] = (UpstreamLost, RemoteProtocolError, AuthenticationFailed)

OnOutcome = Callable[[UnsentRequest, Outcome], None]
"""Called once for each request that was given to `send`."""


@dataclass(eq=False)
class _Place:
    """A node and a lane."""

    node_id: int
    lane: Lane
    connection: BrokerConnection | None = None
    dialling: trio.CancelScope | None = None
    unsent: list[UnsentRequest] = field(default_factory=list)


class BrokerConnections:
    """The connections of one consumer to its brokers."""

    def __init__(
        self,
        nursery: trio.Nursery,
        bootstrap: Sequence[Address],
        settings: OwnSettings,
        jitter: Callable[[], float],
        on_outcome: OnOutcome,
    ) -> None:
        """Connections run in the nursery, and end with it.

        Args:
            nursery: of the network task.
            bootstrap: servers to begin with, and to go back to when no known node can be reached.
            settings: how connections are made.
            jitter: draws from [-1, 1], for backoffs.
            on_outcome: is told what became of each request; must not raise.
        """
        self.nodes: Mapping[int, Address] = {}
        """Where brokers listen, as far as is known; whoever knows more sets it."""
        self.troubles: dict[int, str] = {}
        """Node -> why it could not be reached lately; ANY_NODE stands for the bootstrap servers."""
        self._nursery = nursery
        self._bootstrap = tuple(bootstrap)
        self._settings = settings
        self._jitter = jitter
        self._on_outcome = on_outcome
        self._places: dict[tuple[int, Lane], _Place] = {}
        self._backoffs: dict[int, RetryBackoff] = {}

    def send(self, request: UnsentRequest) -> None:
        """Send it over the connection that it belongs to, which is made if need be."""
        node_id = self._any_node() if request.node_id == ANY_NODE else request.node_id
        place = self._places.setdefault((node_id, request.lane), _Place(node_id, request.lane))
        self._retire(place)
        if place.connection is not None:
            self._send_over(place.connection, request)
        elif len(place.unsent) >= UNSENT_MAX:
            self._fail(request, f"{UNSENT_MAX} requests wait for a connection to node {node_id} already")
        else:
            place.unsent.append(request)
            if place.dialling is None:
                place.dialling = trio.CancelScope()
                self._nursery.start_soon(self._open, place, place.dialling, name="dial")

    def close(self, reason: str) -> None:
        """End all connections; every request that waits is told so."""
        for place in list(self._places.values()):
            if place.dialling is not None:
                place.dialling.cancel()
            self._fail_unsent(place, RequestFailure(FailureKind.DISCONNECTED, reason))
            if place.connection is not None:
                place.connection.close(reason)
        self._places.clear()

    def open_connections(self) -> Iterator[tuple[int, Lane, BrokerConnection]]:
        """Node, lane and connection of all that are open."""
        for place in self._places.values():
            if place.connection is not None and place.connection.is_open:
                yield place.node_id, place.lane, place.connection

    # Which node

    def _any_node(self) -> int:
        """An open connection that is least busy, else a node that has not failed, else the bootstrap servers."""
        open_ones = [(each.waiting, node) for node, lane, each in self.open_connections() if lane is Lane.DATA]
        if open_ones:
            return min(open_ones)[1]
        well = [node_id for node_id in self.nodes if not self._backoff(node_id).attempts]
        return min(well, key=self._is_dialled_last, default=ANY_NODE)

    def _is_dialled_last(self, node_id: int) -> tuple[bool, int]:
        return (node_id, Lane.DATA) not in self._places, node_id

    def _backoff(self, node_id: int) -> RetryBackoff:
        if node_id not in self._backoffs and len(self._backoffs) >= FAILURES_MAX:
            self._backoffs = {known: each for known, each in self._backoffs.items() if known in self.nodes}
        return self._backoffs.setdefault(
            node_id, RetryBackoff(RECONNECT_BACKOFF_S, RECONNECT_BACKOFF_MAX_S, self._jitter)
        )

    def _addresses(self, node_id: int) -> Sequence[Address]:
        if node_id == ANY_NODE:
            return self._bootstrap
        return (self.nodes[node_id],) if node_id in self.nodes else ()

    # Connections

    def _retire(self, place: _Place) -> None:
        """A connection that has ended, or leads where the node is no more, is not used again."""
        opened = place.connection
        if opened is None:
            return
        moved = place.node_id != ANY_NODE and opened.address not in self._addresses(place.node_id)
        if not opened.is_open or moved:
            place.connection = None
            opened.close_when_idle("replaced")

    @trio.lowlevel.enable_ki_protection
    async def _open(self, place: _Place, scope: trio.CancelScope) -> None:
        backoff = self._backoff(place.node_id)
        with scope:
            await trio.sleep_until(backoff.ready_at if backoff.ready_at > -math.inf else trio.current_time())
            made = await self._connect(place.node_id)
            place.dialling = None
            if isinstance(made, RequestFailure):
                backoff.failed(trio.current_time())
                self.troubles[place.node_id] = made.text
                self._fail_unsent(place, made)
                return
            place.connection = made
            self._nursery.start_soon(self._run, place, made, name=f"connection to {made.address}")
            unsent, place.unsent = place.unsent, []
            for request in unsent:
                self._send_over(made, request)

    @trio.lowlevel.enable_ki_protection
    async def _run(self, place: _Place, made: BrokerConnection) -> None:
        await made.run()
        if place.connection is made:
            place.connection = None
        if not made.has_answered:
            self._backoff(place.node_id).failed(trio.current_time())
            advice = "" if self._settings.identity else " (as brokers do that want SASL)"
            self.troubles[place.node_id] = f"{made.address}: {made.trouble}, before any answer{advice}"

    async def _connect(self, node_id: int) -> BrokerConnection | RequestFailure:
        addresses = self._addresses(node_id)
        attempts = [partial(open_connection, address, self._settings) for address in addresses]
        found: Race[OwnConnection, ProxyError] = Race()
        with trio.move_on_after(SETUP_S) as waiting:
            found = await race(attempts, _TROUBLE, OwnConnection.aclose)
        if waiting.cancelled_caught:
            return RequestFailure(FailureKind.DISCONNECTED, f"{_listed(addresses)}: not ready within {SETUP_S:g} s")
        if found.winner is None:
            text = "; ".join(dict.fromkeys(map(str, found.failures.values())))
            refused = any(isinstance(each, AuthenticationFailed) for each in found.failures.values())
            kind = FailureKind.AUTHENTICATION if refused else FailureKind.DISCONNECTED
            return RequestFailure(kind, text or f"nobody knows where node {node_id} listens")
        opened = found.winner[1]
        try:
            return BrokerConnection(opened, self._settings)
        except RemoteProtocolError as error:
            await opened.aclose()
            return RequestFailure(FailureKind.DISCONNECTED, str(error))

    # Requests

    def _send_over(self, opened: BrokerConnection, request: UnsentRequest) -> None:
        opened.send(
            request.api,
            request.message,
            request.versions,
            request.timeout_s,
            partial(self._took, opened, request),
        )

    def _took(self, opened: BrokerConnection, request: UnsentRequest, outcome: Outcome) -> None:
        if not isinstance(outcome, RequestFailure):
            for place in self._places.values():
                if place.connection is opened:
                    self._backoff(place.node_id).succeeded()
                    self.troubles.pop(place.node_id, None)
        self._on_outcome(request, outcome)

    def _fail_unsent(self, place: _Place, failure: RequestFailure) -> None:
        unsent, place.unsent = place.unsent, []
        for request in unsent:
            self._on_outcome(request, failure)

    def _fail(self, request: UnsentRequest, text: str) -> None:
        self._on_outcome(request, RequestFailure(FailureKind.DISCONNECTED, text))


def _listed(addresses: Sequence[Address]) -> str:
    return ", ".join(map(str, addresses))
