"""History of each connection."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kafka_share_proxy.conformance.judge.events import ReceivedFrame, ReceivedRequest, SentResponse
from kafka_share_proxy.conformance.judge.response_codes import error_codes
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

METADATA_KEPT = 32
"""Number of Metadata requests whose time is kept."""
LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
COORDINATOR_ERRORS = frozenset({ErrorCode.NOT_COORDINATOR})


@dataclass(slots=True)
class Streak:
    """Consecutive requests with the same body, each with an error in its response."""

    body: tuple[int, int, int] = (0, 0, 0)
    """Key, version and hash of the body."""
    since: float = 0.0
    count: int = 0
    failed: bool = False
    """True if the last of them has an error in its response."""


@dataclass(slots=True)
class ConnectionHistory:
    """One connection."""

    number: int
    host: str
    client_id: str | None = None
    requests: int = 0
    last_correlation_id: int | None = None
    negotiated: bool = False
    """True after an ApiVersions request."""
    handshake: bool = False
    """True after a SaslHandshake that was accepted."""
    throttled_at: float = 0.0
    """Time of the last response with a throttle time."""
    throttled_until: float = 0.0
    pending: ReceivedRequest | None = None
    """Request without response."""
    metadata: deque[float] = field(default_factory=lambda: deque(maxlen=METADATA_KEPT))
    streak: Streak = field(default_factory=Streak)
    wrong_leader: int = 0
    """Requests that failed because this node is not the leader, since the last Metadata of the client."""
    wrong_coordinator: int = 0
    """The same for the coordinator and FindCoordinator."""

    def on_frame(self, event: ReceivedFrame) -> None:
        self.requests += 1
        self.client_id = event.client_id
        self.last_correlation_id = event.correlation_id

    def on_request(self, event: ReceivedRequest) -> None:
        self.pending = event
        self.negotiated |= event.key == ApiKey.API_VERSIONS
        if event.key == ApiKey.METADATA:
            self.metadata.append(event.at)
        body = body_of(event)
        if body != self.streak.body or not self.streak.failed:
            self.streak = Streak(body, event.at)
        self.streak.count += 1
        self.streak.failed = False

    def on_response(self, event: SentResponse) -> None:
        self.pending = None
        if event.response is None:
            return
        codes = set(error_codes(event.response))
        self.streak.failed = bool(codes)
        if event.received.key == ApiKey.SASL_HANDSHAKE:
            self.handshake = not codes
        throttle_ms = getattr(event.response, "throttle_time_ms", 0)
        if throttle_ms > 0 and event.delivered:
            self.throttled_at, self.throttled_until = event.at, event.at + throttle_ms / 1000
        self.wrong_leader += bool(codes & LEADER_ERRORS)
        self.wrong_coordinator += bool(codes & COORDINATOR_ERRORS)


def body_of(event: ReceivedRequest) -> tuple[int, int, int]:
    """Return a value that is equal for requests that differ in their correlation id only."""
    return event.key, event.version, hash(event.frame[8:])
