"""Partition of a state in which a group is stored."""

from __future__ import annotations

from kafka_share_proxy.durable import state_partitions
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.durable.state_partitions import CACHED_LENGTH_MAX, state_partition
from kafka_share_proxy.wire.records.key_hash import partition_for


def test_partition_is_selected_by_murmur2_of_the_group_id() -> None:
    for group_id in ("g", "gruppe-ü", "", "x" * (CACHED_LENGTH_MAX + 1)):
        assert state_partition(group_id) == partition_for(group_id.encode(), PARTITIONS)


def test_a_long_group_id_is_not_remembered_for_its_partition() -> None:
    before = state_partitions._cached.cache_info().currsize
    state_partition("g" * 32_000)
    assert state_partitions._cached.cache_info().currsize == before
