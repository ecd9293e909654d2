"""Metadata and assignments of classic consumers."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.consumer_protocol import (
    existing_partitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from kafka_share_proxy.wire.values import TopicIdPartition

from tests.support.consumer_metadata import assignment, subscription
from tests.support.target_caller import running_cluster


def test_unreadable_metadata_is_none() -> None:
    for data in (b"", b"?", b"\xff\xff" + subscription(["t"])[2:], subscription(["t"])[:-1]):
        assert read_subscription(data) is None
    assert read_assignment(assignment({"t": [0]})[:-5]) is None


def test_a_later_version_is_read_as_the_last_known() -> None:
    parsed = read_subscription(b"\0\7" + subscription(["t"])[2:] + b"\0\0\0\1\0\1r")
    assert parsed is not None
    assert (parsed.topics, parsed.generation_id, parsed.rack_id) == (["t"], 1, "r")


async def test_an_assignment_has_the_version_of_the_metadata_and_existing_topics() -> None:
    async with running_cluster() as cluster:
        topic = cluster.create_topic("t", 3)
        partitions = {TopicIdPartition(topic.topic_id, 2), TopicIdPartition(topic.topic_id, 0)}
        data = write_assignment({*partitions, TopicIdPartition(b"?" * 16, 0)}, cluster.topics, subscription(["t"]))
        parsed = read_assignment(data)
        assert parsed is not None
        assert (data[:2], parsed.assigned_partitions[0].partitions) == (b"\0\1", [0, 2])
        assert existing_partitions(parsed.assigned_partitions, cluster.topics) == partitions
        cluster.delete_topic("t")
        assert existing_partitions(parsed.assigned_partitions, cluster.topics) == set()
