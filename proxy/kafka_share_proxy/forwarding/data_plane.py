"""The data plane: listeners, connections, limits, drain and figures, on one reactor."""

from __future__ import annotations

import itertools
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from kafka_share_proxy.brokers.dialling import Dial, Dialled
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.connection_state import FAILED, event_of
from kafka_share_proxy.forwarding.dispatch.early_matches import ByIdOrTag, ByKnownGroup, ByTopicPrefix, ContainsAny
from kafka_share_proxy.forwarding.dispatch.request_inspection import (
    AcksMatch,
    GroupMatch,
    IdMatch,
    RememberedMatch,
    TopicMatch,
    WordMatch,
    look_at_beginning,
    look_to_amend,
    look_to_inspect,
)
from kafka_share_proxy.forwarding.dispatch.routes import Context, Kind, Route, Routes
from kafka_share_proxy.forwarding.held_bytes import HeldBytes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.memory_budget import GatherBudget, ResponseBudget
from kafka_share_proxy.forwarding.peer_socket import Linger, PeerSocket
from kafka_share_proxy.forwarding.served.injected_requests import Query
from kafka_share_proxy.forwarding.served.tracing import Tracing
from kafka_share_proxy.forwarding.walk.client_requests import NOTHING_PASSES, Passing
from kafka_share_proxy.forwarding.walk.walk import Look
from kafka_share_proxy.loop.handshakes import HandshakeLimits, Handshakes
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.listeners import Listener, bind
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.slices import Slices
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.tls_memory import TlsMemory
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport, Transport
from kafka_share_proxy.loop.turns import Turns
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import RequestRefused
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

SWEEP_S = 1.0
RELEASE_S = 1.0
"""Seconds between the end of a connection and the release of its parts."""
RELEASED_PER_END, RELEASED_PER_SWEEP = 2, 300
"""Maximum number of connections released per ended connection, and per second: 10 us each."""


@dataclass(slots=True, eq=False)
class Port:
    """Data that all connections of one listener share."""

    node_id: int
    """Node id of the listener's broker. UNKNOWN_NODE for the bootstrap listener."""
    targets: Callable[[], Sequence[Address]]
    """Function that returns the upstream addresses. Connections go to the first one that accepts."""
    context: Context
    listeners: tuple[Listener, ...] = ()

    @property
    def number(self) -> int:
        return self.listeners[0].port


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneStatistics:
    """Figures of one moment, and totals since the start."""

    connections: int
    connections_total: int
    tls_handshakes: int
    """Unfinished TLS handshakes of clients."""
    tls_handshakes_refused_total: int
    tls_bytes: int
    """Estimated memory of TLS connections to clients."""
    upstream_connections: int
    in_flight: int
    muted: int
    """Connections with a local request."""
    local_answers_total: int
    local_answer_bytes: int
    """Bytes that the kernel has not accepted yet or that are reserved."""
    local_answers_without_room: int
    gathered_bytes: int
    """Counted in `limits.gathered_total_bytes`."""
    gathered_without_room: int
    """Connections ended for lack of memory."""
    bytes_up: int
    bytes_down: int
    unsent_bytes: int
    ended: Mapping[str, int]


