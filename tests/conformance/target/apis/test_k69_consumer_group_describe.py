"""Descriptions of KIP-848 groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_members_show_assignment_and_target() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        await caller.join_consumer("g", "m", "t")
        group, unknown = (await caller.ask("ConsumerGroupDescribe", group_ids=["g", "none"])).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
            "Stable",
            2,
            2,
            "uniform",
        )
        found = group.members[0].assignment.topic_partitions[0]
        assert (found.topic_name, found.partitions) == ("t", [0, 1])
        assert group.members[0].target_assignment == group.members[0].assignment
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
