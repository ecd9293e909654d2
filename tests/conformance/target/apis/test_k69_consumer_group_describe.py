"""Descriptions of KIP-848 groups."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_members_show_assignment_and_target() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        await caller.join_consumer("g", "m", "t")
        group, unknown = (await caller.query("ConsumerGroupDescribe", group_ids=["g", "none"])).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
            "Stable",
            2,
            2,
            "uniform",
        )
        assigned = group.members[0].assignment.topic_partitions[0]
        assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1])
        assert group.members[0].target_assignment == group.members[0].assignment
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_partition_that_a_member_must_still_revoke_is_shown_with_its_assignment() -> None:
    """As Kafka 4.3 does (ConsumerGroupMember.asConsumerGroupDescribeMember)."""
    async with running_cluster(settings=ClusterSettings(consumer_assignment_interval_ms=0)) as cluster:
        topic = cluster.create_topic("t", 2)
        caller = Caller(cluster)
        await caller.join_consumer("g", "m1", "t")
        await caller.join_consumer("g", "m2", "t")
        owned = [{"topic_id": topic.topic_id, "partitions": [0, 1]}]
        revoking = await caller.beat("g", "m1", 2, topic_partitions=owned)
        assert [each.partitions for each in revoking.assignment.topic_partitions] == [[0]]
        (group,) = (await caller.query("ConsumerGroupDescribe", group_ids=["g"])).groups
        member = next(each for each in group.members if each.member_id == "m1")
        assert [each.partitions for each in member.assignment.topic_partitions] == [[0, 1]]
        assert [each.partitions for each in member.target_assignment.topic_partitions] == [[0]]
