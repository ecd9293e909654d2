"""LeaveGroup of classic groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_members_leave_one_by_one() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        member_id = await caller.only_member("g")
        members = [{"member_id": each} for each in (member_id, "unknown")]
        response = await caller.query("LeaveGroup", group_id="g", members=members)
        assert [each.error_code for each in response.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        response = await caller.query("LeaveGroup", 2, group_id="g", member_id=member_id)
        assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        await caller.join("g", group_instance_id="i")
        members = [{"member_id": "wrong", "group_instance_id": "i"}, {"member_id": "", "group_instance_id": "i"}]
        response = await caller.query("LeaveGroup", group_id="g", members=members)
        assert [each.error_code for each in response.members] == [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE]
