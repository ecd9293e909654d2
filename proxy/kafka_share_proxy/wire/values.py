"""Plain values that every room may use: no behaviour beyond arithmetic, no imports beyond the standard library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MIB = 1 << 20

DECODED_BYTES = 16
"""Approximate bytes of Python objects per byte of a decoded request: 5 for names, 20 for empty partitions."""

UNKNOWN_NODE = -1
"""Node id of an unknown broker: a bootstrap listener, or "no leader"."""

ZERO_UUID = bytes(16)
"""Topic id for "none" (Kafka's Uuid.ZERO_UUID)."""


class Address(NamedTuple):
    """A host and a port, as a client connects to it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TopicPartition(NamedTuple):
    """A partition by the name of its topic (org.apache.kafka.common.TopicPartition)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by topic id (16 raw bytes), as in the share requests."""

    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The proxy's own limits. All are settings (`limits.*`)."""

    frame_bytes: int = 100 * MIB
    """Largest frame, in bytes, accepted from either side (Kafka: socket.request.max.bytes)."""
    collected_bytes: int = 64 * MIB
    """Largest response, in bytes, that is buffered whole in order to rewrite it."""
    inspected_request_bytes: int = 4 * MIB
    """Largest request, in bytes, that is buffered whole in order to inspect it."""
    unauthenticated_request_bytes: int = 512 * 1024
    """Largest request, in bytes, that is buffered before the broker has sent a response on the connection.

    Kafka: sasl.server.max.receive.size.
    """
    gathered_total_bytes: int = 256 * MIB
    """Bytes of all buffered or kept requests and responses, and of locally served requests, counted as decoded."""
    gathering_s: float = 30.0
    """Seconds that a client may take to send a buffered request before its connection is closed."""
    served_request_bytes: int = 2 * MIB
    """Largest request, in bytes, that is served locally."""
    served_request_elements: int = 25_000
    """Maximum number of elements in all arrays of a locally served request (groups, resources, partitions, batches,
    ...).
    """
    local_answer_bytes: int = 4 * MIB
    """Bytes of records in one local response. At least one record batch is sent even if it is larger."""
    local_answers_total_bytes: int = 256 * MIB
    """Bytes of all local responses, from their first records until the kernel has accepted them."""
    stalled_client_s: float = 30.0
    """Seconds without reading a byte of a local response after which a client's connection is closed."""
    idle_client_s: float = 600.0
    """Seconds of silence after which a client's connection is closed together with its upstream connection."""
    dial_timeout_s: float = 10.0
    """Seconds for one attempt to connect to one upstream address, TLS included."""
    connections: int = 10_000
    """Maximum number of simultaneous client connections. A further connection is closed immediately and logged."""
    connections_per_address: int | None = None
    """Maximum number of these connections per client address; None for no such limit."""
    tls_handshakes: int = 2_000
    """Maximum number of unfinished TLS handshakes of clients, at most half of `connections`. Each counts as a
    connection.
    """
    tls_handshakes_per_address: int = 1_000
    """Maximum number of unfinished TLS handshakes per client address, at most half of the limit for all."""
    tls_handshake_s: float = 10.0
    """Seconds that a client may keep the proxy waiting during its TLS handshake before the connection is closed."""
    tls_total_bytes: int = 1024 * MIB
    """Estimated bytes of memory for all TLS connections of clients. At this limit, new ones are refused."""
    in_flight_requests: int = 10_000
    """Requests of one connection without a response. At this limit, the proxy stops reading from the client."""
    share_cache_bytes: int = 64 * MIB
    """Bytes of recently read record batches cached for other members of share groups."""
    metrics_groups: int = 20
    """Number of share groups that /metrics shows by name. All others are added up as one."""
