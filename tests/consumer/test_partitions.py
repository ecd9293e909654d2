"""Names of partitions."""

from __future__ import annotations

from kafka_share_proxy.consumer.partitions import by_topic, shown
from kafka_share_proxy.wire.values import TopicPartition


def test_partitions_are_grouped_by_topic_in_order() -> None:
    listed = [TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 0)]
    assert list(by_topic(listed).items()) == [("a", [2]), ("b", [0, 1])]
    assert shown(listed) == "a-2, b-0, b-1"
