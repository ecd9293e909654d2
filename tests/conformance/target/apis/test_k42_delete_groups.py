"""Deletion of groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_groups_with_members_stay() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.commit("empty", "t", 1)
        await caller.only_member("full")
        cluster.share.coordinator.add_group("share")
        response = await caller.query("DeleteGroups", groups_names=["empty", "full", "share", "none"])
        assert [each.error_code for each in response.results] == [
            ErrorCode.NONE,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.NONE,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ]
        assert await caller.committed("empty", "t") == (0, -1)
