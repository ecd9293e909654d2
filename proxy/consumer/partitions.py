"""Names of partitions and of places in them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from proxy.wire.values import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """What is committed of one partition (org.apache.kafka.clients.consumer.OffsetAndMetadata)."""

    offset: int
    """The next one to read."""
    metadata: str = ""
    leader_epoch: int = -1
    """Of the last record consumed; -1 means unknown."""


class Flow(Enum):
    """Which of two places of a partition is read (KIP-333)."""

    MAIN = "main"
    """The newest records; the only flow, unless a partition is caught up with."""
    CHILD = "child"
    """What the main flow has left behind."""


Partitions = frozenset[TopicPartition]

NOTHING: Partitions = frozenset()


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic -> its partitions, both ascending."""
    grouped: dict[str, list[int]] = {}
    for each in sorted(partitions):
        grouped.setdefault(each.topic, []).append(each.partition)
    return grouped


def shown(partitions: Iterable[TopicPartition]) -> str:
    """For people: `orders-0, orders-1`."""
    return ", ".join(map(str, sorted(partitions)))
