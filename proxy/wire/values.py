"""Plain values that every room may use: no behaviour beyond arithmetic, no imports beyond the standard library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MIB = 1 << 20

DECODED_BYTES = 16
"""Bytes of objects for each byte of a request that is decoded, about: 5 for names, 20 for empty partitions."""

UNKNOWN_NODE = -1
"""Node id where no broker is known: bootstrap listener, "no leader"."""

ZERO_UUID = bytes(16)
"""Topic id that stands for "none" (Kafka's Uuid.ZERO_UUID)."""


class Address(NamedTuple):
    """A host and a port, as a client dials it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class OffsetRange(NamedTuple):
    """Offsets first..last, both included, as the wire writes them."""

    first: int
    last: int


class TopicPartition(NamedTuple):
    """A partition by the name of its topic (org.apache.kafka.common.TopicPartition)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by topic id (16 raw bytes), as the share requests name it."""

    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The proxy's own limits; all are settings (`limits.*`)."""

    frame_bytes: int = 100 * MIB
    """Largest frame accepted from either side (Kafka: socket.request.max.bytes)."""
    collected_bytes: int = 64 * MIB
    """Largest answer that is gathered whole, to be rewritten."""
    inspected_request_bytes: int = 4 * MIB
    """Largest request that is gathered whole to be looked into."""
    unauthenticated_request_bytes: int = 512 * 1024
    """Largest request gathered before the broker has answered the connection (Kafka: sasl.server.max.receive.size)."""
    gathered_total_bytes: int = 256 * MIB
    """All requests and answers that are gathered or kept, and requests being answered here, counted as decoded."""
    gathering_s: float = 30.0
    """A client that takes longer than this to send a request which is gathered is closed."""
    served_request_bytes: int = 2 * MIB
    """Largest request answered here."""
    served_request_elements: int = 25_000
    """Most elements in all arrays of a request answered here (groups, resources, partitions, batches and the like)."""
    local_answer_bytes: int = 4 * MIB
    """Records in one answer made here; at least one record batch goes out even if larger."""
    local_answers_total_bytes: int = 256 * MIB
    """All answers made here, from their first records on until the kernel has taken them."""
    stalled_client_s: float = 30.0
    """A client that takes no byte of a local answer for so long is closed."""
    idle_client_s: float = 600.0
    """A client silent for so long is closed together with its upstream connection."""
    dial_timeout_s: float = 10.0
    """One attempt to connect to one upstream address, TLS included."""
    connections: int = 10_000
    """Client connections at once; one more is closed at once with a log line."""
    connections_per_address: int | None = None
    """Of these, those from one client address; None: as many as there are."""
    in_flight_requests: int = 10_000
    """Requests of one connection that wait for their answer; past it the client is not read."""
    share_cache_bytes: int = 64 * MIB
    """Record batches just read, kept for other members of share groups."""
    metrics_groups: int = 20
    """Share groups that /metrics shows by name; all others are summed up as one."""