class Plane:
    """The data plane: all connections of clients with their upstream connections, and the listeners."""

    def __init__(
        self,
        reactor: Reactor,
        routes: Callable[[], Routes],
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
        tracing: Tracing | None = None,
    ) -> None:
        """`routes` is called once a second and by `refresh_routes`."""
        self.reactor = reactor
        self._get_routes = routes
        self.limits = limits
        self.notes = notes
        self.dial = dial
        self.client_tls = client_tls
        self._tls_memory = TlsMemory(limits.tls_total_bytes)
        self._handshakes: Handshakes | None = None
        if client_tls is not None:
            self._handshakes = Handshakes(reactor, client_tls, handshake_limits(limits), notes, self._tls_memory)
        self.upstream_tls = upstream_tls
        self._upstream_server_name = upstream_server_name
        self.keep_alive = keep_alive
        """Returns a request to keep an idle upstream connection open, or None."""
        self.introduction = introduction
        self.tracing = tracing
        """Recorder of served requests. None if tracing is off."""
        """Request that brokers serve for known clients only."""
        self.served = served
        """Called with the API key and the duration in seconds of each locally served request."""
        self.node_at = node_at
        self.budget = budget or ResponseBudget(limits.local_answers_total_bytes)
        self.gathered = GatherBudget(limits.gathered_total_bytes)
        self.slices = slices or Slices(reactor)
        self.routes = Routes()
        self.passing = NOTHING_PASSES
        """Requests that `routes` forwards without inspection."""
        self._ports: dict[int, Port] = {}
        self._connections: dict[int, ForwardedConnection] = {}
        self._to_release: deque[tuple[float, ForwardedConnection]] = deque()
        """Ended connections with the time of their end."""
        self._by_address: Counter[str] = Counter()
        self._lingering: dict[Linger, int] = {}
        self._ids = itertools.count(1)
        self._accepts = True
        self._closed = False
        self._empty: trio.Event | None = None
        self._ended: Counter[str] = Counter()
        self._totals: Counter[str] = Counter()
        self.refresh_routes()
        self._alarm = reactor.call_at(reactor.now() + SWEEP_S, self._sweep)

    # listeners

    def listen(self, node_id: int, host: str, port: int, targets: Callable[[], Sequence[Address]]) -> int:
        """Listen for a broker (UNKNOWN_NODE: bootstrap) and return the port.

        Raises OSError with a reason: the port is in use, above 65535, or not allowed.
        """
        entry = Port(node_id, targets, Context(node_id))
        sockets = bind(host, port)
        self.close_listener(node_id)
        entry.listeners = tuple(self._listener(entry, sock) for sock in sockets)
        self._ports[node_id] = entry
        return entry.number

    def close_listener(self, node_id: int) -> None:
        entry = self._ports.pop(node_id, None)
        for listener in entry.listeners if entry is not None else ():
            listener.close()

    def stop_accepting(self) -> None:
        self._accepts = False
        for node_id in list(self._ports):
            self.close_listener(node_id)
        if self._handshakes is not None:
            self._handshakes.close()

    async def drained(self, deadline: float) -> bool:
        """Let requests in flight finish until `deadline`. Return False if connections had to be cut."""
        self.stop_accepting()
        self._empty = trio.Event()
        for connection in list(self._connections.values()):
            connection.guarded(connection.drain)
        if self._connections or self._lingering:
            with trio.move_on_after(max(deadline - self.reactor.now(), 0)):
                await self._empty.wait()
        cut = bool(self._connections) or any(linger.has_unsent for linger in self._lingering)
        self.close()
        return not cut

    def close(self) -> None:
        self._closed = True
        self.stop_accepting()
        self._alarm.cancel()
        for connection in list(self._connections.values()):
            connection.end("connection-cut", reason="the proxy stops")
        for linger in list(self._lingering):
            linger.end()

    @property
    def is_idle(self) -> bool:
        return not (self._connections or self._lingering or self._handshaking)

    def connections(self) -> Iterable[ForwardedConnection]:
        return self._connections.values()

    def statistics(self) -> PlaneStatistics:
        alive = self._connections.values()
        return PlaneStatistics(
            connections=len(alive),
            connections_total=self._totals["connections"],
            tls_handshakes=self._handshaking,
            tls_handshakes_refused_total=0 if self._handshakes is None else self._handshakes.refused,
            tls_bytes=self._tls_memory.used,
            upstream_connections=sum(connection.broker is not None for connection in alive),
            in_flight=sum(connection.in_flight for connection in alive),
            muted=sum(connection.state.now.is_muted for connection in alive),
            local_answers_total=self._totals["local_answers"],
            local_answer_bytes=self.budget.used,
            local_answers_without_room=self.budget.refusals,
            gathered_bytes=self.gathered.used,
            gathered_without_room=self.gathered.refusals,
            bytes_up=self._totals["bytes_up"] + sum(connection.requests.bytes for connection in alive),
            bytes_down=self._totals["bytes_down"] + sum(connection.responses.bytes for connection in alive),
            unsent_bytes=sum(connection.unsent for connection in alive),
            ended=dict(self._ended),
        )

    def refresh_routes(self) -> None:
        """Load the current routes."""
        routes = self._get_routes()
        if routes is self.routes:
            return
        self.routes = routes
        self.passing = passing(routes, self.reactor.turns)
        for connection in self._connections.values():
            if not connection.requests.raw:
                connection.requests.go_by(self.passing)

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

    def count_local_response(self) -> None:
        self._totals["local_answers"] += 1

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
        self._by_address[connection.client_host] -= 1
        if not self._by_address[connection.client_host]:
            del self._by_address[connection.client_host]
        self._ended[event] += 1
        self._totals["bytes_up"] += connection.requests.bytes
        self._totals["bytes_down"] += connection.responses.bytes
        self.notes(
            event, connection=connection.id, client=connection.client_host, node_id=connection.node_id, **context
        )
        self._check_empty()

    def _release_ended(self, most: int) -> None:
        """Break the reference cycles of ended connections: garbage collections are rare."""
        before = self.reactor.now() - RELEASE_S
        for _ in range(most):
            if not self._to_release or self._to_release[0][0] > before:
                return
            self._to_release.popleft()[1].release()

    def _lingered(self, linger: Linger) -> None:
        self.budget.sent(self._lingering.pop(linger))
        self._check_empty()

    def _check_empty(self) -> None:
        if self._empty is not None and not self._connections and not self._lingering:
            self._empty.set()

    def _listener(self, entry: Port, sock: socket.socket) -> Listener:
        def accepted(client: socket.socket, client_host: str) -> None:
            self._accept(entry, client, client_host)

        def trouble(error: Exception) -> None:
            self.notes("accept-failed", node_id=entry.node_id, reason=str(error))

        return Listener(self.reactor, sock, accepted, trouble)

    def _accept(self, entry: Port, sock: socket.socket, client_host: str) -> None:
        limit = self._limit_reached(client_host)
        if not self._accepts or limit:
            sock.close()
            self._ended["connection-limit"] += 1
            self.notes("connection-limit", client=client_host, reason=limit or "the proxy stops")
            return
        self._totals["connections"] += 1
        if self._handshakes is None:
            self._admit(entry, client_host, PlainTransport(self.reactor, sock))
        else:
            failed = partial(self._handshake_failed, entry, client_host)
            self._handshakes.begin(sock, client_host, partial(self._admit, entry, client_host), failed)

    def _admit(self, entry: Port, client_host: str, transport: Transport) -> None:
        connection = ForwardedConnection(self, entry, transport, client_host)
        self._connections[connection.id] = connection
        self._by_address[client_host] += 1

    def _handshake_failed(self, entry: Port, client_host: str, error: Exception) -> None:
        context: dict[str, Any] = {"client": client_host, "node_id": entry.node_id, "reason": str(error)}
        event = event_of(error)
        if event == FAILED:
            context["error"] = error
        self._ended[event] += 1
        self.notes(event, **context)

    @property
    def _handshaking(self) -> int:
        return 0 if self._handshakes is None else self._handshakes.pending

    def _limit_reached(self, client_host: str) -> str:
        """Return the reached limit, or "".

        A socket that still sends bytes after its connection ended counts too.
        """
        limits = self.limits
        if len(self._connections) + len(self._lingering) + self._handshaking >= limits.connections:
            return f"limits.connections ({limits.connections}) is reached"
        most = limits.connections_per_address
        unfinished = 0 if self._handshakes is None else self._handshakes.of(client_host)
        if most is not None and self._by_address[client_host] + unfinished >= most:
            return f"limits.connections_per_address ({most}) is reached"
        return ""

    def _sweep(self) -> None:
        now = self.reactor.now()
        self._alarm = self.reactor.call_at(now + SWEEP_S, self._sweep)
        self.refresh_routes()
        for connection in list(self._connections.values()):
            connection.guarded(lambda connection=connection: connection.sweep(now))  # type: ignore[misc]
        self._release_ended(RELEASED_PER_SWEEP)
        for linger in [linger for linger in self._lingering if linger.deadline <= now]:
            linger.end()


