"""Arguments of calls."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.client.arguments import (
    check_pattern,
    checked_offsets,
    named_partition,
    named_partitions,
    named_topics,
)
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition


def test_a_partition_goes_by_its_tuple() -> None:
    assert named_partition(("a", 3)) == TopicPartition("a", 3)
    assert named_partition(("a", 3)).topic == "a"
    assert named_partitions([("a", 3), TopicPartition("a", 3)]) == {TopicPartition("a", 3)}


@pytest.mark.parametrize("wrong", ["a", ("a",), ("a", "0"), (0, "a"), ("", 0), ("a", -1), None, ("a", 0, 1)])
def test_a_value_that_is_no_partition_is_named(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"no partition|a topic has a name"):
        named_partition(wrong)


def test_topics_are_a_list_of_names() -> None:
    assert named_topics(["a", "b", "a"]) == {"a", "b"}
    with pytest.raises(ValueError, match="write a list of names"):
        named_topics("orders")
    with pytest.raises(ValueError, match="has a name"):
        named_topics(["a", ""])


def test_a_pattern_is_a_regular_expression() -> None:
    check_pattern("a.*")
    check_pattern(None)
    with pytest.raises(ValueError, match="is no regular expression"):
        check_pattern("a(")


def test_offsets_may_carry_metadata() -> None:
    offsets = checked_offsets({("a", 0): 5, ("a", 1): OffsetAndMetadata(7, "m")})
    assert offsets == {TopicPartition("a", 0): OffsetAndMetadata(5), TopicPartition("a", 1): OffsetAndMetadata(7, "m")}
    with pytest.raises(ValueError, match="offset -1 of a-0 is negative"):
        checked_offsets({("a", 0): -1})
