"""Rebalances of a classic group."""

from __future__ import annotations

import trio
import trio.testing
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup, ClassicState
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, running_cluster


async def test_a_member_that_does_not_rejoin_is_dropped_after_the_rebalance_timeout() -> None:
    async with running_cluster() as cluster, trio.open_nursery() as nursery:
        caller = Caller(cluster)
        first = await caller.only_member("g")
        group = cluster.groups.get("g")
        assert isinstance(group, ClassicGroup)
        group.members[first].session_timeout_ms = 60_000
        group.heartbeat(first, None, 1)
        second = (await caller.join("g", session_timeout_ms=60_000)).member_id
        join_responses = []

        async def join() -> None:
            join_responses.append(await Caller(cluster, number=2).join("g", second, session_timeout_ms=60_000))

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        assert group.state is ClassicState.PREPARING
        await advance(cluster, 20)
        assert [(each.generation_id, each.leader, len(each.members)) for each in join_responses] == [(2, second, 1)]
        assert group.member_error(first, None) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_returns_without_a_rebalance() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        first = (await caller.join("g", group_instance_id="i")).member_id
        await caller.sync("g", first, {first: b"part"})
        again = await caller.join("g", group_instance_id="i")
        assert (again.generation_id, again.skip_assignment, again.member_id != first) == (1, True, True)
        assert (await caller.sync("g", again.member_id, {})).assignment == b"part"
        group = cluster.groups.get("g")
        assert isinstance(group, ClassicGroup)
        assert group.heartbeat(first, "i", 1) == ErrorCode.FENCED_INSTANCE_ID


async def test_the_first_rebalance_waits_for_more_members() -> None:
    settings = ClusterSettings(group_initial_rebalance_delay_ms=3000)
    async with running_cluster(settings=settings) as cluster, trio.open_nursery() as nursery:
        generations = []

        async def join(number: int) -> None:
            caller = Caller(cluster, number=number)
            member_id = (await caller.join("g")).member_id
            generations.append((await caller.join("g", member_id)).generation_id)

        for number in (1, 2):
            nursery.start_soon(join, number)
            await trio.testing.wait_all_tasks_blocked()
            await advance(cluster, 2)
        assert generations == []
        await advance(cluster, 3)
        assert generations == [1, 1]


async def test_a_group_without_members_is_empty() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        member_id = await caller.only_member("g")
        group = cluster.groups.get("g")
        assert isinstance(group, ClassicGroup)
        assert group.leave(member_id, None) == ErrorCode.NONE
        group.members_left()
        assert (group.state, group.generation) == (ClassicState.EMPTY, 2)
