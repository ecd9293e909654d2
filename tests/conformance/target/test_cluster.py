"""Nodes, leaders and coordinators of a cluster in one process, and what a test may do to them."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, batch, running_cluster, values


async def test_a_node_that_is_down_leads_nothing_until_it_is_up_again() -> None:
    async with running_cluster(3) as cluster:
        alone = cluster.create_topic("alone", 3).partitions[0]
        spread = cluster.create_topic("spread", 3, replication=3).partitions[0]
        first, other = alone.leader, spread.leader
        cluster.take_node_down(first)
        assert (alone.leader, alone.leader_epoch) == (-1, 1)
        cluster.take_node_down(other)
        assert spread.leader not in (-1, other)
        cluster.bring_node_up(first)
        assert (alone.leader, alone.leader_epoch) == (first, 2)


async def test_fetch_sessions_of_a_node_end_with_it() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        topics = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]}]
        caller = Caller(cluster)
        session_id = (await caller.query("Fetch", 12, session_epoch=0, topics=topics)).session_id
        cluster.take_node_down(1)
        cluster.bring_node_up(1)
        fetched = await caller.query("Fetch", 12, session_id=session_id, session_epoch=1)
        assert fetched.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_coordinator_is_replaced_while_its_node_is_down() -> None:
    async with running_cluster(3) as cluster:
        first = cluster.coordinators.node_of(CoordinatorKind.GROUP, "g")
        cluster.take_node_down(first)
        assert cluster.coordinators.node_of(CoordinatorKind.GROUP, "g") == first % 3 + 1
        cluster.bring_node_up(first)
        cluster.move_coordinator(CoordinatorKind.GROUP, "g", first % 3 + 1)
        assert cluster.coordinators.node_of(CoordinatorKind.GROUP, "g") == first % 3 + 1


async def test_a_truncated_log_loses_records_in_a_new_leader_epoch() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        for each in ("a", "b", "c"):
            await caller.produce("t", batch(each))
        cluster.truncate_log("t", 0, 1)
        await caller.produce("t", batch("d"))
        log = cluster.partition("t", 0).log
        assert (log.end, log.epoch_at(0), log.epoch_at(1)) == (2, 0, 1)
        assert values((await caller.fetch("t", 0)).records) == ["a", "d"]


async def test_a_topic_created_again_is_empty_and_has_another_id() -> None:
    async with running_cluster() as cluster:
        old = cluster.create_topic("t", 2)
        await Caller(cluster).produce("t", batch("a"))
        new = cluster.recreate_topic("t")
        assert new.topic_id != old.topic_id
        assert [partition.log.end for partition in new.partitions] == [0, 0]


async def test_mistakes_of_a_test_are_reported() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(ValueError, match="there is no topic 'u'"):
            cluster.move_leader("u", 0, 1)
        with pytest.raises(ValueError, match="no node 2"):
            cluster.move_leader("t", 0, 2)
        with pytest.raises(ValueError, match="has offsets 0 to 0"):
            cluster.truncate_log("t", 0, 1)
        with pytest.raises(ValueError, match="already exists"):
            cluster.create_topic("t")


async def test_ids_depend_on_the_seed_only() -> None:
    ids = []
    for seed in (1, 1, 2):
        async with running_cluster(seed=seed) as cluster:
            ids.append((cluster.cluster_id, cluster.create_topic("t").topic_id))
    assert ids[0] == ids[1] != ids[2]


async def test_requests_that_wait_see_a_new_leader_immediately() -> None:
    async with running_cluster(2, settings=ClusterSettings(default_replication=2)) as cluster:
        partition = cluster.create_topic("t").partitions[0]
        message = messages.MetadataRequest
        leader = partition.leader
        cluster.move_leader("t", 0, 3 - leader)
        response = await Caller(cluster).get(message(topics=[message.MetadataRequestTopic(name="t")]))
        assert (response.topics[0].partitions[0].leader_id, response.topics[0].partitions[0].leader_epoch) == (
            3 - leader,
            1,
        )
