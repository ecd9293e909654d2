"""Partition in which a state stores a group, by the murmur2 hash of the group id (durable/README.md rules 1 and 30)."""

from __future__ import annotations

from functools import lru_cache

from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.wire.records.key_hash import partition_for

CACHED_MAX = 10_000
"""Maximum number of group ids whose partition is cached."""
CACHED_LENGTH_MAX = 256
"""Maximum length of a cached group id."""


def state_partition(group_id: str) -> int:
    """Return the partition, which is the same in the topic of every state."""
    return _cached(group_id) if len(group_id) <= CACHED_LENGTH_MAX else _state_partition(group_id)


def _state_partition(group_id: str) -> int:
    return partition_for(group_id.encode(), PARTITIONS)


_cached = lru_cache(maxsize=CACHED_MAX)(_state_partition)
