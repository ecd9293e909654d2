"""Which partition a key belongs to: Kafka's own rule, so that any client finds the same one.

Source: BuiltInPartitioner.partitionForKey of Kafka's Java client.
"""

from __future__ import annotations

from proxy.wire.key_hash import murmur2

_POSITIVE = 0x7FFFFFFF


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key; raises ZeroDivisionError when there is none."""
    return (murmur2(key) & _POSITIVE) % partitions
