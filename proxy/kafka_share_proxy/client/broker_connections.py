"""Connections to brokers by node and lane, dialled on demand (client/README.md rules 8-12).

How it works. A `_Place` is a node and a lane. It has at most one connection, and the requests that wait for it. The
first request starts dialling, after the backoff for earlier failures of the node. Once there is a connection, all
waiting requests are sent. If dialling fails, all of them fail. A request for any node uses an open connection, else a
node that has not failed, else the bootstrap servers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from kafka_share_proxy.brokers.own_connection import AuthenticationFailed, OwnConnection, OwnSettings, open_connection
from kafka_share_proxy.client.broker_connection import BrokerConnection
from kafka_share_proxy.client.client_metrics import ClientMetrics
from kafka_share_proxy.client.connection_advice import connection_advice
from kafka_share_proxy.client.frame_memory import FrameMemory
from kafka_share_proxy.consumer.requests import (
    ANY_NODE,
    FailureKind,
    Lane,
    Outcome,
    RequestFailure,
    RetryBackoff,
    UnsentRequest,
)
from kafka_share_proxy.consumer.troubles import TroubleKind, Troubles
from kafka_share_proxy.loop.first_success import Race, race
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import Address

RECONNECT_BACKOFF_S, RECONNECT_BACKOFF_MAX_S = 0.05, 1.0
"""reconnect.backoff.ms and reconnect.backoff.max.ms"""
UNSENT_MAX = 100
"""Maximum number of requests that wait for one connection to be made. One more fails immediately."""
SETUP_S = 30.0
"""Seconds for dialling, TLS, versions and SASL together. A slower server counts as unreachable."""
FAILURES_MAX = 100
"""Number of nodes with a backoff at which nodes that left the cluster are forgotten. They may come back."""

_TROUBLE: tuple[type[ProxyError], ...] = (UpstreamLost, RemoteProtocolError, AuthenticationFailed)

OnOutcome = Callable[[UnsentRequest, Outcome], None]
"""Called once for each request that was passed to `send`."""


@dataclass(eq=False)
class _Place:
    """A node and a lane, with its connection and waiting requests."""

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
        present: Troubles | None = None,
        metrics: ClientMetrics | None = None,
    ) -> None:
        """Run connections in the nursery until it ends.

        Args:
            nursery: of the network task.
            bootstrap: servers to start with, and to use when no known node can be reached.
            settings: for making connections.
            jitter: draws from [-1, 1], for backoffs.
            on_outcome: called with the outcome of each request; must not raise.
            present: the consumer's troubles, to which failed connections are reported.
            metrics: count the connections that were made.
        """
        self.nodes: Mapping[int, Address] = {}
        """Known addresses of brokers by node id."""
        self.troubles: dict[int, str] = {}
        """Node id -> reason why it could not be reached recently. ANY_NODE represents the bootstrap servers."""
        self._nursery = nursery
        self._bootstrap = tuple(bootstrap)
        self._settings = settings
        self._jitter = jitter
        self._on_outcome = on_outcome
        self._present = present or Troubles()
        self._metrics = metrics or ClientMetrics()
        self._places: dict[tuple[int, Lane], _Place] = {}
        self._backoffs: dict[int, RetryBackoff] = {}
        self._memory = FrameMemory()

    def send(self, request: UnsentRequest) -> None:
        """Send a request over its connection, which is made if necessary."""
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

    def found(self, nodes: Mapping[int, Address]) -> None:
        """Set the known addresses, and forget the troubles of brokers that are not among them."""
        self.nodes = nodes
        for node_id in self.troubles.keys() - nodes.keys() - {ANY_NODE}:
            del self.troubles[node_id]
            self._present.end(TroubleKind.CONNECTION, node_id)

    def close(self, reason: str) -> None:
        """End all connections. All waiting requests fail with the reason."""
        for place in list(self._places.values()):
            if place.dialling is not None:
                place.dialling.cancel()
            self._fail_unsent(place, RequestFailure(FailureKind.DISCONNECTED, reason))
            if place.connection is not None:
                place.connection.close(reason)
        self._places.clear()

    def open_connections(self) -> Iterator[tuple[int, Lane, BrokerConnection]]:
        """Yield node id, lane and connection of all open connections."""
        for place in self._places.values():
            if place.connection is not None and place.connection.is_open:
                yield place.node_id, place.lane, place.connection

    # Choice of the node

    def _any_node(self) -> int:
        """Return the least busy node with an open connection, else a node that has not failed, else ANY_NODE."""
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
        """Remove a connection that has ended, or that leads to an outdated address of the node."""
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
                self._failed(place.node_id, made.text)
                self._fail_unsent(place, made)
                return
            place.connection = made
            self._metrics.connections += 1
            self._nursery.start_soon(self._run, place, made, name=f"connection to {made.address}")
            unsent, place.unsent = place.unsent, []
            for request in unsent:
                self._send_over(made, request)

    @trio.lowlevel.enable_ki_protection
    async def _run(self, place: _Place, made: BrokerConnection) -> None:
        await made.run()
        if place.connection is made:
            place.connection = None
        if not made.has_responded:
            self._backoff(place.node_id).failed(trio.current_time())
            hint = "" if self._settings.identity else " (as brokers do that want SASL)"
            self._failed(place.node_id, f"{made.address}: {made.trouble}, before it responded to a request{hint}")

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
            return BrokerConnection(opened, self._settings, memory=self._memory)
        except RemoteProtocolError as error:
            await opened.aclose()
            return RequestFailure(FailureKind.DISCONNECTED, str(error))

    # Requests

    def _failed(self, node_id: int, text: str) -> None:
        self.troubles[node_id] = text
        who = "the bootstrap servers" if node_id == ANY_NODE else f"node {node_id}"
        advice = connection_advice(text, node_id)
        self._present.report(TroubleKind.CONNECTION, node_id, f"cannot use {who}: {text}", advice)

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
                    self._present.end(TroubleKind.CONNECTION, place.node_id)
        self._on_outcome(request, outcome)

    def _fail_unsent(self, place: _Place, failure: RequestFailure) -> None:
        unsent, place.unsent = place.unsent, []
        for request in unsent:
            self._on_outcome(request, failure)

    def _fail(self, request: UnsentRequest, text: str) -> None:
        self._on_outcome(request, RequestFailure(FailureKind.DISCONNECTED, text))


def _listed(addresses: Sequence[Address]) -> str:
    return ", ".join(map(str, addresses))
