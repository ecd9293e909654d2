"""Where a client connection stands: what becomes of the client's next bytes, and how far its upstream connection is.

The client's half, as a broker mutes the channel of a client whose request it serves (SocketServer.ChannelMuteState):

    PASSING ─ a request is not to pass as its bytes come ─▶ GATHERING ─ it has come whole, to be forwarded ─▶ PASSING
    GATHERING ─ it is to be answered here ─▶ MUTED ─ all earlier answers are written ─▶ SERVING
    PASSING ─ a request that came alone is taken at once, to be answered here ─▶ SERVING
    SERVING ─ its handler answered ─▶ ANSWERING ─ the kernel has the answer ─▶ PASSING
    SERVING ─ the handler had it forwarded ─▶ PASSING
    PASSING ─ a large request of a client that the broker has not vouched for ─▶ INTRODUCING ─ it has ─▶ PASSING
    PASSING ─ SaslHandshake v0 was passed on ─▶ HANDSHAKING ─ the broker answered it ─▶ PASSING
    PASSING ─ bytes were kept behind what was waited for ─▶ RESUMING ─ the end of the turn ─▶ PASSING

Every state leads to CLOSED, which leads nowhere. A drain is no state: it waits for whatever the connection is at.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, TypeVar

from proxy.wire.errors import LocalProtocolError


class ClientState(Enum):
    """What becomes of the client's next bytes."""

    PASSING = "requests are forwarded, most of them as their bytes come"
    GATHERING = "a request is collected whole"
    MUTED = "a request that is answered here waits until all before it are answered"
    SERVING = "its handler runs"
    ANSWERING = "the kernel takes its answer"
    INTRODUCING = "the broker is asked whether it knows the client"
    HANDSHAKING = "the broker has not answered SaslHandshake v0: raw tokens may follow, or requests"
    RESUMING = "kept bytes are looked at when the turn ends"
    CLOSED = "the connection has ended"

    def __init__(self, _words: str) -> None:
        self.next: tuple[ClientState, ...] = ()
        """Where it may lead."""
        self.looks_at_requests = False
        """Whether the next request may be looked at."""
        self.is_muted = False
        """Whether a request is answered here: nothing is read from the client meanwhile."""


class UpstreamState(Enum):
    """How far the upstream connection is."""

    UNDIALLED = "the client has sent nothing yet"
    DIALLING = "what the client sends is kept"
    OPEN = "a broker takes requests"
    REFUSING = "sending failed; what the broker sent before that is still read"

    def __init__(self, _words: str) -> None:
        self.next: tuple[UpstreamState, ...] = ()
        """Where it may lead."""


CLIENT_STATES: dict[ClientState, tuple[ClientState, ...]] = {
    ClientState.PASSING: (
        ClientState.GATHERING,
        ClientState.SERVING,
        ClientState.INTRODUCING,
        ClientState.HANDSHAKING,
        ClientState.RESUMING,
        ClientState.CLOSED,
    ),
    ClientState.GATHERING: (ClientState.PASSING, ClientState.MUTED, ClientState.CLOSED),
    ClientState.MUTED: (ClientState.SERVING, ClientState.CLOSED),
    ClientState.SERVING: (ClientState.ANSWERING, ClientState.PASSING, ClientState.CLOSED),
    ClientState.ANSWERING: (ClientState.PASSING, ClientState.CLOSED),
    ClientState.INTRODUCING: (ClientState.PASSING, ClientState.CLOSED),
    ClientState.HANDSHAKING: (ClientState.PASSING, ClientState.CLOSED),
    ClientState.RESUMING: (ClientState.PASSING, ClientState.CLOSED),
    ClientState.CLOSED: (),
}
"""ClientState of the client's half -> where it may lead."""

UPSTREAM_STATES: dict[UpstreamState, tuple[UpstreamState, ...]] = {
    UpstreamState.UNDIALLED: (UpstreamState.DIALLING,),
    UpstreamState.DIALLING: (UpstreamState.OPEN,),
    UpstreamState.OPEN: (UpstreamState.REFUSING,),
    UpstreamState.REFUSING: (),
}
"""ClientState of the upstream connection -> where it may lead. Its end is that of the client's half."""

for _state, _next in CLIENT_STATES.items():  # looked up with every gathered request: attributes are quicker than a dict
    _state.next = _next
    _state.looks_at_requests = _state in (ClientState.PASSING, ClientState.GATHERING)
    _state.is_muted = _state in (ClientState.MUTED, ClientState.SERVING, ClientState.ANSWERING)
for _upstream, _upstream_next in UPSTREAM_STATES.items():
    _upstream.next = _upstream_next

S = TypeVar("S", ClientState, UpstreamState)


class Progress(Generic[S]):
    """The state that something is in, which changes only as the table says."""

    __slots__ = ("now",)

    def __init__(self, first: S) -> None:
        self.now: S = first

    def move(self, to: S) -> None:
        """Go on to another state.

        Raises:
            LocalProtocolError: the state of now does not lead there; it stays as it is.
        """
        if to not in self.now.next:
            raise LocalProtocolError(f"a connection cannot go from {self.now.name} to {to.name}")
        self.now = to
