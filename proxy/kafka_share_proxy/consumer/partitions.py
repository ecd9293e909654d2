"""Types and helpers for partitions and offsets."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from kafka_share_proxy.wire.values import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """Committed offset of one partition (org.apache.kafka.clients.consumer.OffsetAndMetadata)."""

    offset: int
    """Offset of the next record to read."""
    metadata: str = ""
    leader_epoch: int = -1
    """-1 means unknown."""


class Flow(Enum):
    """Flow of a partition: the main one or the one that catches up (KIP-333)."""

    MAIN = "main"
    """The newest records. The only flow, unless a partition is being caught up."""
    CHILD = "child"
    """The older records that the main flow skipped."""


Partitions = frozenset[TopicPartition]

NOTHING: Partitions = frozenset()


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return topic -> partitions, both ascending."""
    grouped: dict[str, list[int]] = {}
    for each in sorted(partitions):
        grouped.setdefault(each.topic, []).append(each.partition)
    return grouped


def shown(partitions: Iterable[TopicPartition]) -> str:
    """Return text for log and error messages, for example `orders-0, orders-1`."""
    return ", ".join(map(str, sorted(partitions)))
