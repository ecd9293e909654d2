"""The data plane: listeners, connections, limits, drain and figures, on one reactor."""

from __future__ import annotations

import itertools
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import trio

from proxy.brokers.dialling import Dial, Dialled
from proxy.brokers.interfaces import Connection
from proxy.forwarding.client_requests import NOTHING_PASSES, Passing
from proxy.forwarding.connection import ForwardedConnection
from proxy.forwarding.connection_parts import EndedConnection, Question
from proxy.forwarding.early_looks import ByIdOrTag, ByKnownGroup, ByTopicPrefix, ContainsAny
from proxy.forwarding.held_bytes import HeldBytes
from proxy.forwarding.memory_budget import AnswerBudget, GatherBudget
from proxy.forwarding.peer_socket import Linger, PeerSocket
from proxy.forwarding.request_inspection import (
    AcksLook,
    GroupLook,
    IdLook,
    RememberedLook,
    TopicLook,
    WordLook,
    look_at_beginning,
    look_to_amend,
    look_to_inspect,
)
from proxy.forwarding.routes import Context, Kind, Route, Routes
from proxy.forwarding.walk import Look
from proxy.loop.interfaces import Notes
from proxy.loop.listeners import Listener, bind
from proxy.loop.reactor import Reactor
from proxy.loop.slices import Slices
from proxy.loop.transports import PlainTransport, TlsTransport, Transport
from proxy.loop.turns import Turns
from proxy.wire.errors import RequestRefused
from proxy.wire.values import UNKNOWN_NODE, Address, Limits

SWEEP_S = 1.0
HANDSHAKE_S = 10.0
"""A client's TLS handshake."""


@dataclass(slots=True, eq=False)
class Port:
    """What all connections of one listener share."""

    node_id: int
    targets: Callable[[], Sequence[Address]]
    context: Context
    listeners: tuple[Listener, ...] = ()

    @property
    def number(self) -> int:
        """The port that is listened on."""
        return self.listeners[0].port


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneStatistics:
    """Figures at one moment; totals since the start."""

    connections: int
    connections_total: int
    upstream_connections: int
    in_flight: int
    """Requests that wait for an answer."""
    muted: int
    """Connections with a local request."""
    local_answers_total: int
    local_answer_bytes: int
    """Answers made here that the kernel has not taken, and room reserved for such."""
    local_answers_without_room: int
    gathered_bytes: int
    """Requests and answers being gathered, kept or worked on (`limits.gathered_total_bytes`)."""
    gathered_without_room: int
    """Connections that ended because there was no room for what they sent or asked for."""
    bytes_up: int
    bytes_down: int
    unsent_bytes: int
    """Bytes that a peer has not taken yet."""
    ended: Mapping[str, int]
    """Connections that ended, by event."""


