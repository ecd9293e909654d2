"""Spark's predicates that narrow a read (pipeline/README.md rule 19)."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra [spark] is not installed")

from kafka_share_proxy.pipeline.source.pushdown import Predicate
from kafka_share_proxy.pipeline.source.splits import KEYS_MAX
from pyspark.sql import datasource

KEY, PARTITION, OFFSET, TIMESTAMP = ("key",), ("partition",), ("offset",), ("timestamp",)


def test_keys_narrow_the_read_and_are_filtered_again_by_spark() -> None:
    requested = [datasource.IsNotNull(KEY), datasource.EqualTo(KEY, b"a")]
    predicate, left = Predicate().narrowed(requested)
    assert predicate == Predicate(keys=(b"a",))
    assert left == requested
    both, _ = Predicate().narrowed([datasource.In(KEY, (b"a", b"b")), datasource.In(KEY, (b"b", b"c"))])
    assert both.keys == (b"b",)


def test_partitions_and_offsets_are_taken_wholly() -> None:
    requested = [
        datasource.In(PARTITION, (0, 1)),
        datasource.EqualTo(PARTITION, 1),
        datasource.GreaterThan(OFFSET, 4),
        datasource.GreaterThanOrEqual(OFFSET, 3),
        datasource.LessThanOrEqual(OFFSET, 9),
        datasource.LessThan(OFFSET, 20),
    ]
    predicate, left = Predicate().narrowed(requested)
    assert predicate == Predicate(partitions=frozenset({1}), low=5, high=10)
    assert left == []
    assert Predicate().narrowed([datasource.EqualTo(OFFSET, 7)])[0] == Predicate(low=7, high=8)


@pytest.mark.parametrize(
    "requested",
    [
        datasource.GreaterThan(TIMESTAMP, 5),
        datasource.GreaterThan(KEY, b"a"),
        datasource.EqualTo(KEY, None),
        datasource.GreaterThan(PARTITION, 0),
        datasource.In(OFFSET, (1, 2)),
        datasource.In(KEY, tuple(b"%d" % number for number in range(KEYS_MAX + 1))),
        datasource.EqualTo(("headers", "key"), "a"),
        datasource.Not(datasource.EqualTo(PARTITION, 0)),
    ],
)
def test_anything_else_is_left_to_spark(requested: datasource.Filter) -> None:
    assert Predicate().narrowed([requested]) == (Predicate(), [requested])
