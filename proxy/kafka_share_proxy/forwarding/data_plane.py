"""The data plane: listeners, connections, limits, drain and figures, on one reactor."""

from __future__ import annotations

import itertools
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from kafka_share_proxy.brokers.dialling import Dial, Dialled
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding import drain_order, moved_connection
from kafka_share_proxy.forwarding.client_trace.client_trace import ClientTrace
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.connection_state import FAILED, MOVED, event_of
from kafka_share_proxy.forwarding.dispatch.passing_requests import passing
from kafka_share_proxy.forwarding.dispatch.routes import Context, Routes
from kafka_share_proxy.forwarding.drain_order import Spread
from kafka_share_proxy.forwarding.held_bytes import HeldBytes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.memory_budget import GatherBudget, ResponseBudget
from kafka_share_proxy.forwarding.peer_socket import Linger, PeerSocket
from kafka_share_proxy.forwarding.plane_statistics import PlaneStatistics
from kafka_share_proxy.forwarding.served.injected_requests import Query
from kafka_share_proxy.forwarding.walk.client_requests import NOTHING_PASSES
from kafka_share_proxy.loop.handshakes import HandshakeLimits, Handshakes
from kafka_share_proxy.loop.interfaces import Notes, Transport
from kafka_share_proxy.loop.listeners import Listener, bind
from kafka_share_proxy.loop.proxy_headers import ProxyHeaders
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.server_names import ServerNames
from kafka_share_proxy.loop.slices import Slices
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.tls_memory import TlsMemory
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import RequestRefused
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.served.tracing import Tracing

SWEEP_S = 1.0
RELEASE_S = 1.0
"""Seconds between the end of a connection and the release of its parts."""
RELEASED_PER_END, RELEASED_PER_SWEEP = 2, 300
"""Maximum number of connections released per ended connection, and per second: 10 us each."""


Bind = Callable[[str, int], list[socket.socket]]
"""Function that returns listening sockets for a host and a port. Raises OSError with a reason."""


@dataclass(slots=True, eq=False)
class Port:
    """Data that all connections of one listener share."""

    node_id: int
    """Node id of the listener's broker. UNKNOWN_NODE for the bootstrap listener."""
    targets: Callable[[], Sequence[Address]]
    """Function that returns the upstream addresses. Connections go to the first one that accepts."""
    context: Context
    host: str = ""
    listeners: tuple[Listener, ...] = ()
    """Empty if clients select the broker by the TLS server name at the bootstrap listener."""
    name: str = ""
    """TLS server name that selects it, in small letters. Empty if the listener does."""

    @property
    def number(self) -> int:
        return self.listeners[0].port


