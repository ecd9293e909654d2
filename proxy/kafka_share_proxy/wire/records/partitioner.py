"""Partitioner of record keys. It follows Kafka's rule, so that all clients choose the same partition.

Source: BuiltInPartitioner.partitionForKey of Kafka's Java client.
"""

from __future__ import annotations

from kafka_share_proxy.wire.records.key_hash import murmur2

_POSITIVE = 0x7FFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key. Raises ZeroDivisionError if `partitions` is 0."""
    return (murmur2(key) & _POSITIVE) % partitions