def handshake_limits(limits: Limits) -> HandshakeLimits:
    """Return half of the limit of connections."""
    total = max(min(limits.tls_handshakes, limits.connections // 2), 1)
    per_address = max(min(limits.tls_handshakes_per_address, total // 2), 1)
    return HandshakeLimits(total, per_address, limits.tls_handshake_s)


def _unfinished(held: HeldBytes) -> int:
    return held.unfinished


def passing(routes: Routes, turns: Turns) -> Passing:
    """Requests that can be forwarded without being gathered. `turns` records those under inspection."""
    plain: dict[bytes, Route] = {}
    inspected: dict[bytes, Look] = {}
    produce = set()
    for name, route in routes.items():
        if route.kind is Kind.PRODUCE and route.serve_here is not None:
            inspected[name] = _shortened(route, look_at_beginning(route.serve_here, AcksMatch(route.version, route)))
        elif route.kind is Kind.PRODUCE and route.amend is None:
            inspected[name] = AcksMatch(route.version, route)
            produce.add(name)
        elif route.key == ApiKey.API_VERSIONS:
            continue  # read by request_dispatch: the client says who it is
        elif route.kind in (Kind.FORWARD, Kind.RESPONSE):
            if route.amend is None:
                plain[name] = route
            else:
                inspected[name] = _shortened(route, look_to_amend(route.amend, route))
        elif route.kind is Kind.INSPECT and route.serve_here is not None:
            look = look_to_inspect(
                _noted(route, route.serve_here, turns), look_to_amend(route.amend or _unchanged, route)
            )
            inspected[name] = _shortened(route, look)
    return Passing(plain, inspected, frozenset(produce))


def _noted(route: Route, serve_here: Callable[[memoryview], bool], turns: Turns) -> Callable[[memoryview], bool]:
    doing = (None, route)

    def look(frame: memoryview) -> bool:
        turns.doing = doing
        return serve_here(frame)

    return look


def _shortened(route: Route, look: Look) -> Look:
    if route.repeats:
        return RememberedMatch(look)
    if route.amend is not None:
        return look
    if isinstance(route.wants, ContainsAny):
        return WordMatch(route.wants.words, look, route)
    if isinstance(route.wants, ByTopicPrefix) and route.kind is Kind.PRODUCE:
        return TopicMatch(route.version, route.wants.prefix.encode(), look, route)
    if isinstance(route.wants, ByIdOrTag):
        return IdMatch(route.wants.known, route.version, look, route)
    if isinstance(route.wants, ByKnownGroup):
        return GroupMatch(route.wants, (route.key, route.version), look, route)
    return look


def _unchanged(_frame: memoryview) -> None: ...
