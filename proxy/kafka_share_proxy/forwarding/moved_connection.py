"""State of a connection that moves to another process with its sockets: conditions, and conversion to bytes.

Rules: fleet/README.md 22 to 24.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.client_software import ClientSoftware
from kafka_share_proxy.forwarding.connection_state import ClientState
from kafka_share_proxy.loop.transports import PlainTransport
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.codec.frame_sizes import SIZE
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import Address

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

MOVES_MAX = 3
"""Maximum number of moves of one connection between processes that accept clients."""
UNREAD_BYTES_MAX = 64 << 10
"""Maximum bytes of the request being served and of those after it. The kernel accepts about 200 KiB in a message."""
VERSION = 0


def sockets_of(connection: ForwardedConnection, state: ClientState = ClientState.SERVING) -> tuple[int, int] | None:
    """Return the descriptors of the client and its broker. None if the connection cannot move, or not in this state."""
    client, broker = connection.client.transport, connection.upstream.socket
    if broker is None or not isinstance(client, PlainTransport) or not isinstance(broker.transport, PlainTransport):
        return None
    is_open = connection.state.now is state and connection.upstream.is_open and connection.sasl.is_between_exchanges
    has_moves_left = connection.moves < MOVES_MAX or not connection.plane.admission.is_open
    may_move = is_open and connection.is_independent and has_moves_left
    return (client.fd, broker.transport.fd) if may_move else None


def can_be_given(connection: ForwardedConnection) -> bool:
    """Return True if a connection can move between two requests. One that was moved before stays with its owner."""
    client, broker = connection.client.transport, connection.upstream.socket
    if broker is None or connection.moves or connection.is_needed:
        return False
    return isinstance(client, PlainTransport) and isinstance(broker.transport, PlainTransport)


def state_of(connection: ForwardedConnection, request: memoryview | None) -> messages.MovedClient | None:
    """Return the state of a connection at `request`, without its size, or between two. None if too many bytes wait."""
    first = b"" if request is None else SIZE.pack(len(request)) + bytes(request)
    unread = first + connection.requests.unread
    if len(unread) > UNREAD_BYTES_MAX:
        return None
    sasl, software, reached = connection.sasl, connection.software, connection.reached
    return messages.MovedClient(
        node_id=connection.port.node_id,
        client_host=connection.client_host,
        broker_host="" if reached is None else reached.host,
        broker_port=0 if reached is None else reached.port,
        moves=connection.moves + connection.plane.admission.is_open,
        opened_at=connection.timeouts.opened_at,
        is_authenticated=sasl.is_done,
        user=sasl.user,
        session_ends=sasl.expires,
        software=None if software is None else list(software),
        unread=unread,
    )


def begin(connection: ForwardedConnection) -> None:
    """Leave the sockets to another process, until `stay`."""
    connection.state.move(ClientState.MOVING)
    connection.requests.flows = connection.responses.flows = False
    for peer in (connection.client, connection.upstream.socket):
        if peer is not None:
            peer.want(0)


def stay(connection: ForwardedConnection) -> None:
    """Continue the request, because the other process has refused the connection."""
    connection.state.move(ClientState.SERVING)
    connection.update()


def stay_for_good(connection: ForwardedConnection) -> None:
    """Drain a connection that was sent between two requests, because the other process has refused it."""
    connection.state.move(ClientState.PASSING)
    connection.drain(may_move=False)


def stay_open(connection: ForwardedConnection) -> None:
    """Continue a connection that was sent between two requests, because the other process has refused it."""
    connection.state.move(ClientState.PASSING)
    connection.requests.resume_soon()
    connection.update()


def cut(connection: ForwardedConnection) -> None:
    """End both streams, for all processes that have the sockets."""
    for peer in (connection.client, connection.upstream.socket):
        if peer is not None and isinstance(peer.transport, PlainTransport):
            peer.transport.cut()


def resume(connection: ForwardedConnection, moved: messages.MovedClient, broker: socket.socket) -> None:
    """Continue a connection of another process, at the request that it has not served. Raises RemoteProtocolError."""
    connection.note_software(_software_of(moved))
    connection.moves, connection.is_known = moved.moves, True
    connection.timeouts.opened_at = moved.opened_at
    if moved.is_authenticated:
        connection.sasl.resume(moved.user, moved.session_ends)
    if moved.unread:
        connection.requests.begin_with(moved.unread)
    connection.upstream.resume(broker, Address(moved.broker_host, moved.broker_port))


def _software_of(moved: messages.MovedClient) -> ClientSoftware | None:
    """Raises RemoteProtocolError."""
    if moved.software is None:
        return None
    try:
        return ClientSoftware(*moved.software)
    except TypeError:
        raise RemoteProtocolError(f"software of {len(moved.software)} fields") from None


def encode(moved: messages.MovedClient) -> bytes:
    return numbered.encode(moved, VERSION)


def decode(data: bytes) -> messages.MovedClient:
    """Raises RemoteProtocolError, also for an unknown version."""
    return numbered.decode(messages.MovedClient, data, (VERSION,))
