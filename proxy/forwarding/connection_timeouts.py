"""What ends a connection although no event tells: silence, a request that never ends, a client that takes nothing."""

from __future__ import annotations

from typing import Protocol

from proxy.forwarding.connection_state import ClientState, Progress
from proxy.forwarding.gathering import Gathering
from proxy.forwarding.peer_socket import PeerSocket
from proxy.wire.values import Limits


class TimedStream(Protocol):
    """What is read from the client."""

    quiet_s: int
    """Seconds since the last byte."""
    gathering: Gathering | None
    """The request that is being gathered."""
    gathering_since: float
    """When the gathering began, in seconds of the loop's clock."""


class Timed(Protocol):
    """The connection whose time may be up."""

    @property
    def state(self) -> Progress[ClientState]:
        """What becomes of the client's next bytes."""

    @property
    def client(self) -> PeerSocket:
        """Where the answer to a local request is sent."""

    @property
    def requests(self) -> TimedStream:
        """What is read from the client."""

    @property
    def in_flight(self) -> int:
        """Requests of the client that wait for an answer."""


class Timeouts:
    """Those of one connection; looked at once a second."""

    __slots__ = ("_limits", "_progress", "_stalled_s")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._progress = 0
        self._stalled_s = 0

    def overdue(self, connection: Timed, now: float) -> tuple[str, str] | None:
        """The event and the reason with which the connection is to end; None: its time is not up."""
        limits, requests = self._limits, connection.requests
        if connection.state.now is ClientState.ANSWERING and self._stalls(connection.client.progress):
            return "client-stalled", f"took no byte for {limits.stalled_client_s:g} s"
        if requests.gathering is not None and now - requests.gathering_since > limits.gathering_s:
            text = f"a request had not come whole after limits.gathering_s ({limits.gathering_s:g})"
            return "request-refused", text
        if requests.quiet_s > limits.idle_client_s and not connection.in_flight:
            return "connection-closed", "client idle"
        return None

    def _stalls(self, progress: int) -> bool:
        """Whether the client took nothing of an answer for so many looks in a row."""
        self._stalled_s = self._stalled_s + 1 if progress == self._progress else 0
        self._progress = progress
        return self._stalled_s > self._limits.stalled_client_s