@dataclass(frozen=True, slots=True)
class Entrance:
    """How clients reach the listeners."""

    names_advice: str = ""
    """What clients with an unknown TLS server name have to do. Empty: they need no name."""
    proxy_headers: ProxyHeaders | None = None
    """Reader of PROXY protocol headers. None if no load balancer sends them."""
    bind: Bind = bind
    """Function that returns the sockets of a listener."""


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
        entrance: Entrance = Entrance(),
        tracing: Tracing | None = None,
    ) -> None:
        """`routes` is called once a second and by `refresh_routes`."""
        self.reactor = reactor
        self._get_routes = routes
        self.limits, self.notes, self.dial = limits, notes, dial
        self.client_tls = client_tls
        self._tls_memory = TlsMemory(limits.tls_total_bytes)
        self._by_name: dict[str, Port] | None = {} if entrance.names_advice else None
        """Ports by TLS server name. None: a client reaches the port of its listener."""
        self._entrance, self._proxy_headers = entrance, entrance.proxy_headers
        self._handshakes = None if client_tls is None else self._new_handshakes(client_tls, entrance.names_advice)
        self.upstream_tls, self._upstream_server_name = upstream_tls, upstream_server_name
        self.keep_alive = keep_alive
        """Returns a request to keep an idle upstream connection open, or None."""
        self.tracing, self.introduction = tracing, introduction
        """Recorder of served requests, None if tracing is off; request that brokers serve for known clients only."""
        self.moves_away: Callable[[ForwardedConnection], bool] = lambda _connection: False
        """Sends a connection that drains to another process, between two requests. Returns False if it stays."""
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
        self._covered: dict[int, list[Listener]] = {}
        """Listeners of other processes on the same ports, by any number."""
        self._connections: dict[int, ForwardedConnection] = {}
        self._to_release: deque[tuple[float, ForwardedConnection]] = deque()
        """Ended connections with the time of their end."""
        self._by_address = Counter[str]()
        self._lingering: dict[Linger, int] = {}
        self._ids, self.accepts, self._closed = itertools.count(1), True, False
        self._empty: trio.Event | None = None
        self.client_trace = ClientTrace(reactor, self.connections, notes)
        self._ended, self._totals = Counter[str](), Counter[str]()
        self.refresh_routes()
        self._alarm = reactor.call_at(reactor.now() + SWEEP_S, self._sweep)

    def _new_handshakes(self, tls: TlsContext, names_advice: str) -> Handshakes:
        names = ServerNames(self._is_name, names_advice) if names_advice else None
        return Handshakes(self.reactor, tls, handshake_limits(self.limits), self.notes, self._tls_memory, names)

    # listeners

    def listen(
        self, node_id: int, host: str, port: int, targets: Callable[[], Sequence[Address]], name: str = ""
    ) -> int:
        """Listen for a broker (UNKNOWN_NODE: bootstrap) and return the port. `name`: its own TLS server name.

        Raises OSError with a reason: the port is in use, above 65535, or not allowed.
        """
        entry = Port(node_id, targets, Context(node_id), host, name=name.lower())
        sockets = self._entrance.bind(host, port)
        self._add(entry)
        entry.listeners = tuple(self._listener(entry, sock) for sock in sockets)
        return entry.number

    def serve_by_name(self, node_id: int, name: str, targets: Callable[[], Sequence[Address]]) -> None:
        """Serve a broker to clients of the bootstrap listener that request this TLS server name."""
        self._add(Port(node_id, targets, Context(node_id), name=name.lower()))

    def close_listener(self, node_id: int) -> None:
        entry = self._ports.pop(node_id, None)
        if entry is None:
            return
        for listener in entry.listeners:
            listener.close()
        if self._by_name is not None:
            self._by_name.pop(entry.name, None)

    def cover(self, number: int, bind: Bind) -> None:
        """Accept the clients of another process on the same ports too. `bind` returns its sockets.

        Raises OSError, and then covers nothing.
        """
        self.uncover(number)
        listeners = self._covered[number] = []
        try:
            for entry in [each for each in self._ports.values() if each.listeners]:
                listeners += [self._listener(entry, sock) for sock in bind(entry.host, entry.number)]
        except OSError:
            self.uncover(number)
            raise

    def uncover(self, number: int) -> None:
        """End what `cover` began. Accepted connections stay."""
        for listener in self._covered.pop(number, ()):
            listener.close()

    def stop_accepting(self) -> None:
        self.accepts = False
        for number in list(self._covered):
            self.uncover(number)
        for node_id in list(self._ports):
            self.close_listener(node_id)
        if self._handshakes is not None:
            self._handshakes.close()
        if self._proxy_headers is not None:
            self._proxy_headers.close()

    async def drained(self, deadline: float, spread: Spread | None = None) -> bool:
        """Let requests in flight finish until `deadline`. Return False if connections had to be cut.

        `spread`: when connections are closed one after the other. Each is served until then.
        """
        self.stop_accepting()
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

    def close(self) -> None:
        self._closed = True
        self.client_trace.finish("the proxy stops")
        self.stop_accepting()
        self._alarm.cancel()
        for connection in list(self._connections.values()):
            connection.end("connection-cut", reason="the proxy stops")
        for linger in list(self._lingering):
            linger.end()

    @property
    def is_idle(self) -> bool:
        return not (self._connections or self._lingering or self._beginning)

    def connections(self) -> Iterable[ForwardedConnection]:
        return self._connections.values()

    def statistics(self) -> PlaneStatistics:
        alive = self._connections.values()
        here = [connection for connection in alive if not connection.is_moving]
        return PlaneStatistics(
            connections=len(here),
            connections_total=self._totals["connections"],
            connections_moved_total=self._ended[MOVED],
            tls_handshakes=self._handshaking,
            tls_handshakes_refused_total=0 if self._handshakes is None else self._handshakes.refused,
            tls_bytes=self._tls_memory.used,
            upstream_connections=sum(connection.broker is not None for connection in here),
            in_flight=sum(connection.in_flight for connection in here),
            muted=sum(connection.state.now.is_muted for connection in here),
            local_answers_total=self._totals["local_answers"],
            local_answer_bytes=self.budget.used,
            local_answers_without_room=self.budget.refusals,
            gathered_bytes=self.gathered.used,
            gathered_without_room=self.gathered.refusals,
            bytes_up=self._totals["bytes_up"] + sum(connection.requests.bytes for connection in alive),
            bytes_down=self._totals["bytes_down"] + sum(connection.responses.bytes for connection in alive),
            unsent_bytes=sum(connection.unsent for connection in alive),
            ended={event: count for event, count in self._ended.items() if event != MOVED},
        )

    def refresh_routes(self) -> None:
        """Load the current routes."""
        routes = self._get_routes()
        if routes is self.routes:
            return
        self.routes = routes
        self.passing = passing(routes, self.reactor.iterations)
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

    def _add(self, entry: Port) -> None:
        self.close_listener(entry.node_id)
        self._ports[entry.node_id] = entry
        if self._by_name is not None:
            self._by_name[entry.name] = entry

    def _is_name(self, name: str) -> bool:
        return self._by_name is not None and name in self._by_name

    def _listener(self, entry: Port, sock: socket.socket) -> Listener:
        def accepted(client: socket.socket, client_host: str) -> None:
            self._accept(entry, client, client_host)

        def trouble(error: Exception) -> None:
            self.notes("accept-failed", node_id=entry.node_id, reason=str(error))

        return Listener(self.reactor, sock, accepted, trouble)

    def _accept(self, entry: Port, sock: socket.socket, host: str) -> None:
        """Accept a connection of a client or of a load balancer, which names its client."""
        headers = self._proxy_headers
        if headers is None or not headers.expects(host):
            self._accept_client(entry, sock, host)
        elif not self.accepts or self._is_full:
            self._refuse(sock, host, self._limit_reached(host) if self.accepts else "")
        else:
            headers.begin(sock, host, partial(self._accept_client, entry), partial(self._not_admitted, entry, host))

    def _accept_client(self, entry: Port, sock: socket.socket, client_host: str) -> None:
        limit = self._limit_reached(client_host)
        if not self.accepts or limit:
            self._refuse(sock, client_host, limit)
            return
        self._totals["connections"] += 1
        if self._handshakes is None:
            self.client_trace.admitted(self._admit(entry, client_host, PlainTransport(self.reactor, sock)))
        else:
            failed = partial(self._not_admitted, entry, client_host)
            self._handshakes.begin(sock, client_host, partial(self._admit_tls, entry, client_host), failed)

    def _refuse(self, sock: socket.socket, client_host: str, limit: str) -> None:
        sock.close()
        self._ended["connection-limit"] += 1
        self.notes("connection-limit", client=client_host, reason=limit or "the proxy stops")

    def _admit_tls(self, entry: Port, client_host: str, transport: TlsTransport) -> None:
        named = entry if self._by_name is None else self._by_name.get(transport.server_name or "")
        if named is None:  # the broker was forgotten during the handshake
            transport.close()
        else:
            self.client_trace.admitted(self._admit(named, client_host, transport))

    def admit_moved(self, moved: messages.MovedClient, client: socket.socket, broker: socket.socket) -> None:
        """Continue a connection of another process. Raises RequestRefused, and then uses neither socket."""
        entry = self._ports.get(moved.node_id)
        if not self.accepts or entry is None:
            raise RequestRefused("the broker has no listener here" if self.accepts else "the proxy stops")
        if limit := self._limit_reached(moved.client_host):
            raise RequestRefused(limit)
        if self.client_tls is not None or self.upstream_tls is not None:
            raise RequestRefused("TLS is on here")
        connection = self._admit(entry, moved.client_host, PlainTransport(self.reactor, client))
        connection.guarded(partial(moved_connection.resume, connection, moved, broker))
        self.client_trace.admitted(connection)

    def _admit(self, entry: Port, client_host: str, transport: Transport) -> ForwardedConnection:
        connection = ForwardedConnection(self, entry, transport, client_host)
        self._connections[connection.id] = connection
        self._by_address[client_host] += 1
        return connection

    def _not_admitted(self, entry: Port, client_host: str, error: Exception) -> None:
        context: dict[str, Any] = {"client": client_host, "node_id": entry.node_id, "reason": str(error)}
        event = event_of(error)
        if event == FAILED:
            context["error"] = error
        self._ended[event] += 1
        self.notes(event, **context)

    @property
    def _handshaking(self) -> int:
        return 0 if self._handshakes is None else self._handshakes.pending

    @property
    def _beginning(self) -> int:
        """Number of accepted sockets that are not connections yet."""
        return self._handshaking + (0 if self._proxy_headers is None else self._proxy_headers.pending)

    @property
    def _is_full(self) -> bool:
        """True at the limit. A socket that still sends bytes after its connection ended counts too."""
        return len(self._connections) + len(self._lingering) + self._beginning >= self.limits.connections

    def _limit_reached(self, client_host: str) -> str:
        """Return the reached limit, or ""."""
        if self._is_full:
            return f"limits.connections ({self.limits.connections}) is reached"
        most = self.limits.connections_per_address
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
