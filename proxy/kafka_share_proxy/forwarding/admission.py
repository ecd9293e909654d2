"""Admission of clients: limits of connections, PROXY protocol headers and TLS handshakes before a connection exists."""

from __future__ import annotations

import socket
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.forwarding import moved_connection
from kafka_share_proxy.forwarding.connection_state import FAILED, event_of
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.ports import Bind, Port, Ports
from kafka_share_proxy.loop.handshakes import HandshakeLimits, Handshakes
from kafka_share_proxy.loop.interfaces import Transport
from kafka_share_proxy.loop.listeners import bind
from kafka_share_proxy.loop.proxy_headers import ProxyHeaders
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.tls_memory import TlsMemory
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import RequestRefused

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection
    from kafka_share_proxy.forwarding.data_plane import Plane


class Entrance(NamedTuple):
    """Conditions under which clients reach the listeners."""

    names_advice: str = ""
    """Advice for clients with an unknown TLS server name. Empty: they need no name."""
    proxy_headers: ProxyHeaders | None = None
    """Reader of PROXY protocol headers. None if no load balancer sends them."""
    bind: Bind = bind
    """Function that returns the sockets of a listener."""


class Admission:
    """The accepted sockets of one data plane, until they are connections or refused."""

    def __init__(self, plane: Plane, client_tls: TlsContext | None, entrance: Entrance) -> None:
        self._plane = plane
        self._limits = plane.limits
        self.ports = Ports(plane.reactor, plane.notes, self._accept, entrance.names_advice, entrance.bind)
        self._proxy_headers = entrance.proxy_headers
        self.tls_memory = TlsMemory(self._limits.tls_total_bytes)
        self.client_tls = client_tls
        self._handshakes: Handshakes | None = None
        if client_tls is not None:
            limits, names = handshake_limits(self._limits), self.ports.server_names()
            self._handshakes = Handshakes(plane.reactor, client_tls, limits, plane.notes, self.tls_memory, names)
        self._by_address = Counter[str]()
        """Number of connections by host of the client."""
        self.is_open = True
        """False after `close`: each client is refused."""

    def close(self) -> None:
        self.is_open = False
        self.ports.close()
        if self._handshakes is not None:
            self._handshakes.close()
        if self._proxy_headers is not None:
            self._proxy_headers.close()

    @property
    def handshaking(self) -> int:
        """Number of unfinished TLS handshakes."""
        return 0 if self._handshakes is None else self._handshakes.pending

    @property
    def handshakes_refused(self) -> int:
        return 0 if self._handshakes is None else self._handshakes.refused

    @property
    def beginning(self) -> int:
        """Number of accepted sockets that are not connections yet."""
        return self.handshaking + (0 if self._proxy_headers is None else self._proxy_headers.pending)

    def admit_moved(self, moved: messages.MovedClient, client: socket.socket, broker: socket.socket) -> None:
        """Continue a connection of another process. Raises RequestRefused, and then uses neither socket."""
        port = self.ports.of_broker(moved.node_id)
        if not self.is_open or port is None:
            raise RequestRefused("the broker has no listener here" if self.is_open else "the proxy stops")
        if limit := self._limit_reached(moved.client_host):
            raise RequestRefused(limit)
        if self.client_tls is not None or self._plane.upstream_tls is not None:
            raise RequestRefused("TLS is on here")
        connection = self._admit(port, moved.client_host, PlainTransport(self._plane.reactor, client))
        connection.guarded(partial(moved_connection.resume, connection, moved, broker))
        self._plane.client_trace.admitted(connection)

    def forget(self, client_host: str) -> None:
        """Note that a connection of this client has ended."""
        self._by_address[client_host] -= 1
        if not self._by_address[client_host]:
            del self._by_address[client_host]

    def _accept(self, port: Port, sock: socket.socket, host: str) -> None:
        """Accept a connection of a client or of a load balancer, which names its client."""
        headers = self._proxy_headers
        if headers is None or not headers.expects(host):
            self._accept_client(port, sock, host)
        elif not self.is_open or self._is_full:
            self._refuse(sock, host, self._limit_reached(host) if self.is_open else "")
        else:
            headers.begin(sock, host, partial(self._accept_client, port), partial(self._failed, port, host))

    def _accept_client(self, port: Port, sock: socket.socket, client_host: str) -> None:
        limit = self._limit_reached(client_host)
        if not self.is_open or limit:
            self._refuse(sock, client_host, limit)
            return
        self._plane.count_accepted()
        if self._handshakes is None:
            self._begin(port, client_host, PlainTransport(self._plane.reactor, sock))
        else:
            failed = partial(self._failed, port, client_host)
            self._handshakes.begin(sock, client_host, partial(self._admit_tls, port, client_host), failed)

    def _admit_tls(self, port: Port, client_host: str, transport: TlsTransport) -> None:
        selected = self.ports.selected(port, transport.server_name)
        if selected is None:  # the broker was forgotten during the handshake
            transport.close()
        else:
            self._begin(selected, client_host, transport)

    def _begin(self, port: Port, client_host: str, transport: Transport) -> None:
        self._plane.client_trace.admitted(self._admit(port, client_host, transport))

    def _admit(self, port: Port, client_host: str, transport: Transport) -> ForwardedConnection:
        connection = self._plane.begin_connection(port, transport, client_host)
        self._by_address[client_host] += 1
        return connection

    def _refuse(self, sock: socket.socket, client_host: str, limit: str) -> None:
        sock.close()
        self._plane.note_end("connection-limit", client=client_host, reason=limit or "the proxy stops")

    def _failed(self, port: Port, client_host: str, error: Exception) -> None:
        context: dict[str, Any] = {"client": client_host, "node_id": port.node_id, "reason": str(error)}
        event = event_of(error)
        if event == FAILED:
            context["error"] = error
        self._plane.note_end(event, **context)

    @property
    def _is_full(self) -> bool:
        """True at the limit. A socket that still sends bytes after its connection ended counts too."""
        return self._plane.open_sockets + self.beginning >= self._limits.connections

    def _limit_reached(self, client_host: str) -> str:
        """Return the reached limit, or ""."""
        if self._is_full:
            return f"limits.connections ({self._limits.connections}) is reached"
        connections_max = self._limits.connections_per_address
        unfinished = 0 if self._handshakes is None else self._handshakes.of(client_host)
        if connections_max is not None and self._by_address[client_host] + unfinished >= connections_max:
            return f"limits.connections_per_address ({connections_max}) is reached"
        return ""


def handshake_limits(limits: Limits) -> HandshakeLimits:
    """Return half of the limit of connections."""
    total = max(min(limits.tls_handshakes, limits.connections // 2), 1)
    per_address = max(min(limits.tls_handshakes_per_address, total // 2), 1)
    return HandshakeLimits(total, per_address, limits.tls_handshake_s)
