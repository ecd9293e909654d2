"""Where what is kept about a group of clients is stored: the same partition in every state of groups."""

from __future__ import annotations

from functools import lru_cache

from proxy.durable.ownership_rules import PARTITIONS
from proxy.wire.partitioner import partition_for

GROUPS_REMEMBERED = 10_000
"""Groups whose state partition is not computed anew."""
REMEMBERED_LENGTH_MAX = 256
"""Longer group ids are not remembered: clients may send ids of 32 KiB."""


def state_partition(group_id: str) -> int:
    """The partition, and thereby the number of the owner, of everything that is kept about a group."""
    return _short(group_id) if len(group_id) <= REMEMBERED_LENGTH_MAX else _state_partition(group_id)


def _state_partition(group_id: str) -> int:
    return partition_for(group_id.encode(), PARTITIONS)


_short = lru_cache(maxsize=GROUPS_REMEMBERED)(_state_partition)
