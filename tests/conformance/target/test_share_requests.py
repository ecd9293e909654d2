"""Common parts of share requests."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.share_requests import find_led, leader_of, member_id_mistake, partitions_in
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

from tests.support.blocking_connection import build
from tests.support.target_caller import running_cluster


def test_a_partition_that_is_named_twice_has_all_its_acknowledgements() -> None:
    batch = {"first_offset": 1, "last_offset": 2, "acknowledge_types": [1]}
    partitions = [{"partition_index": 0}, {"partition_index": 0, "acknowledgement_batches": [batch]}]
    request = build("ShareFetchRequest", topics=[{"topic_id": b"t" * 16, "partitions": partitions}])
    named_partitions, batches = partitions_in(request.topics)
    assert named_partitions == [TopicIdPartition(b"t" * 16, 0)]
    assert batches == {TopicIdPartition(b"t" * 16, 0): [(1, 2, [1])]}


async def test_leaders_are_named_only_if_they_moved() -> None:
    async with running_cluster(2) as cluster:
        topic = cluster.create_topic("t")
        leader, partition = topic.partitions[0].leader, TopicIdPartition(topic.topic_id, 0)
        assert find_led(cluster, 3 - leader, partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert find_led(cluster, leader, TopicIdPartition(b"?" * 16, 0)) == ErrorCode.UNKNOWN_TOPIC_ID
        assert leader_of(cluster, partition, ErrorCode.NOT_LEADER_OR_FOLLOWER) == (leader, 0)
        assert leader_of(cluster, partition, ErrorCode.NONE) == (-1, -1)


def test_member_ids_have_1_to_36_characters() -> None:
    assert [member_id_mistake(each) is None for each in (None, "", "m", "m" * 36, "m" * 37)] == [
        False, False, True, True, False
    ]  # fmt: skip
