"""Types that request managers and the senders of requests share (consumer/README.md rules 2-5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.consumer.events import BackgroundEvent
from kafka_share_proxy.wire.definitions.messages import Message

ANY_NODE = -1
"""Any reachable broker, or the bootstrap servers if no broker is known."""


class Lane(Enum):
    """Connection of a node. A fetch of many bytes must not delay a heartbeat."""

    DATA = "data"
    COORDINATOR = "coordinator"
    """Heartbeats and commits."""
    CATCHING_UP = "catching up"
    """Fetches of the second flow, which must not wait at the broker."""
    JOINING = "joining"
    """JoinGroup, whose response is delayed until all members have joined."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnsentRequest:
    """Request that waits to be sent. Compared by identity."""

    sender: RequestManager
    api: str
    """For example "JoinGroup" for JoinGroupRequest."""
    message: Any
    versions: tuple[int, int]
    timeout_s: float
    node_id: int = ANY_NODE
    lane: Lane = Lane.DATA
    context: Any = None

    @property
    def subject(self) -> tuple[str, int | None]:
        """API and node, without the node for requests to the coordinator."""
        return self.api, None if self.lane in (Lane.COORDINATOR, Lane.JOINING) else self.node_id


class FailureKind(Enum):
    """Reason why there is no response."""

    DISCONNECTED = "disconnected"
    """The connection failed or ended. The broker may have processed the request."""
    TIMED_OUT = "timed out"
    """No response arrived in time."""
    UNSUPPORTED_VERSION = "unsupported version"
    """The broker supports none of the versions."""
    AUTHENTICATION = "authentication failed"
    """A retry does not help."""


class RequestFailure(NamedTuple):
    """Failure of a request that got no response."""

    kind: FailureKind
    text: str = ""

    @property
    def reason(self) -> str:
        return self.text or self.kind.value

    @property
    def is_retriable(self) -> bool:
        return self.kind in (FailureKind.DISCONNECTED, FailureKind.TIMED_OUT)


Outcome = Message | RequestFailure


class DueRequests(NamedTuple):
    """Requests, events and next wake-up of a manager."""

    requests: tuple[UnsentRequest, ...] = ()
    wake_at: float = math.inf
    """Monotonic seconds."""
    events: tuple[BackgroundEvent, ...] = ()


class RequestManager(Protocol):
    """Source of requests for one purpose. It sends nothing itself, and never waits."""

    def poll(self, now: float) -> DueRequests: ...

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Called exactly once for each request sent."""
        ...


BACKOFF_BASE = 2
BACKOFF_JITTER = 0.2
"""Fraction by which a backoff is longer or shorter."""


@dataclass(slots=True)
class RetryBackoff:
    """Delay between attempts of a request that fails (ExponentialBackoff.java, KIP-580)."""

    first_s: float
    """retry.backoff.ms"""
    max_s: float
    """retry.backoff.max.ms"""
    jitter: Callable[[], float]
    attempts: int = 0
    ready_at: float = field(default=-math.inf)
    """Monotonic seconds."""

    def failed(self, now: float) -> None:
        pause = min(self.max_s, self.first_s * BACKOFF_BASE ** min(self.attempts, 32))
        pause *= 1 + BACKOFF_JITTER * self.jitter()
        self.attempts += 1
        self.ready_at = now + min(pause, self.max_s)

    def succeeded(self) -> None:
        self.attempts, self.ready_at = 0, -math.inf

    def is_ready(self, now: float) -> bool:
        return now >= self.ready_at
