"""The upstream connection of one client connection: dialled at the client's first bytes, and shared with no other."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafka_share_proxy.brokers.dialling import Dialled
from kafka_share_proxy.forwarding.connection_state import Progress, UpstreamState
from kafka_share_proxy.forwarding.peer_socket import PeerSocket
from kafka_share_proxy.loop.interfaces import Data, Transport
from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport
from kafka_share_proxy.wire.values import Address

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection


class UpstreamConnection:
    """Dial, socket and end of an upstream connection."""

    __slots__ = ("_cancel_dial", "_connection", "socket", "state")

    def __init__(self, connection: ForwardedConnection) -> None:
        self._connection = connection
        self.socket: PeerSocket | None = None
        """None until the dial begins. While the broker is being dialled, it keeps the client's bytes."""
        self.state = Progress(UpstreamState.UNDIALLED)
        self._cancel_dial: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        return self.state.now is UpstreamState.OPEN

    @property
    def refuses(self) -> bool:
        return self.state.now is UpstreamState.REFUSING

    @property
    def has_unsent(self) -> bool:
        return self.socket is not None and self.socket.has_unsent

    @property
    def unsent(self) -> int:
        return 0 if self.socket is None else self.socket.unsent

    def send(self, data: Data) -> None:
        """Send to the broker, or keep the bytes until it accepts them. The first ones start the dial."""
        if self.socket is None:
            self.socket = self._begin_dial()
            connection = self._connection
            self._cancel_dial = connection.plane.dial(connection.port.targets(), self._dialled)
        if self.state.now is UpstreamState.REFUSING:
            return
        try:
            self.socket.write(data)
        except OSError:
            self.refuse()

    def flush(self) -> None:
        """Send the bytes that waited, and continue the connection."""
        if self.socket is None:
            return
        try:
            self.socket.flush()
        except OSError:
            self.refuse()
            return
        self._connection.held.update()
        self._connection.update()

    def resume(self, sock: socket.socket, address: Address) -> None:
        """Use the socket to the broker of a connection that another process began."""
        self.socket = self._begin_dial()
        self.connected(Dialled(sock, address))

    def _begin_dial(self) -> PeerSocket:
        self.state.move(UpstreamState.DIALLING)
        return PeerSocket()

    def _dialled(self, result: Dialled | OSError) -> None:
        """Continue in the loop, where an exception ends only this connection. Called from a Trio task."""
        self._cancel_dial = None
        self._connection.call_soon(partial(self.connected, result))

    def connected(self, result: Dialled | OSError) -> None:
        connection, broker = self._connection, self.socket
        if isinstance(result, OSError):
            connection.end("upstream-unreachable", reason=str(result))
            return
        if broker is None or (connection.closed and not broker.has_unsent):
            result.sock.close()
            return
        connection.reached = result.address
        transport = connection.plane.upstream_transport(result)
        broker.open(transport)
        if connection.closed:  # the client sent (acks=0) and left before the connection was established
            connection.plane.linger(broker)
            return
        self.state.move(UpstreamState.OPEN)
        connection.requests.connected(transport)
        connection.responses.connected(transport)
        transport.attach(connection.responses.ready, READ)
        self.let_pass(transport)
        self.flush()

    def let_pass(self, broker: Transport) -> None:
        """Let C forward bytes if the broker's side uses a plain socket, and the client's no trace."""
        connection = self._connection
        peer, reactor = connection.client.transport, connection.plane.reactor
        client = peer if isinstance(peer, PlainTransport | TlsTransport) and peer.is_established else None
        if client is not None and isinstance(broker, PlainTransport):
            requests, responses = connection.requests, connection.responses
            requests.send_later = reactor.pass_on(client.fd, requests, broker.fd, client.buffers)
            reactor.pass_on(broker.fd, responses, client.fd, None, client.buffers)

    def refuse(self) -> None:
        """Handle a failed send. Bytes that the broker sent before are still forwarded."""
        if self.state.now is UpstreamState.OPEN:
            self.state.move(UpstreamState.REFUSING)
        if self.socket is not None:
            self.socket.discard()
        self._connection.watch()

    def end(self) -> None:
        """Close the connection. Bytes that the broker has not accepted are sent first."""
        broker = self.socket
        if broker is not None and broker.has_unsent:
            if broker.is_open:
                self._connection.plane.linger(broker)
            return  # if it is still being dialled, `connected` sends the bytes
        if self._cancel_dial is not None:
            self._cancel_dial()
            self._cancel_dial = None
        if broker is not None:
            broker.close()
