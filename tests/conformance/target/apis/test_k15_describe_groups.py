"""Descriptions of classic groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_a_stable_group_shows_what_its_members_have() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        member_id = await caller.only_member("g")
        group = (await caller.query("DescribeGroups", groups=["g"], include_authorized_operations=True)).groups[0]
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        assert [(m.member_id, m.client_host, m.member_assignment) for m in group.members] == [
            (member_id, "/127.0.0.1", b"assigned")
        ]
        assert group.authorized_operations > 0


async def test_unknown_groups_are_dead_before_version_6() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        old, new = [(await caller.query("DescribeGroups", each, groups=["g"])).groups[0] for each in (5, 6)]
        assert (old.error_code, old.group_state) == (0, "Dead")
        assert new.error_code == ErrorCode.GROUP_ID_NOT_FOUND
