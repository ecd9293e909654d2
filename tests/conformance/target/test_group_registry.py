"""Groups and their offsets by id."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.individual_commits import CommittedOffset
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.target_caller import Caller, running_cluster


async def test_a_deleted_topic_takes_its_offsets_along() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.commit("g", "t", 1)
        cluster.groups.offsets("g").committed[TopicPartition("u", 0)] = CommittedOffset(1)
        cluster.delete_topic("t")
        assert list(cluster.groups.offsets("g").committed) == [TopicPartition("u", 0)]


async def test_an_empty_group_of_another_type_is_replaced_and_its_offsets_stay() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.commit("g", "t", 3)
        assert isinstance(cluster.groups.get("g"), ClassicGroup)
        await caller.join_consumer("g", "m", "t")
        assert not isinstance(cluster.groups.get("g"), ClassicGroup)
        assert await caller.committed("g", "t") == (0, 3)
