"""Events of the clients that the judge observes, in the order in which the cluster processes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_share_proxy.wire.definitions.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReceivedFrame:
    """A request frame, whether or not it can be decoded."""

    at: float
    """Seconds by a monotonic clock, not by the cluster's."""
    received_at: float
    """Time at which its last byte arrived: before `at` if the client pipelines requests."""
    connection: int
    node: int
    host: str
    key: int
    version: int
    correlation_id: int
    client_id: str
    frame: bytes
    """Received bytes without size."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReceivedRequest(ReceivedFrame):
    """A decoded request."""

    request: Any
    """Message of the API."""
    unread: int = 0
    """Number of bytes after the last field."""
    must_authenticate: bool = False
    """True if the connection has not completed the login that the cluster requires."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameRefused(ReceivedFrame):
    """A request that cannot be decoded, or that the cluster does not offer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SentResponse:
    """A response that the cluster sends."""

    at: float
    received: ReceivedRequest
    response: Message | None
    """None if the request has no response."""
    delivered: bool = True
    """False if a fault hides the outcome from the client."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConnectionEnded:
    """A connection that was closed."""

    at: float
    connection: int
    by_client: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inspection:
    """The moment of a report: what is missing by now is a finding."""

    at: float
