"""Ports of the data plane: the listeners at which clients reach the bootstrap address and each broker."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka_share_proxy.forwarding.dispatch.routes import Context
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.listeners import Listener, bind
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.server_names import ServerNames
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

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


class Ports:
    """All ports of the data plane, by the node id of their broker."""

    def __init__(
        self,
        reactor: Reactor,
        notes: Notes,
        accept: Callable[[Port, socket.socket, str], None],
        names_advice: str = "",
        bind: Bind = bind,
    ) -> None:
        """`accept` is called with the port, the socket, and the host of its peer. `names_advice`: see Entrance."""
        self._reactor = reactor
        self._notes = notes
        self._accept = accept
        self._names_advice = names_advice
        self._bind = bind
        self._ports: dict[int, Port] = {}
        self._by_name: dict[str, Port] | None = {} if names_advice else None
        """Ports by TLS server name. None: a client reaches the port of its listener."""
        self._covered: dict[int, list[Listener]] = {}
        """Listeners of other processes on the same ports, by any number."""

    def listen(
        self, node_id: int, host: str, port: int, targets: Callable[[], Sequence[Address]], name: str = ""
    ) -> int:
        """Listen for a broker (UNKNOWN_NODE: bootstrap) and return the port. `name`: its own TLS server name.

        Raises OSError with a reason: the port is in use, above 65535, or not allowed.
        """
        entry = Port(node_id, targets, Context(node_id), host, name=name.lower())
        sockets = self._bind(host, port)
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

    def close(self) -> None:
        for number in list(self._covered):
            self.uncover(number)
        for node_id in list(self._ports):
            self.close_listener(node_id)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Node ids of the brokers, in ascending order."""
        return tuple(sorted(self._ports.keys() - {UNKNOWN_NODE}))

    def of_broker(self, node_id: int) -> Port | None:
        return self._ports.get(node_id)

    def selected(self, port: Port, server_name: str | None) -> Port | None:
        """Return the port that a client at `port` selects by its TLS server name. None if the name is unknown."""
        return port if self._by_name is None else self._by_name.get(server_name or "")

    def server_names(self) -> ServerNames | None:
        """Return the check of TLS server names. None if clients need no name."""
        return ServerNames(self._is_name, self._names_advice) if self._names_advice else None

    def _is_name(self, name: str) -> bool:
        return self._by_name is not None and name in self._by_name

    def _add(self, entry: Port) -> None:
        self.close_listener(entry.node_id)
        self._ports[entry.node_id] = entry
        if self._by_name is not None:
            self._by_name[entry.name] = entry

    def _listener(self, entry: Port, sock: socket.socket) -> Listener:
        def accepted(client: socket.socket, client_host: str) -> None:
            self._accept(entry, client, client_host)

        def trouble(error: Exception) -> None:
            self._notes("accept-failed", node_id=entry.node_id, reason=str(error))

        return Listener(self._reactor, sock, accepted, trouble)
