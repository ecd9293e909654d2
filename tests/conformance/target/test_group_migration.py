"""Classic groups that become KIP-848 groups with their members, and the other way round."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup, ClassicState
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.consumer_metadata import assignment, subscription
from tests.support.target_caller import Caller, advance, running_cluster

METADATA = {"protocols": [{"name": "range", "metadata": subscription(["t"])}]}


async def classic_member(caller: Caller, data: bytes, **values: object) -> str:
    """Return the id of the only member of a stable classic group with this assignment."""
    full = {**METADATA, **values}
    member_id = (await caller.join("g", **full)).member_id
    await caller.join("g", member_id, **full)
    await caller.sync("g", member_id, {member_id: data})
    return member_id


def classic(cluster: TargetCluster) -> ClassicGroup:
    group = cluster.groups.get("g")
    assert isinstance(group, ClassicGroup)
    return group


async def test_the_first_consumer_upgrades_the_group_and_the_members_keep_what_they_have() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        member_id = await classic_member(caller, assignment({"t": [0, 1], "gone": [0]}))
        joined = await caller.join_consumer("g", "modern", "t")
        group = cluster.groups.get("g")
        assert isinstance(group, ConsumerGroup)
        assert (joined.member_epoch, joined.assignment.topic_partitions) == (2, [])
        old = group.members[member_id]
        assert (old.epoch, len(old.assigned), set(old.assigned.values()), len(group.target[member_id])) == (
            1,
            2,
            {1},
            1,
        )


@pytest.mark.parametrize(
    ("data", "metadata"),
    [(b"?", subscription(["t"])), (assignment({})[:-4] + b"\0\0\0\1u", subscription(["t"])), (assignment({}), b"?")],
    ids=["malformed assignment", "user data of an assignor", "malformed subscription"],
)
async def test_what_the_coordinator_cannot_keep_prevents_the_upgrade(data: bytes, metadata: bytes) -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        member_id = await classic_member(caller, data, protocols=[{"name": "range", "metadata": metadata}])
        refused = await caller.join_consumer("g", "modern", "t")
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert classic(cluster).heartbeat(member_id, None, 1) == ErrorCode.NONE


async def test_a_group_of_another_protocol_type_stays_classic() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        member_id = (await caller.join("g", protocol_type="connect")).member_id
        await caller.join("g", member_id, protocol_type="connect")
        refused = await caller.join_consumer("g", "modern", "t")
        assert (refused.error_code, classic(cluster).state) == (ErrorCode.GROUP_ID_NOT_FOUND, ClassicState.COMPLETING)


async def test_a_refused_consumer_leaves_the_group_classic_without_timers() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        member_id = await classic_member(caller, assignment({"t": [0]}))
        refused = await caller.join_consumer("g", "modern", "t", subscribed_topic_regex="(")
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        await advance(cluster, 9)
        assert classic(cluster).heartbeat(member_id, None, 1) == ErrorCode.NONE
        await advance(cluster, 9)
        assert list(classic(cluster).members) == [member_id]


async def test_waiting_requests_end_with_the_upgrade() -> None:
    async with running_cluster() as cluster, trio.open_nursery() as nursery:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        await classic_member(caller, assignment({"t": [0, 1]}))
        second = (await caller.join("g", **METADATA)).member_id
        error_codes = []

        async def join() -> None:
            error_codes.append((await Caller(cluster, number=2).join("g", second, **METADATA)).error_code)

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        assert (await caller.join_consumer("g", "modern", "t")).error_code == 0
        await trio.testing.wait_all_tasks_blocked()
        assert error_codes == [ErrorCode.REBALANCE_IN_PROGRESS]


@pytest.mark.parametrize("how", ["leave", "session"])
async def test_the_group_is_classic_again_without_its_last_consumer(how: str) -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        member_id = await classic_member(caller, assignment({"t": [0, 1]}), session_timeout_ms=60_000)
        await caller.join_consumer("g", "modern", "t")
        if how == "leave":
            await caller.beat("g", "modern", -1)
        else:
            await advance(cluster, 45)
        group = classic(cluster)
        assert (group.state, group.generation, group.leader) == (ClassicState.PREPARING, 2, member_id)
        again = await caller.join("g", member_id, **METADATA)
        assert (again.generation_id, len(again.members), again.protocol_name) == (3, 1, "range")
