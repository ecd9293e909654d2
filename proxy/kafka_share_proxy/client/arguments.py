"""Arguments of calls, checked before anything is sent (client/README.md rule 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.wire.values import TopicPartition

PartitionName = TopicPartition | tuple[str, int]


def named_partition(name: PartitionName) -> TopicPartition:
    """Return a checked partition. Raises ValueError for an invalid topic or partition."""
    if not (isinstance(name, tuple) and len(name) == 2 and isinstance(name[0], str) and isinstance(name[1], int)):
        raise ValueError(f"{name!r} is no partition: write (topic, number)")
    partition = TopicPartition(*name)
    if not partition.topic or partition.partition < 0:
        raise ValueError(
            f"{partition.topic!r} {partition.partition}: a topic has a name, and its partitions count from 0"
        )
    return partition


def named_partitions(names: Iterable[PartitionName]) -> Partitions:
    """Return checked partitions. Raises ValueError for an invalid topic or partition."""
    return frozenset(map(named_partition, names))


def named_topics(topics: Iterable[str]) -> frozenset[str]:
    """Return checked topic names. Raises ValueError for an empty name, or a text instead of a list."""
    if isinstance(topics, str):
        raise ValueError(f"topics is a text, {topics!r}: write a list of names")
    names = frozenset(topics)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ValueError(f"topic {wrong[0]!r}: a name is a str")
    if "" in names:
        raise ValueError("a topic has a name")
    return names


def check_pattern(pattern: str | None) -> None:
    """Raise ValueError for an invalid regular expression."""
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from error


def checked_offsets(offsets: Mapping[Any, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return checked offsets by partition. Raises ValueError for a negative offset or an invalid partition."""
    checked = {
        named_partition(each): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for each, offset in offsets.items()
    }
    if wrong := [each for each, offset in checked.items() if offset.offset < 0]:
        raise ValueError(f"offset {checked[wrong[0]].offset} of {wrong[0]} is negative")
    return checked
