"""Interface of the handlers of the cluster in one process, and their declarations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafka_share_proxy.wire.codec.headers import RequestHeader
from kafka_share_proxy.wire.definitions.messages import Message

if TYPE_CHECKING:
    from kafka_share_proxy.conformance.target.cluster import TargetCluster

R = TypeVar("R", bound=Message)


@dataclass(eq=False)
class ClientPeer:
    """One connection of a client."""

    number: int
    """Unique in the cluster, from 1."""
    node_id: int
    """Node that it is connected to."""
    host: str
    """Client's address."""
    software: tuple[str, str] = ("", "")
    """Name and version of the client's library (ApiVersions v3)."""
    on_close: list[Callable[[], None]] = field(default_factory=list)
    """Called when the connection ends."""


class ConnectionEnds(Exception):
    """A handler ends the connection, as brokers do where the protocol has no response."""


@dataclass
class TargetCall(Generic[R]):
    """One request at one node."""

    cluster: TargetCluster
    peer: ClientPeer
    header: RequestHeader
    request: R

    @property
    def version(self) -> int:
        """Version of the request."""
        return self.header.version

    @property
    def client_id(self) -> str:
        """Client id, empty if none."""
        return self.header.client_id or ""


Handler = Callable[[TargetCall[Any]], Awaitable[Message | None]]
"""Returns the response, or None where the protocol has none (Produce with acks 0). Waits with the cluster's clock.

Raises ConnectionEnds.
"""
