"""Which offsets a batch read takes (pipeline/README.md rules 8 and 12)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from kafka_share_proxy.pipeline.kafka.cluster import (
    EARLIEST_TIMESTAMP,
    BlockingClusterClient,
    DescribedTopic,
    ReadRefused,
)
from kafka_share_proxy.pipeline.source.log_reader import OffsetsLost
from kafka_share_proxy.pipeline.source.options import BadOption, read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead, restricted
from kafka_share_proxy.wire.values import TopicPartition

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Cluster(BlockingClusterClient):
    """Two partitions with the offsets 10-19 and 0-4."""

    def topics(self, names: Iterable[str]) -> dict[str, DescribedTopic]:
        return {name: DescribedTopic(bytes(16), {0: 1, 1: 1}) for name in names}

    known_topics = topics

    def offsets(self, places: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        known = {ZERO: 10, ONE: 0} if timestamp == EARLIEST_TIMESTAMP else {ZERO: 20, ONE: 5}
        return {place: known[place] for place in places}


def batch(**options: str) -> dict[TopicPartition, tuple[int, int]]:
    source_options = {"bootstrap": "one", "topic": "orders"} | options
    read = read_options({name: value for name, value in source_options.items() if value})
    return {place: tuple(span) for place, span in PlannedRead(Cluster(read), read).batch()}


def test_everything_is_read_by_default() -> None:
    assert batch() == {ZERO: (10, 20), ONE: (0, 5)}


def test_offsets_may_be_given_by_partition_and_others_have_the_default() -> None:
    assert batch(startingOffsets='{"orders": {"0": 15}}') == {ZERO: (15, 20), ONE: (0, 5)}
    assert batch(startingOffsets='{"orders": {"0": -1, "1": -2}}') == {ONE: (0, 5)}
    assert batch(endingOffsets='{"orders": {"0": 12, "1": -1}}') == {ZERO: (10, 12), ONE: (0, 5)}
    assert batch(startingOffsets="latest") == {}


def test_only_assigned_partitions_are_read() -> None:
    assert batch(topic="", assign='{"orders": [1]}') == {ONE: (0, 5)}
    with pytest.raises(ReadRefused, match="orders-7: no such partition"):
        batch(topic="", assign='{"orders": [7]}')


def test_offsets_of_other_partitions_are_a_mistake() -> None:
    with pytest.raises(BadOption, match="payments-0, which is not read"):
        batch(startingOffsets='{"payments": {"0": 1}}')


def test_offsets_that_are_not_in_the_log_are_an_error_or_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    hole = '[{"topic": "orders", "partition": 0, "first": 8, "last": 12}]'
    with pytest.raises(OffsetsLost, match="offsets 8-9 are no longer in the log"):
        batch(topic="", offsetRanges=hole)
    assert batch(topic="", offsetRanges=hole, failOnDataLoss="false") == {ZERO: (10, 13)}
    assert "offsets 8-9" in capsys.readouterr().err
    with pytest.raises(ReadRefused, match="the last stable offset is 19"):
        batch(endingOffsets='{"orders": {"0": 21}}')


def test_a_predicate_narrows_the_planned_ranges() -> None:
    expected = [(ZERO, span) for span in ()]
    assert restricted(expected, None, 0, None) == []
    read = read_options({"bootstrap": "one", "topic": "orders"})
    everything = PlannedRead(Cluster(read), read).batch()
    assert restricted(everything, frozenset({0}), 12, 14) == [(ZERO, (12, 14))]
    assert restricted(everything, frozenset({1}), 12, None) == []