class Plane:
    """See the module; its methods are called from the loop or from Trio tasks of the same thread."""

    def __init__(
        self,
        reactor: Reactor,
        routes: Callable[[], Routes],
        limits: Limits,
        notes: Notes,
        dial: Dial,
        client_tls: ssl.SSLContext | None = None,
        upstream_tls: ssl.SSLContext | None = None,
        *,
        upstream_server_name: str | None = None,
        keep_alive: Callable[[Connection], Question | None] = lambda _connection: None,
        introduction: Question | None = None,
        budget: AnswerBudget | None = None,
        slices: Slices | None = None,
        served: Callable[[int, float], None] = lambda _key, _seconds: None,
        node_at: Callable[[Address | None], int] = lambda _address: UNKNOWN_NODE,
    ) -> None:
        """`routes` is asked once a second and at `refresh_routes`; `keep_alive` gives what keeps upstream alive.

        `introduction` is what brokers answer to clients they know only; None: every client is taken as known.
        `node_at` says which broker advertises an address; UNKNOWN_NODE where none does.
        `served` is told the API key of each request that was answered here, and how long that took.
        """
        self.reactor = reactor
        self._get_routes = routes
        self.limits = limits
        self.notes = notes
        self.dial = dial
        self.client_tls = client_tls
        self.upstream_tls = upstream_tls
        self._upstream_server_name = upstream_server_name
        self.keep_alive = keep_alive
        self.introduction = introduction
        self.served = served
        self.node_at = node_at
        self.budget = budget or AnswerBudget(limits.local_answers_total_bytes)
        self.gathered = GatherBudget(limits.gathered_total_bytes)
        self.slices = slices or Slices(reactor)
        self.routes = Routes()
        self.passing = NOTHING_PASSES
        self._ports: dict[int, Port] = {}
        self._connections: dict[int, ForwardedConnection] = {}
        self._by_address: Counter[str] = Counter()
        """Connections by the client's address."""
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
        """Serve a broker (UNKNOWN_NODE: bootstrap) on host:port; connections go to the first target that answers.

        Returns:
            the port, for callers that gave 0.

        Raises:
            OSError: the port is taken, above 65535, or not allowed; the text says which.
        """
        entry = Port(node_id, targets, Context(node_id))
        sockets = bind(host, port)
        self.close_listener(node_id)
        entry.listeners = tuple(self._listener(entry, sock) for sock in sockets)
        self._ports[node_id] = entry
        return entry.number

    def close_listener(self, node_id: int) -> None:
        """Accept no more for this broker; its connections stay. Harmless when there is none."""
        entry = self._ports.pop(node_id, None)
        for listener in entry.listeners if entry is not None else ():
            listener.close()

    def stop_accepting(self) -> None:
        """Close all listeners."""
        self._accepts = False
        for node_id in list(self._ports):
            self.close_listener(node_id)

    async def drained(self, deadline: float) -> bool:
        """Let what is in flight finish until `deadline` (reactor.now()); idle connections end at once.

        Returns:
            False when some had to be cut.
        """
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
        """Close all connections and listeners at once."""
        self._closed = True
        self.stop_accepting()
        self._alarm.cancel()
        for connection in list(self._connections.values()):
            connection.end("connection-cut", reason="the proxy stops")
        for linger in list(self._lingering):
            linger.end()

    def statistics(self) -> PlaneStatistics:
        """What the metrics show of connections and bytes."""
        alive = self._connections.values()
        return PlaneStatistics(
            connections=len(alive),
            connections_total=self._totals["connections"],
            upstream_connections=sum(connection.broker is not None for connection in alive),
            in_flight=sum(connection.in_flight for connection in alive),
            muted=sum(connection.state.now.is_muted for connection in alive),
            local_answers_total=self._totals["local_answers"],
            local_answer_bytes=self.budget.used,
            local_answers_without_room=self.budget.refusals,
            gathered_bytes=self.gathered.used,
            gathered_without_room=self.gathered.refusals,
            bytes_up=self._totals["bytes_up"] + sum(connection.requests.bytes for connection in alive),
            bytes_down=self._totals["bytes_down"] + sum(connection.answers.bytes for connection in alive),
            unsent_bytes=sum(connection.unsent for connection in alive),
            ended=dict(self._ended),
        )

    def refresh_routes(self) -> None:
        """Take the routes anew, for all connections; a request that has begun keeps its treatment."""
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
        """A number no other connection of this process has."""
        return next(self._ids)

    def upstream_transport(self, dialled: Dialled) -> Transport:
        """What a connection speaks with a broker through."""
        if self.upstream_tls is None:
            return PlainTransport(self.reactor, dialled.sock)
        return TlsTransport(
            self.reactor,
            dialled.sock,
            self.upstream_tls,
            server_side=False,
            server_hostname=self._upstream_server_name or dialled.address.host,
            handshake_timeout_s=self.limits.dial_timeout_s,
        )

    def count_local_answer(self) -> None:
        """An answer was made here."""
        self._totals["local_answers"] += 1

    def hold(self, held: HeldBytes, change: int) -> None:
        """See held_bytes.Account.

        Where it is more than all may keep, those with the longest unfinished requests end, the newcomer among them.
        """
        gathered = self.gathered
        gathered.used += change
        while change > 0 and gathered.is_overdrawn:
            everybody = (connection.held for connection in self._connections.values())
            longest = max(everybody, key=_unfinished, default=held)
            if not longest.unfinished:
                longest = held
            gathered.refusals += 1
            text = f"no room for it: limits.gathered_total_bytes ({gathered.limit}) are in use"
            if longest is held:
                raise RequestRefused(text)
            longest.write_off(text)

    def linger(self, peer: PeerSocket, answer_bytes: int = 0) -> None:
        """Send what waits for this peer, let it end, then close; `answer_bytes` leave the budget with it."""
        deadline = self.reactor.now() + self.limits.stalled_client_s
        linger = Linger(peer, deadline, self.reactor.now, self._lingered)
        self._lingering[linger] = answer_bytes
        if self._closed:
            linger.end()
        else:
            linger.proceed()

    def forget(self, connection: EndedConnection, event: str, context: Mapping[str, Any]) -> None:
        """A connection has ended; says so."""
        del self._connections[connection.id]
        self._by_address[connection.client_host] -= 1
        if not self._by_address[connection.client_host]:
            del self._by_address[connection.client_host]
        self._ended[event] += 1
        self._totals["bytes_up"] += connection.requests.bytes
        self._totals["bytes_down"] += connection.answers.bytes
        self.notes(
            event, connection=connection.id, client=connection.client_host, node_id=connection.node_id, **context
        )
        self._check_empty()

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
        connection = ForwardedConnection(self, entry, self._client_transport(sock), client_host)
        self._connections[connection.id] = connection
        self._by_address[client_host] += 1
        self._totals["connections"] += 1

    def _limit_reached(self, client_host: str) -> str:
        """Which limit has no room for one more, in words; empty when there is room.

        A socket that still sends what was left, after its connection ended, keeps a descriptor and counts as well.
        """
        limits = self.limits
        if len(self._connections) + len(self._lingering) >= limits.connections:
            return f"limits.connections ({limits.connections}) is reached"
        most = limits.connections_per_address
        if most is not None and self._by_address[client_host] >= most:
            return f"limits.connections_per_address ({most}) is reached"
        return ""

    def _client_transport(self, sock: socket.socket) -> Transport:
        if self.client_tls is None:
            return PlainTransport(self.reactor, sock)
        return TlsTransport(
            self.reactor,
            sock,
            self.client_tls,
            server_side=True,
            server_hostname=None,
            handshake_timeout_s=HANDSHAKE_S,
        )

    def _sweep(self) -> None:
        now = self.reactor.now()
        self._alarm = self.reactor.call_at(now + SWEEP_S, self._sweep)
        self.refresh_routes()
        for connection in list(self._connections.values()):
            connection.guarded(lambda connection=connection: connection.sweep(now))  # type: ignore[misc]
        for linger in [linger for linger in self._lingering if linger.deadline <= now]:
            linger.end()


