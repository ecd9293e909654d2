"""Partition of everything that is stored about a group of clients, the same in every state."""

from __future__ import annotations

from functools import lru_cache

from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.wire.records.key_hash import partition_for

GROUPS_REMEMBERED = 10_000
REMEMBERED_LENGTH_MAX = 256
"""Maximum length of a cached group id."""


def state_partition(group_id: str) -> int:
    """Return the partition, which is also the number of the owner."""
    return _short(group_id) if len(group_id) <= REMEMBERED_LENGTH_MAX else _state_partition(group_id)


def _state_partition(group_id: str) -> int:
    return partition_for(group_id.encode(), PARTITIONS)


_short = lru_cache(maxsize=GROUPS_REMEMBERED)(_state_partition)
