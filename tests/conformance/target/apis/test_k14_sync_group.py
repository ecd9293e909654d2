"""SyncGroup of classic groups."""

from __future__ import annotations

import trio
import trio.testing
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, running_cluster


async def test_members_wait_for_the_assignment_of_the_leader() -> None:
    settings = ClusterSettings(group_initial_rebalance_delay_ms=1000)
    async with running_cluster(settings=settings) as cluster, trio.open_nursery() as nursery:
        one, two = Caller(cluster), Caller(cluster, number=2)
        first, second = (await one.join("g")).member_id, (await two.join("g")).member_id
        nursery.start_soon(two.join, "g", second)
        nursery.start_soon(one.join, "g", first)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            await advance(cluster, 1)
        group = cluster.groups.get("g")
        assert isinstance(group, ClassicGroup)
        (leader, leader_id), (other, other_id) = sorted(
            [(one, first), (two, second)], key=lambda each: each[1] != group.leader
        )
        assignments = []

        async def sync() -> None:
            assignments.append((await other.sync("g", other_id, {})).assignment)

        nursery.start_soon(sync)
        await trio.testing.wait_all_tasks_blocked()
        assert assignments == []
        assert (await leader.sync("g", leader_id, {leader_id: b"1", other_id: b"2"})).assignment == b"1"
        await trio.testing.wait_all_tasks_blocked()
        assert assignments == [b"2"]


async def test_a_member_that_does_not_sync_is_removed_after_the_rebalance_timeout() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        member_id = (await caller.join("g", session_timeout_ms=60_000)).member_id
        await caller.join("g", member_id, session_timeout_ms=60_000)
        await advance(cluster, 21)
        assert (await caller.sync("g", member_id, {})).error_code == ErrorCode.UNKNOWN_MEMBER_ID