def _unfinished(held: HeldBytes) -> int:
    return held.unfinished


def passing(routes: Routes, turns: Turns) -> Passing:
    """Which requests pass without being looked at further. `turns` is told which are looked into."""
    plain: dict[bytes, Route] = {}
    looked: dict[bytes, Look] = {}
    produce = set()
    for name, route in routes.items():
        if route.kind is Kind.PRODUCE and route.serve_here is not None:
            looked[name] = _shortened(route, look_at_beginning(route.serve_here, AcksLook(route.version, route)))
        elif route.kind is Kind.PRODUCE and route.amend is None:
            looked[name] = AcksLook(route.version, route)
            produce.add(name)
        elif route.kind in (Kind.FORWARD, Kind.ANSWER):
            if route.amend is None:
                plain[name] = route
            else:
                looked[name] = _shortened(route, look_to_amend(route.amend, route))
        elif route.kind is Kind.INSPECT and route.serve_here is not None:
            look = look_to_inspect(
                _noted(route, route.serve_here, turns), look_to_amend(route.amend or _unchanged, route)
            )
            looked[name] = _shortened(route, look)
    return Passing(plain, looked, frozenset(produce))


def _noted(route: Route, serve_here: Callable[[memoryview], bool], turns: Turns) -> Callable[[memoryview], bool]:
    """The same, and what takes long in it is told by the name of the request."""
    doing = (None, route)

    def look(frame: memoryview) -> bool:
        turns.doing = doing
        return serve_here(frame)

    return look


def _shortened(route: Route, look: Look) -> Look:
    """In front of the look, what saves it in the common case."""
    if route.repeats:
        return RememberedLook(look)
    if route.amend is not None:
        return look
    if isinstance(route.wants, ContainsAny):
        return WordLook(route.wants.words, look, route)
    if isinstance(route.wants, ByTopicPrefix) and route.kind is Kind.PRODUCE:
        return TopicLook(route.version, route.wants.prefix.encode(), look, route)
    if isinstance(route.wants, ByIdOrTag):
        return IdLook(route.wants.known, route.version, look, route)
    if isinstance(route.wants, ByKnownGroup):
        return GroupLook(route.wants, (route.key, route.version), look, route)
    return look


def _unchanged(_frame: memoryview) -> None:
    """Leave the answer as it is."""
