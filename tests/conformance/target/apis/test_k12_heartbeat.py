"""Heartbeats of classic groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, running_cluster


async def beat(caller: Caller, member_id: str, generation: int = 1) -> int:
    response = await caller.query("Heartbeat", group_id="g", member_id=member_id, generation_id=generation)
    return int(response.error_code)


async def test_heartbeats_keep_a_member_alive() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        member_id = await caller.only_member("g")
        for _ in range(3):
            await advance(cluster, 9)
            assert await beat(caller, member_id) == ErrorCode.NONE
        await advance(cluster, 10)
        assert await beat(caller, member_id) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_another_generation_and_a_rebalance_are_reported() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        member_id = await caller.only_member("g")
        assert await beat(caller, member_id, 2) == ErrorCode.ILLEGAL_GENERATION
        await caller.join("g")
        assert await beat(caller, member_id) == ErrorCode.NONE
