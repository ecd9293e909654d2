"""The order of java.util.HashMap."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.assignors.hash_order import (
    PartitionHashSet,
    capacity,
    hash_order,
    partition_hash,
    string_hash,
    string_order,
)
from kafka_share_proxy.wire.values import TopicPartition


@pytest.mark.parametrize(("text", "expected"), [
    ("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 0x80000000), ("\U0001f600", 55357 * 31 + 56832),
])  # fmt: skip
def test_strings_have_the_hash_of_java(text: str, expected: int) -> None:
    assert string_hash(text) == expected


def test_a_partition_has_the_hash_of_topic_partition() -> None:
    """31 * (31 + partition) + topic.hashCode()"""
    assert partition_hash(TopicPartition("a", 2)) == 31 * 33 + 97


@pytest.mark.parametrize(("keys", "buckets"), [(0, 16), (12, 16), (13, 32), (24, 32), (25, 64), (49, 128)])
def test_a_map_doubles_above_three_quarters(keys: int, buckets: int) -> None:
    assert capacity(keys) == buckets


def test_keys_come_by_bucket_and_within_one_in_the_order_they_were_put() -> None:
    assert string_order(["c", "q", "a"]) == ["q", "a", "c"], "q and a share the bucket 1 of 16"
    assert string_order(["c", "a", "q", "a"]) == ["a", "q", "c"]
    assert hash_order([3, 16, 0], lambda key: key) == [16, 0, 3]
    assert hash_order([0x10000, 1, 0], lambda key: key) == [0, 0x10000, 1], "the upper half counts too"


def test_a_set_never_shrinks() -> None:
    held = PartitionHashSet()
    listed = [TopicPartition("t", number) for number in range(13)]
    for each in listed:
        held.add(each)
    for each in listed[2:]:
        held.remove(each)
    assert len(held) == 2
    assert held.first() in listed[:2]
    with pytest.raises(KeyError):
        held.remove(listed[5])
