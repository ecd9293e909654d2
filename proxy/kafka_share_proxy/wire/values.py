"""Plain values that every room may use: no behaviour beyond arithmetic, no imports beyond the standard library."""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20

DECODED_BYTES = 16
"""Approximate bytes of Python objects per byte of a decoded request."""

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
