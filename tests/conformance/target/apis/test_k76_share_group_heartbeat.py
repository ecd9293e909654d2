"""Heartbeats of share groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, running_cluster


async def beat(caller: Caller, epoch: int, topics: list[str] | None = None) -> object:
    values = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "subscribed_topic_names": topics}
    return await caller.query("ShareGroupHeartbeat", **values)


async def test_a_member_is_assigned_and_expires_without_heartbeat() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        joined = await beat(caller, 0, ["t"])
        assert joined.assignment.topic_partitions[0].partitions == [0, 1]  # type: ignore[attr-defined]
        await advance(cluster, 46)
        assert (await beat(caller, joined.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID  # type: ignore[attr-defined]


async def test_an_id_has_one_type_of_group() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.only_member("g")
        assert (await beat(caller, 0, ["t"])).error_code == ErrorCode.GROUP_ID_NOT_FOUND  # type: ignore[attr-defined]
        assert (await beat(caller, 0, [])).error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
