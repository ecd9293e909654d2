"""Time limits of a connection: an idle client, a request that stays incomplete, a client that does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.connection_state import ClientState
from kafka_share_proxy.forwarding.limits import Limits

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

AGE_SPREAD = 0.1
"""Deviation of the age at which connections are closed, so that connections made together do not end together."""
GOLDEN_RATIO = 0.618033988749895
"""The fractional parts of its multiples are spread evenly over 0 to 1 (a Weyl sequence)."""


class Timeouts:
    """Time limits of one connection, checked once a second."""

    __slots__ = ("_bytes", "_limits", "_progress", "_spread", "_stalled_s", "opened_at", "waits_s")

    def __init__(self, limits: Limits, opened_at: float, number: int) -> None:
        """`number`: the number of this connection, by which the ages of connections are spread."""
        self._limits = limits
        self.opened_at = opened_at
        self.waits_s = 0
        """Seconds for which the client has waited for a response without a byte of it."""
        self._bytes = 0
        """Response bytes of the connection at the last check."""
        self._spread = 1 - AGE_SPREAD + 2 * AGE_SPREAD * (number * GOLDEN_RATIO % 1)
        self._progress = 0
        """Bytes that the client had accepted at the last check."""
        self._stalled_s = 0

    def overdue(self, connection: ForwardedConnection, now: float) -> tuple[str, str] | None:
        """Return the event and the reason with which the connection has to end, or None."""
        limits, requests = self._limits, connection.requests
        self._count_wait(connection.in_flight, connection.responses.bytes)
        if connection.state.now is ClientState.RESPONDING and self._stalls(connection.client.progress):
            return "client-stalled", f"accepted no byte for {limits.stalled_client_s:g} s"
        if requests.gathering is not None and now - requests.gathering_since > limits.gathering_s:
            text = f"a request was still incomplete after limits.gathering_s ({limits.gathering_s:g})"
            return "request-refused", text
        if requests.quiet_s > limits.idle_client_s and not connection.in_flight:
            return "connection-closed", "client idle"
        return None

    def _count_wait(self, in_flight: int, response_bytes: int) -> None:
        """Count the seconds without a byte of a response that the client waits for."""
        self.waits_s = self.waits_s + 1 if in_flight and response_bytes == self._bytes else 0
        self._bytes = response_bytes

    def is_old(self, now: float) -> bool:
        """Return True if the connection has reached `limits.connection_age_s`."""
        age_s = self._limits.connection_age_s
        return age_s is not None and now - self.opened_at >= age_s * self._spread

    def _stalls(self, progress: int) -> bool:
        """True if the client accepted no byte of a response for `stalled_client_s`."""
        self._stalled_s = self._stalled_s + 1 if progress == self._progress else 0
        self._progress = progress
        return self._stalled_s > self._limits.stalled_client_s
