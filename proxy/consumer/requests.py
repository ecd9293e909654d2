"""What managers of requests and whoever sends requests have in common (consumer/README.md rules 2-5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from proxy.consumer.events import BackgroundEvent
from proxy.wire.messages import Message

ANY_NODE = -1
"""Any broker that can be reached; the bootstrap servers where none is known."""


class Lane(Enum):
    """Which connection to a node a request takes: a fetch of many bytes must not delay a heartbeat."""

    DATA = "data"
    COORDINATOR = "coordinator"
    """The lane of heartbeats and commits."""
    CATCHING_UP = "catching up"
    """What a second flow reads: it does not wait behind a Fetch that waits for the newest records."""
    JOINING = "joining"
    """JoinGroup is answered when all members are there, and a broker takes one request of a connection at a time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnsentRequest:
    """A request that somebody is to send; it is told apart by identity."""

    sender: RequestManager
    """Who is given the outcome."""
    api: str
    """"JoinGroup" of JoinGroupRequest."""
    message: Any
    versions: tuple[int, int]
    """The lowest and the highest that the sender understands."""
    timeout_s: float
    node_id: int = ANY_NODE
    lane: Lane = Lane.DATA
    context: Any = None
    """What the sender wants to find again when the outcome is there."""


class FailureKind(Enum):
    """Why there is no response."""

    DISCONNECTED = "disconnected"
    """The connection could not be made, or ended; the request may have been carried out."""
    TIMED_OUT = "timed out"
    """The connection was made, and no answer came in time."""
    UNSUPPORTED_VERSION = "unsupported version"
    """The broker speaks none of the versions."""
    AUTHENTICATION = "authentication failed"
    """The broker did not let us in: to try again does not help."""


class RequestFailure(NamedTuple):
    """There is no response."""

    kind: FailureKind
    text: str = ""

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in (FailureKind.DISCONNECTED, FailureKind.TIMED_OUT)


Outcome = Message | RequestFailure


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a manager wants now."""

    requests: tuple[UnsentRequest, ...] = ()
    wake_at: float = math.inf
    """When to poll it again, if nothing happens before; seconds, monotonic."""
    events: tuple[BackgroundEvent, ...] = ()


class RequestManager(Protocol):
    """One concern. It sends nothing itself, and never waits."""

    def poll(self, now: float) -> Wanted:
        """What is to be sent now."""
        ...

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Take the outcome of a request of its own, exactly once for each that was sent."""
        ...


BACKOFF_BASE = 2
BACKOFF_JITTER = 0.2
"""The share by which a backoff is longer or shorter."""


@dataclass(slots=True)
class RetryBackoff:
    """When a request that failed may be repeated (ExponentialBackoff.java, KIP-580)."""

    first_s: float
    """retry.backoff.ms"""
    max_s: float
    """retry.backoff.max.ms"""
    jitter: Callable[[], float]
    """Draws from [-1, 1]."""
    attempts: int = 0
    """That failed, one after the other."""
    ready_at: float = field(default=-math.inf)
    """When the next attempt may begin, in seconds of the monotonic clock."""

    def failed(self, now: float) -> None:
        """The next attempt waits, longer each time."""
        pause = min(self.max_s, self.first_s * BACKOFF_BASE ** min(self.attempts, 32))
        pause *= 1 + BACKOFF_JITTER * self.jitter()
        self.attempts += 1
        self.ready_at = now + min(pause, self.max_s)

    def succeeded(self) -> None:
        """The next attempt waits for nothing."""
        self.attempts, self.ready_at = 0, -math.inf

    def is_ready(self, now: float) -> bool:
        """Whether an attempt may be made."""
        return now >= self.ready_at
