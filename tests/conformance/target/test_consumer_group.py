"""KIP-848 groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup, GroupRefusal
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, running_cluster


async def test_a_static_member_keeps_its_partitions_while_it_is_away() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        joined = await caller.join_consumer("g", "m1", "t", instance_id="i")
        response = await caller.join_consumer("g", "m2", "t", instance_id="i")
        assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
        await caller.beat("g", "m1", -2, instance_id="i")
        again = await caller.join_consumer("g", "m2", "t", instance_id="i")
        assert (again.error_code, again.member_epoch) == (0, joined.member_epoch)
        assert again.assignment.topic_partitions[0].partitions == [0]
        fenced = await caller.beat("g", "m1", joined.member_epoch, instance_id="i")
        assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_a_member_that_does_not_revoke_is_fenced_after_its_rebalance_timeout() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        first = await caller.join_consumer("g", "m1", "t", rebalance_timeout_ms=10_000)
        await advance(cluster, 1)
        await caller.join_consumer("g", "m2", "t")
        await caller.beat("g", "m1", first.member_epoch)
        await advance(cluster, 9)
        assert (await caller.beat("g", "m1", first.member_epoch)).error_code == 0
        await advance(cluster, 1)
        assert (await caller.beat("g", "m1", first.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_state_follows_epochs_and_members() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        caller = Caller(cluster)
        await caller.join_consumer("g", "m1", "t")
        group = cluster.groups.get("g")
        assert isinstance(group, ConsumerGroup)
        assert (group.state, group.subscribed()) == ("Stable", {"t"})
        await caller.join_consumer("g", "m2", "t")
        assert group.state == "Assigning"
        await advance(cluster, 1)
        await caller.beat("g", "m2", 2)
        assert group.state == "Reconciling"
        group.leave("m1", None, -1)
        group.leave("m2", None, -1)
        assert group.state == "Empty"
        with pytest.raises(GroupRefusal, match="not a member"):
            group.leave("m1", None, -1)
