"""State machine of a client connection, and of its upstream connection.

The client's half follows the way a broker mutes the channel of a client whose request it serves
(SocketServer.ChannelMuteState):

    PASSING ─ a request has to be collected whole ─▶ GATHERING ─ it is complete and for the broker ─▶ PASSING
    GATHERING ─ it is complete and for the proxy ─▶ MUTED ─ all earlier responses are written ─▶ SERVING
    PASSING ─ a request that arrived alone takes the synchronous fast path ─▶ SERVING
    SERVING ─ its handler returned a response ─▶ RESPONDING ─ the kernel has the response ─▶ PASSING
    SERVING ─ the handler left it to the broker ─▶ PASSING
    SERVING ─ its sockets were sent to another process ─▶ MOVING ─ that process refused them ─▶ SERVING
    PASSING ─ a large request of a client not yet known to the broker ─▶ INTRODUCING ─ it is known ─▶ PASSING
    PASSING ─ SaslHandshake v0 was forwarded ─▶ HANDSHAKING ─ the broker responded ─▶ PASSING
    PASSING ─ its sockets were sent to another process, without a request ─▶ MOVING ─ refused ─▶ PASSING
    PASSING ─ bytes were kept after a local request or a pause ─▶ RESUMING ─ the end of the iteration ─▶ PASSING

Every state leads to CLOSED, which is final. A drain is not a state: it waits in any state.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from kafka_share_proxy.loop import faults
from kafka_share_proxy.wire.errors import (
    LocalProtocolError,
    ProxyHeaderRefused,
    RemoteProtocolError,
    ServerNameRefused,
)

MOVED = "connection-moved"
"""Event of a connection that another process continues."""
FAILED = "connection-failed"
"""Event of a connection that an unexpected error ended."""


def event_of(error: Exception) -> str:
    if isinstance(error, ProxyHeaderRefused):
        return "proxy-header-refused"
    if isinstance(error, ServerNameRefused):
        return "server-name-refused"
    if isinstance(error, RemoteProtocolError):
        return "client-protocol-error"
    return "connection-closed" if faults.is_network_trouble(error) else FAILED


class ClientState(Enum):
    """State of the client's half, which decides how its next bytes are handled."""

    PASSING = "requests are forwarded, most of them as their bytes arrive"
    GATHERING = "a request is collected whole"
    MUTED = "a request that is served here waits until all earlier ones have their responses"
    SERVING = "its handler runs"
    MOVING = "another process decides whether it continues the connection"
    RESPONDING = "its response is written to the socket"
    INTRODUCING = "a request of the proxy shows whether the broker knows the client"
    HANDSHAKING = "SaslHandshake v0 has no response yet: raw tokens may follow, or requests"
    RESUMING = "kept bytes are read in a later iteration"
    CLOSED = "the connection has ended"

    def __init__(self, _words: str) -> None:
        self.next: tuple[ClientState, ...] = ()
        self.reads_requests = False
        self.is_muted = False
        self.uses_sockets = True


(
    PASSING,
    GATHERING,
    MUTED,
    SERVING,
    MOVING,
    RESPONDING,
    INTRODUCING,
    HANDSHAKING,
    RESUMING,
    CLOSED,
) = ClientState
"""Constants for each request: looking up a member of an enum by name is slow (CPython 3.11)."""


class UpstreamState(Enum):
    """State of the upstream connection."""

    UNDIALLED = "the client has sent nothing yet"
    DIALLING = "bytes of the client are kept"
    OPEN = "the broker accepts requests"
    REFUSING = "sending failed. Bytes that the broker sent before are still read"

    def __init__(self, _words: str) -> None:
        self.next: tuple[UpstreamState, ...] = ()


CLIENT_STATES: dict[ClientState, tuple[ClientState, ...]] = {
    ClientState.PASSING: (
        ClientState.GATHERING,
        ClientState.SERVING,
        ClientState.INTRODUCING,
        ClientState.HANDSHAKING,
        ClientState.RESUMING,
        ClientState.MOVING,
        ClientState.CLOSED,
    ),
    ClientState.GATHERING: (ClientState.PASSING, ClientState.MUTED, ClientState.CLOSED),
    ClientState.MUTED: (ClientState.SERVING, ClientState.CLOSED),
    ClientState.SERVING: (ClientState.RESPONDING, ClientState.PASSING, ClientState.MOVING, ClientState.CLOSED),
    ClientState.MOVING: (ClientState.SERVING, ClientState.PASSING, ClientState.CLOSED),
    ClientState.RESPONDING: (ClientState.PASSING, ClientState.CLOSED),
    ClientState.INTRODUCING: (ClientState.PASSING, ClientState.CLOSED),
    ClientState.HANDSHAKING: (ClientState.PASSING, ClientState.CLOSED),
    ClientState.RESUMING: (ClientState.PASSING, ClientState.CLOSED),
    ClientState.CLOSED: (),
}

UPSTREAM_STATES: dict[UpstreamState, tuple[UpstreamState, ...]] = {
    UpstreamState.UNDIALLED: (UpstreamState.DIALLING,),
    UpstreamState.DIALLING: (UpstreamState.OPEN,),
    UpstreamState.OPEN: (UpstreamState.REFUSING,),
    UpstreamState.REFUSING: (),
}

for _state, _next in CLIENT_STATES.items():  # looked up for every gathered request: attributes are quicker than a dict
    _state.next = _next
    _state.reads_requests = _state in (ClientState.PASSING, ClientState.GATHERING)
    _state.is_muted = _state in (
        ClientState.MUTED,
        ClientState.SERVING,
        ClientState.MOVING,
        ClientState.RESPONDING,
    )
    _state.uses_sockets = _state not in (ClientState.MOVING, ClientState.CLOSED)
for _upstream, _upstream_next in UPSTREAM_STATES.items():
    _upstream.next = _upstream_next

S = TypeVar("S", ClientState, UpstreamState)


class Progress(Generic[S]):
    """Current state, which changes only as the table allows."""

    __slots__ = ("now",)

    def __init__(self, first: S) -> None:
        self.now: S = first

    def move(self, to: S) -> None:
        """Raises LocalProtocolError, and keeps the state, if the table does not allow the change."""
        if to not in self.now.next:
            raise LocalProtocolError(f"a connection cannot go from {self.now.name} to {to.name}")
        self.now = to
