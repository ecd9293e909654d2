"""Classic members of a KIP-848 group."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup, ClassicState
from kafka_share_proxy.conformance.target.consumer_protocol import read_assignment
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.consumer_metadata import assignment, subscription
from tests.support.target_caller import Caller, advance, running_cluster


def metadata(*owned: int) -> dict[str, Any]:
    return {"protocols": [{"name": "range", "metadata": subscription(["t"], {"t": owned})}]}


async def joined(caller: Caller, **values: Any) -> tuple[str, int]:
    """Return (member id, generation) of a new classic member."""
    response = await caller.query("JoinGroup", 3, group_id="g", **{**REQUEST, **metadata(), **values})
    assert response.error_code == ErrorCode.NONE
    return response.member_id, response.generation_id


REQUEST = {"member_id": "", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000, "protocol_type": "consumer"}


async def heartbeat(caller: Caller, member_id: str, generation: int) -> int:
    request = {"group_id": "g", "member_id": member_id, "generation_id": generation}
    return int((await caller.query("Heartbeat", 4, **request)).error_code)


async def synced(caller: Caller, member_id: str, generation: int) -> list[int]:
    response = await caller.sync("g", member_id, {}, generation=generation)
    assigned = read_assignment(bytes(response.assignment))
    assert (response.error_code, assigned is None) == (0, False)
    return (
        [index for topic in assigned.assigned_partitions for index in topic.partitions] if assigned is not None else []
    )


async def test_partitions_move_from_a_consumer_to_a_classic_member() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        first = await caller.join_consumer("g", "modern", "t")
        await advance(cluster, 1)
        member_id, generation = await joined(caller)
        assert (generation, await synced(caller, member_id, generation)) == (first.member_epoch + 1, [])
        assert await heartbeat(caller, member_id, generation) == ErrorCode.NONE
        retained_partitions = (await caller.beat("g", "modern", first.member_epoch)).assignment.topic_partitions
        await caller.beat("g", "modern", first.member_epoch, topic_partitions=retained_partitions)
        assert await heartbeat(caller, member_id, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        await caller.join("g", member_id, **metadata())
        assert await synced(caller, member_id, generation) == [1 - retained_partitions[0].partitions[0]]
        assert await heartbeat(caller, member_id, generation) == ErrorCode.NONE


async def test_a_classic_member_revokes_before_it_has_the_next_generation() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        member_id, _ = await joined(caller)
        await caller.sync("g", member_id, {member_id: assignment({"t": [0, 1]})})
        await caller.join_consumer("g", "modern", "t")
        refused = await caller.sync("g", member_id, {}, generation=1)
        assert refused.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await caller.join("g", member_id, **metadata(0, 1))).generation_id == 1
        retained_partitions = await synced(caller, member_id, 1)
        assert len(retained_partitions) == 1
        assert await heartbeat(caller, member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await caller.join("g", member_id, **metadata(*retained_partitions))).generation_id == 2
        assert await synced(caller, member_id, 2) == retained_partitions


@pytest.mark.parametrize("silent", ["session", "join", "sync"])
async def test_a_silent_classic_member_is_removed(silent: str) -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        await caller.join_consumer("g", "modern", "t")
        member_id, generation = await joined(caller, session_timeout_ms=10_000 if silent == "session" else 60_000)
        if silent != "sync":
            await caller.sync("g", member_id, {}, generation=max(generation, 0))
        if silent == "join":
            await advance(cluster, 1)
            await caller.join_consumer("g", "third", "t")
            assert await heartbeat(caller, member_id, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        group = cluster.groups.get("g")
        assert group is not None
        await advance(cluster, 9 if silent == "session" else 19)
        assert member_id in group.members
        await advance(cluster, 1)
        assert member_id not in group.members


async def test_members_of_the_other_protocol_are_unknown() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        epoch = (await caller.join_consumer("g", "modern", "t")).member_epoch
        member_id, generation = await joined(caller)
        assert await heartbeat(caller, "modern", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await heartbeat(caller, "nobody", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await heartbeat(caller, member_id, generation + 1) == ErrorCode.ILLEGAL_GENERATION
        other = await caller.join("g", protocols=[{"name": "other", "metadata": subscription(["t"])}])
        assert (other.error_code, other.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        malformed = await caller.join("g", member_id, protocols=[{"name": "range", "metadata": b"?"}])
        assert malformed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        kinds = (await caller.query("ConsumerGroupDescribe", 1, group_ids=["g"])).groups[0].members
        assert {each.member_id: each.member_type for each in kinds} == {"modern": 1, member_id: 0}


async def test_commits_of_a_classic_member_are_fenced_by_its_generation() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.join_consumer("g", "modern", "t")
        await advance(cluster, 1)
        member_id, generation = await joined(caller)
        codes = [await caller.commit("g", "t", 1, member_id=member_id, epoch=generation + n) for n in (0, 1, -1)]
        assert codes == [0, ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION]
        groups = [{"group_id": "g", "member_id": member_id, "member_epoch": generation - 1, "topics": None}]
        fetched_group = (await caller.query("OffsetFetch", 9, groups=groups)).groups[0]
        assert fetched_group.error_code == ErrorCode.ILLEGAL_GENERATION


async def test_a_static_consumer_that_returns_as_a_classic_member_makes_the_group_classic() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        await caller.join_consumer("g", "modern", "t", instance_id="i")
        again = await caller.join("g", group_instance_id="i", **metadata())
        group = cluster.groups.get("g")
        assert isinstance(group, ClassicGroup)
        assert (again.generation_id, group.generation, group.state) == (2, 2, ClassicState.STABLE)
        response = await caller.query(
            "SyncGroup", 5, group_id="g", member_id=again.member_id, group_instance_id="i", generation_id=2,
            protocol_type="consumer", protocol_name="range", assignments=[],
        )  # fmt: skip
        assigned = read_assignment(bytes(response.assignment))
        assert assigned is not None
        assert assigned.assigned_partitions[0].partitions == [0, 1]


async def test_several_members_leave_in_one_group_epoch() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        for name in ("m1", "m2"):
            await caller.join_consumer("g", name, "t", instance_id=name)
        member_id, _ = await joined(caller)
        members = [{"member_id": member_id}, {"member_id": "x"}, {"member_id": "", "group_instance_id": "m1"}]
        left = await caller.query("LeaveGroup", 5, group_id="g", members=members)
        assert [each.error_code for each in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
        described = (await caller.query("ConsumerGroupDescribe", 1, group_ids=["g"])).groups[0]
        assert ([each.member_id for each in described.members], described.group_epoch) == (["m2"], 5)
