"""Connections to brokers by node and lane, dialled on demand (client/README.md rules 8-12).

The first request of a node and lane (`_NodeLane`) starts dialling, after the backoff for earlier failures. If dialling
fails, all waiting requests fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import trio

from kafka_share_proxy.brokers.cluster_connection import (
    AuthenticationFailed,
    ClusterClientSettings,
    ClusterConnection,
    open_connection,
)
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
"""Maximum number of unsent requests. One more fails immediately."""
SETUP_S = 30.0
"""Seconds for dialling, TLS, versions and SASL together."""
FAILURES_MAX = 100
"""Number of nodes with a backoff at which unknown nodes are forgotten."""

_CONNECTION_ERRORS: tuple[type[ProxyError], ...] = (UpstreamLost, RemoteProtocolError, AuthenticationFailed)

OnOutcome = Callable[[UnsentRequest, Outcome], None]


@dataclass(eq=False)
class _NodeLane:
    """Connection of one node and lane, and the requests that wait for it."""

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
        settings: ClusterClientSettings,
        jitter: Callable[[], float],
        on_outcome: OnOutcome,
        reported_troubles: Troubles | None = None,
        metrics: ClientMetrics | None = None,
    ) -> None:
        """Run connections in the nursery until it ends.

        `bootstrap` servers are also used when no known node can be reached. `on_outcome` is called with the outcome of
        each request; it must not raise. Failed connections are reported to `reported_troubles`.
        """
        self.nodes: Mapping[int, Address] = {}
        self.troubles: dict[int, str] = {}
        """Last failure of each node. ANY_NODE represents the bootstrap servers."""
        self._nursery = nursery
        self._bootstrap = tuple(bootstrap)
        self._settings = settings
        self._jitter = jitter
        self._on_outcome = on_outcome
        self._reported_troubles = reported_troubles or Troubles()
        self._metrics = metrics or ClientMetrics()
        self._by_lane: dict[tuple[int, Lane], _NodeLane] = {}
        self._backoffs: dict[int, RetryBackoff] = {}
        self._memory = FrameMemory()

    def send(self, request: UnsentRequest) -> None:
        """Send a request over the connection of its node and lane. Dials the node if necessary."""
        node_id = self._any_node() if request.node_id == ANY_NODE else request.node_id
        node_lane = self._by_lane.setdefault((node_id, request.lane), _NodeLane(node_id, request.lane))
        self._retire(node_lane)
        if node_lane.connection is not None:
            self._send_over(node_lane.connection, request)
        elif len(node_lane.unsent) >= UNSENT_MAX:
            self._fail(request, f"{UNSENT_MAX} requests wait for a connection to node {node_id} already")
        else:
            node_lane.unsent.append(request)
            if node_lane.dialling is None:
                node_lane.dialling = trio.CancelScope()
                self._nursery.start_soon(self._open, node_lane, node_lane.dialling, name="dial")

    def set_nodes(self, nodes: Mapping[int, Address]) -> None:
        """Set the known addresses, and forget the troubles of other brokers."""
        self.nodes = nodes
        for node_id in self.troubles.keys() - nodes.keys() - {ANY_NODE}:
            del self.troubles[node_id]
            self._reported_troubles.end(TroubleKind.CONNECTION, node_id)

    def close(self, reason: str) -> None:
        for node_lane in list(self._by_lane.values()):
            if node_lane.dialling is not None:
                node_lane.dialling.cancel()
            self._fail_unsent(node_lane, RequestFailure(FailureKind.DISCONNECTED, reason))
            if node_lane.connection is not None:
                node_lane.connection.close(reason)
        self._by_lane.clear()

    def open_connections(self) -> Iterator[tuple[int, Lane, BrokerConnection]]:
        for node_lane in self._by_lane.values():
            if node_lane.connection is not None and node_lane.connection.is_open:
                yield node_lane.node_id, node_lane.lane, node_lane.connection

    # Choice of the node

    def _any_node(self) -> int:
        """Return the node for a request that any node may serve (client/README.md rule 11)."""
        open_ones = [(each.waiting, node) for node, lane, each in self.open_connections() if lane is Lane.DATA]
        if open_ones:
            return min(open_ones)[1]
        healthy = [node_id for node_id in self.nodes if not self._backoff(node_id).attempts]
        return min(healthy, key=self._dial_order, default=ANY_NODE)

    def _dial_order(self, node_id: int) -> tuple[bool, int]:
        return (node_id, Lane.DATA) not in self._by_lane, node_id

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

    def _retire(self, node_lane: _NodeLane) -> None:
        """Detach a connection that has ended, or whose node has another address now."""
        opened = node_lane.connection
        if opened is None:
            return
        moved = node_lane.node_id != ANY_NODE and opened.address not in self._addresses(node_lane.node_id)
        if not opened.is_open or moved:
            node_lane.connection = None
            opened.close_when_idle("replaced")

    @trio.lowlevel.enable_ki_protection
    async def _open(self, node_lane: _NodeLane, scope: trio.CancelScope) -> None:
        backoff = self._backoff(node_lane.node_id)
        with scope:
            await trio.sleep_until(backoff.ready_at if backoff.ready_at > -math.inf else trio.current_time())
            opened = await self._connect(node_lane.node_id)
            node_lane.dialling = None
            if isinstance(opened, RequestFailure):
                backoff.failed(trio.current_time())
                self._report_failure(node_lane.node_id, opened.text)
                self._fail_unsent(node_lane, opened)
                return
            node_lane.connection = opened
            self._metrics.connections += 1
            self._nursery.start_soon(self._run, node_lane, opened, name=f"connection to {opened.address}")
            unsent, node_lane.unsent = node_lane.unsent, []
            for request in unsent:
                self._send_over(opened, request)

    @trio.lowlevel.enable_ki_protection
    async def _run(self, node_lane: _NodeLane, opened: BrokerConnection) -> None:
        await opened.run()
        if node_lane.connection is opened:
            node_lane.connection = None
        if not opened.has_responded:
            self._backoff(node_lane.node_id).failed(trio.current_time())
            hint = "" if self._settings.identity else " (as brokers do that want SASL)"
            self._report_failure(
                node_lane.node_id, f"{opened.address}: {opened.trouble}, before it responded to a request{hint}"
            )

    async def _connect(self, node_id: int) -> BrokerConnection | RequestFailure:
        addresses = self._addresses(node_id)
        attempts = [partial(open_connection, address, self._settings) for address in addresses]
        race_result: Race[ClusterConnection, ProxyError] = Race()
        with trio.move_on_after(SETUP_S) as waiting:
            race_result = await race(attempts, _CONNECTION_ERRORS, ClusterConnection.aclose)
        if waiting.cancelled_caught:
            return RequestFailure(
                FailureKind.DISCONNECTED, f"{_address_list(addresses)}: not ready within {SETUP_S:g} s"
            )
        if race_result.winner is None:
            text = "; ".join(dict.fromkeys(map(str, race_result.failures.values())))
            refused = any(isinstance(each, AuthenticationFailed) for each in race_result.failures.values())
            kind = FailureKind.AUTHENTICATION if refused else FailureKind.DISCONNECTED
            return RequestFailure(kind, text or f"the address of node {node_id} is unknown")
        opened = race_result.winner[1]
        try:
            return BrokerConnection(opened, self._settings, memory=self._memory)
        except RemoteProtocolError as error:
            await opened.aclose()
            return RequestFailure(FailureKind.DISCONNECTED, str(error))

    # Requests

    def _report_failure(self, node_id: int, text: str) -> None:
        self.troubles[node_id] = text
        who = "the bootstrap servers" if node_id == ANY_NODE else f"node {node_id}"
        advice = connection_advice(text, node_id)
        self._reported_troubles.report(TroubleKind.CONNECTION, node_id, f"cannot use {who}: {text}", advice)

    def _send_over(self, opened: BrokerConnection, request: UnsentRequest) -> None:
        opened.send(
            request.api,
            request.message,
            request.versions,
            request.timeout_s,
            partial(self._on_request_outcome, opened, request),
        )

    def _on_request_outcome(self, opened: BrokerConnection, request: UnsentRequest, outcome: Outcome) -> None:
        if not isinstance(outcome, RequestFailure):
            for node_lane in self._by_lane.values():
                if node_lane.connection is opened:
                    self._backoff(node_lane.node_id).succeeded()
                    self.troubles.pop(node_lane.node_id, None)
                    self._reported_troubles.end(TroubleKind.CONNECTION, node_lane.node_id)
        self._on_outcome(request, outcome)

    def _fail_unsent(self, node_lane: _NodeLane, failure: RequestFailure) -> None:
        unsent, node_lane.unsent = node_lane.unsent, []
        for request in unsent:
            self._on_outcome(request, failure)

    def _fail(self, request: UnsentRequest, text: str) -> None:
        self._on_outcome(request, RequestFailure(FailureKind.DISCONNECTED, text))


def _address_list(addresses: Sequence[Address]) -> str:
    return ", ".join(map(str, addresses))
