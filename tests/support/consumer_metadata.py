"""Metadata and assignments of classic consumers as bytes, in version 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_share_proxy.wire.definitions import messages, registry

VERSION = 1
PREFIX = VERSION.to_bytes(2, "big")


def subscription(topics: Iterable[str], owned: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """Return the metadata of a member that subscribes to topics and has partitions."""
    kind = messages.ConsumerProtocolSubscription
    partitions = [
        kind.TopicPartition(topic=name, partitions=list(partition_numbers))
        for name, partition_numbers in (owned or {}).items()
    ]
    message = kind(topics=list(topics), user_data=None, owned_partitions=partitions)
    return PREFIX + bytes(registry.codec_of(kind, VERSION).encode(message))


def assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Return the assignment of a member."""
    kind = messages.ConsumerProtocolAssignment
    entries = [
        kind.TopicPartition(topic=name, partitions=list(partition_numbers))
        for name, partition_numbers in partitions.items()
    ]
    return PREFIX + bytes(registry.codec_of(kind, VERSION).encode(kind(assigned_partitions=entries, user_data=None)))
