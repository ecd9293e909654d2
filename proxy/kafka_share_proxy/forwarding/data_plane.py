"""The data plane: listeners, connections, limits, drain and figures, on one reactor."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from kafka_share_proxy.brokers.dialling import Dial, Dialled
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding import drain_order
from kafka_share_proxy.forwarding.admission import Admission, Entrance
from kafka_share_proxy.forwarding.client_trace.client_trace import ClientTrace
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.connection_state import MOVED
from kafka_share_proxy.forwarding.dispatch.passing_requests import passing
from kafka_share_proxy.forwarding.dispatch.routes import Routes
from kafka_share_proxy.forwarding.drain_order import Spread
from kafka_share_proxy.forwarding.fair_share import Placement
from kafka_share_proxy.forwarding.held_bytes import HeldBytes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.memory_budget import GatherBudget, ResponseBudget
from kafka_share_proxy.forwarding.peer_socket import Linger, PeerSocket
from kafka_share_proxy.forwarding.plane_statistics import PlaneStatistics
from kafka_share_proxy.forwarding.ports import Port
from kafka_share_proxy.forwarding.served.injected_requests import Query
from kafka_share_proxy.loop.interfaces import Notes, Transport
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.slices import Slices
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport
from kafka_share_proxy.wire.errors import RequestRefused
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.served.tracing import Tracing

SWEEP_S = 1.0
GIVE_EVERY_S = 0.002
"""Seconds between two connections that move to another worker. A move takes 0.9 ms of CPU of both together."""
RELEASE_S = 1.0
"""Seconds between the end of a connection and the release of its parts."""
RELEASED_PER_END, RELEASED_PER_SWEEP = 2, 300
"""Maximum number of connections released per ended connection, and per second: 10 us each."""


class Plane:
    """The data plane: all connections of clients with their upstream connections, and the listeners."""

    def __init__(
        self,
        reactor: Reactor,
        routes: Routes,
        limits: Limits,
        notes: Notes,
        dial: Dial,
        client_tls: TlsContext | None = None,
        upstream_tls: TlsContext | None = None,
        *,
        upstream_server_name: str | None = None,
        keep_alive: Callable[[Connection], Query | None] = lambda _connection: None,
        introduction: Query | None = None,
        budget: ResponseBudget | None = None,
        slices: Slices | None = None,
        served: Callable[[int, float], None] = lambda _key, _seconds: None,
        node_at: Callable[[Address | None], int] = lambda _address: UNKNOWN_NODE,
        entrance: Entrance | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.reactor = reactor
        self.limits = limits
        self.notes = notes
        self.dial = dial
        self.upstream_tls = upstream_tls
        self._upstream_server_name = upstream_server_name
        self.keep_alive = keep_alive
        """Returns a request to keep an idle upstream connection open, or None."""
        self.introduction = introduction
        """Request that brokers serve for authenticated clients only."""
        self.tracing = tracing
        """Recorder of served requests. None if tracing is off."""
        self.moves_away: Callable[[ForwardedConnection], bool] = lambda _connection: False
        """Sends a connection that drains to another process, between two requests. Returns False if it stays."""
        self.served = served
        """Called with the API key and the duration in seconds of each locally served request."""
        self.node_at = node_at
        self.budget = budget or ResponseBudget(limits.local_answers_total_bytes)
        self.gathered = GatherBudget(limits.gathered_total_bytes)
        self.slices = slices or Slices(reactor)
        self.routes = routes
        self.passing = passing(routes, reactor.iterations)
        """Requests that `routes` forwards without inspection."""
        self._connections: dict[int, ForwardedConnection] = {}
        self._to_release: deque[tuple[float, ForwardedConnection]] = deque()
        """Ended connections with the time of their end."""
        self._lingering: dict[Linger, int] = {}
        self._ids = itertools.count(1)
        self._closed = False
        self._empty: trio.Event | None = None
        """Set when the last connection has ended. None unless the plane drains."""
        self._ended = Counter[str]()
        """Number of ended connections and refused clients by event."""
        self._totals = Counter[str]()
        self.local_responses = 0
        """Responses to requests that were served here."""
        self.client_trace = ClientTrace(reactor, self.connections, notes)
        self.admission = Admission(self, client_tls, entrance or Entrance())
        self.ports = self.admission.ports
        self._alarm = reactor.call_at(reactor.now() + SWEEP_S, self._sweep)

    async def drained(self, deadline: float, spread: Spread | None = None) -> bool:
        """Let requests in flight finish until `deadline`. Return False if connections had to be cut.

        `spread`: when connections are closed one after the other. Each is served until then.
        """
        self.admission.close()
        self._empty = trio.Event()
        if spread is None:
            self.drain_now()
        else:
            for connection, after_s in drain_order.due(self._connections.values(), spread):
                self.reactor.call_at(self.reactor.now() + after_s, partial(self._drain_one, connection))
        if self._connections or self._lingering:
            with trio.move_on_after(max(deadline - self.reactor.now(), 0)):
                await self._empty.wait()
        cut = bool(self._connections) or any(linger.has_unsent for linger in self._lingering)
        self.close()
        return not cut

    def drain_now(self) -> None:
        """Close all connections as soon as their responses are sent, also those that `drained` would close later."""
        for connection in list(self._connections.values()):
            self._drain_one(connection)

    def _drain_one(self, connection: ForwardedConnection) -> None:
        if connection.id in self._connections:
            connection.guarded(connection.drain)

    def give(self, placements: Iterable[Placement], send: Callable[[int, ForwardedConnection], bool]) -> None:
        """Let other workers continue connections. `send`: see ForwardedConnection.give_way, for a place."""
        for number, (worker_place, connection) in enumerate(placements):
            give_at = self.reactor.now() + number * GIVE_EVERY_S
            self.reactor.call_at(give_at, partial(self._give_one, connection, partial(send, worker_place)))

    def _give_one(self, connection: ForwardedConnection, send: Callable[[ForwardedConnection], bool]) -> None:
        if connection.id in self._connections and self.admission.is_open:
            connection.guarded(partial(connection.give_way, send))

    def close(self) -> None:
        self._closed = True
        self.client_trace.finish("the proxy stops")
        self.admission.close()
        self._alarm.cancel()
        for connection in list(self._connections.values()):
            connection.end("connection-cut", reason="the proxy stops")
        for linger in list(self._lingering):
            linger.end()

    @property
    def is_idle(self) -> bool:
        return not (self._connections or self._lingering or self.admission.beginning)

    def connections(self) -> Iterable[ForwardedConnection]:
        """Return all connections by ascending id."""
        return self._connections.values()

    def statistics(self) -> PlaneStatistics:
        alive = self._connections.values()
        staying = [connection for connection in alive if not connection.is_moving]
        return PlaneStatistics(
            connections=len(staying),
            connections_total=self._totals["connections"],
            connections_moved_total=self._ended[MOVED],
            tls_handshakes=self.admission.handshaking,
            tls_handshakes_refused_total=self.admission.handshakes_refused,
            tls_bytes=self.admission.tls_memory.used,
            upstream_connections=sum(connection.upstream.socket is not None for connection in staying),
            in_flight=sum(connection.in_flight for connection in staying),
            muted=sum(connection.state.now.is_muted for connection in staying),
            local_answers_total=self.local_responses,
            local_answer_bytes=self.budget.used,
            local_answers_without_room=self.budget.refusals,
            gathered_bytes=self.gathered.used,
            gathered_without_room=self.gathered.refusals,
            bytes_up=self._totals["bytes_up"] + sum(connection.requests.bytes for connection in alive),
            bytes_down=self._totals["bytes_down"] + sum(connection.responses.bytes for connection in alive),
            unsent_bytes=sum(connection.unsent for connection in alive),
            ended={event: count for event, count in self._ended.items() if event != MOVED},
        )

    def use_routes(self, routes: Routes) -> None:
        """Replace the routes, also those of open connections."""
        self.routes = routes
        self.passing = passing(routes, self.reactor.iterations)
        for connection in self._connections.values():
            if not connection.requests.raw:
                connection.requests.go_by(connection.passing)

    # for admission

    @property
    def open_sockets(self) -> int:
        """Number of connections, and of sockets that send remaining bytes after the end of their connection."""
        return len(self._connections) + len(self._lingering)

    def count_accepted(self) -> None:
        self._totals["connections"] += 1

    def begin_connection(self, port: Port, transport: Transport, client_host: str) -> ForwardedConnection:
        connection = ForwardedConnection(self, port, transport, client_host)
        self._connections[connection.id] = connection
        return connection

    # for connections

    def next_id(self) -> int:
        return next(self._ids)

    def upstream_transport(self, dialled: Dialled) -> Transport:
        if self.upstream_tls is None:
            return PlainTransport(self.reactor, dialled.sock)
        return TlsTransport(
            self.reactor,
            dialled.sock,
            self.upstream_tls.current,
            server_side=False,
            server_hostname=self._upstream_server_name or dialled.address.host,
            handshake_timeout_s=self.limits.dial_timeout_s,
        )

    def hold(self, held: HeldBytes, change: int) -> None:
        """Change the bytes that a connection keeps. Raises RequestRefused if this connection has to end.

        Beyond the limit, the connections with the longest unfinished requests end.
        """
        gathered = self.gathered
        gathered.used += change
        while change > 0 and gathered.is_overdrawn:
            shares = (connection.held for connection in self._connections.values())
            longest = max(shares, key=_unfinished, default=held)
            if not longest.unfinished:
                longest = held
            gathered.refusals += 1
            text = f"no room for it: limits.gathered_total_bytes ({gathered.limit}) are in use"
            if longest is held:
                raise RequestRefused(text)
            longest.write_off(text)

    def linger(self, peer: PeerSocket, response_bytes: int = 0) -> None:
        """Send the waiting bytes, let the peer disconnect, then close. `response_bytes` then leave the budget."""
        deadline = self.reactor.now() + self.limits.stalled_client_s
        linger = Linger(peer, deadline, self.reactor.now, self._lingered)
        self._lingering[linger] = response_bytes
        if self._closed:
            linger.end()
        else:
            linger.proceed()

    def forget(self, connection: ForwardedConnection, event: str, context: Mapping[str, Any]) -> None:
        """Remove and log an ended connection."""
        self._release_ended(RELEASED_PER_END)
        self._to_release.append((self.reactor.now(), self._connections.pop(connection.id)))
        self.admission.forget(connection.client_host)
        self._totals["bytes_up"] += connection.requests.bytes
        self._totals["bytes_down"] += connection.responses.bytes
        self.note_end(
            event, connection=connection.id, client=connection.client_host, node_id=connection.node_id, **context
        )
        self._check_empty()

    def note_end(self, event: str, /, **context: Any) -> None:
        """Count and log the end of a connection, or a client that was refused."""
        self._ended[event] += 1
        self.notes(event, **context)

    def _release_ended(self, count_max: int) -> None:
        """Break the reference cycles of ended connections: garbage collections are rare."""
        ended_before = self.reactor.now() - RELEASE_S
        for _ in range(count_max):
            if not self._to_release or self._to_release[0][0] > ended_before:
                return
            self._to_release.popleft()[1].release()

    def _lingered(self, linger: Linger) -> None:
        self.budget.sent(self._lingering.pop(linger))
        self._check_empty()

    def _check_empty(self) -> None:
        if self._empty is not None and not self._connections and not self._lingering:
            self._empty.set()

    def _sweep(self) -> None:
        now = self.reactor.now()
        self._alarm = self.reactor.call_at(now + SWEEP_S, self._sweep)
        for connection in list(self._connections.values()):
            connection.guarded(lambda connection=connection: connection.sweep(now))  # type: ignore[misc]
        self._release_ended(RELEASED_PER_SWEEP)
        for linger in [linger for linger in self._lingering if linger.deadline <= now]:
            linger.end()


def _unfinished(held: HeldBytes) -> int:
    return held.unfinished
