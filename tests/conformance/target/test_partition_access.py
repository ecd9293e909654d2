"""Partitions at a node."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.partition_access import endpoints_of, find_partition, find_topic, moved_leader
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import running_cluster


async def test_only_the_leader_is_found() -> None:
    async with running_cluster(3) as cluster:
        topic = cluster.create_topic("t", replication=2)
        leader, follower = topic.partitions[0].replicas
        outside = ({1, 2, 3} - {leader, follower}).pop()
        assert find_partition(topic, 0, leader) is topic.partitions[0]
        assert find_partition(topic, 0, follower) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert find_partition(topic, 0, outside) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert find_partition(topic, 1, leader) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert find_partition(topic, 0, leader, 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert moved_leader(topic, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER) == (leader, 0)
        assert moved_leader(topic, 0, ErrorCode.NONE) == (-1, -1)
        assert endpoints_of(cluster, [-1, 2, 2]) == [(2, "127.0.0.1", 9002)]


async def test_topics_are_found_by_name_or_id() -> None:
    async with running_cluster() as cluster:
        topic = cluster.create_topic("t")
        assert find_topic(cluster, "", topic.topic_id, by_id=True) is topic
        assert find_topic(cluster, "u", b"", by_id=False) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
