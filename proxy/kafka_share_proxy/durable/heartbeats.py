"""Heartbeats of a member of the group of proxies that the loop repeats, while the group does not change.

Rule: brokers/README.md 24.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kafka_share_proxy.brokers.cluster_connection import ClusterConnection, InFlight
from kafka_share_proxy.brokers.repeated_request import RepeatedRequest, Repetition, content_of
from kafka_share_proxy.brokers.replaced import SILENT_S
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey


class RepeatedHeartbeats:
    """Heartbeats of one member, sent as `brokers.repeated_request` describes."""

    def __init__(self, clock: Callable[[], float], confirmed: Callable[[float], float | None]) -> None:
        """`confirmed`: see `Repetition.responded`, but with the time by `clock`, which counts suspended time too."""
        self.sent = -inf
        """Time by `clock` at which the last one was sent."""
        self._clock = clock
        self._confirmed = confirmed

    def on(self, opened: ClusterConnection, request: messages.HeartbeatRequest) -> RepeatedRequest | None:
        """Return a run of this heartbeat, or None if the loop cannot repeat requests on this connection."""
        repeating = opened.repeating
        if repeating is None:
            return None
        version = opened.common_version(ApiKey.HEARTBEAT)
        frame = opened.request(ApiKey.HEARTBEAT, version, 0, request)

        def next_request(correlation_id: int) -> bytes:
            self.sent = self._clock()
            return frames.with_correlation_id(frame, correlation_id)

        expected = content_of(ApiKey.HEARTBEAT, version, messages.HeartbeatResponse())
        repetition = Repetition(next_request, expected, lambda _sent: self._confirmed(self.sent), SILENT_S)
        return RepeatedRequest(opened, *repeating, repetition)

    async def finish(self, opened: ClusterConnection, in_flight: InFlight) -> messages.HeartbeatResponse:
        """Return the response of the last one. Raises as `ClusterConnection.finish`."""
        version = opened.common_version(ApiKey.HEARTBEAT)
        response: messages.HeartbeatResponse = await opened.finish(ApiKey.HEARTBEAT, version, in_flight)
        return response
