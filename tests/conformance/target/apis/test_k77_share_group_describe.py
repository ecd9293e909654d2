"""Descriptions of share groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_members_show_topics_and_assignment() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.query(
            "ShareGroupHeartbeat", group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
        )
        group, unknown = (await caller.query("ShareGroupDescribe", group_ids=["g", "none"])).groups
        assert (group.group_state, group.assignor_name) == ("Stable", "simple")
        assert group.members[0].assignment.topic_partitions[0].topic_name == "t"
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
