"""Topics with chosen leaders, and nodes that are not responsible, against the cluster in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from kafka_share_proxy.conformance.suite import placed_topics
from kafka_share_proxy.conformance.suite.capabilities import discover
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.expectations import Mismatch
from kafka_share_proxy.conformance.target.server import open_target

from tests.support.raw import address


@asynccontextmanager
async def a_run() -> AsyncIterator[CaseRun]:
    async with open_target() as server:
        cluster, capabilities = await discover(Dialling([address(each) for each in server.bootstrap.split(",")]))
        assert placed_topics.NEEDS not in capabilities.missing
        run = CaseRun(cluster, capabilities)
        yield run
        await run.aclose()


async def test_each_node_leads_one_partition() -> None:
    async with a_run() as run:
        topic = await placed_topics.topic_on_each_node(run, count=1)
        assert dict(topic.leaders) == {0: 1, 1: 2, 2: 3}
        assert [await run.end_offset(topic, partition) for partition in topic.partitions] == [1, 1, 1]


@pytest.mark.parametrize("is_replicated", [False, True])
async def test_the_other_node_does_not_lead(is_replicated: bool) -> None:
    async with a_run() as run:
        topic, other = await placed_topics.topic_and_other_node(run, is_replicated=is_replicated)
        assert other.address == await run.node(2)
        partition = (await run.request("Metadata", topics=[{"name": topic.name}])).topics[0].partitions[0]
        assert partition.leader_id == 1
        assert list(partition.replica_nodes) == ([1, 2] if is_replicated else [1])


async def test_a_node_that_does_not_coordinate_is_found() -> None:
    async with a_run() as run:
        for kind in (0, 1):
            other = await placed_topics.not_coordinator(run, "key", kind)
            assert other.address != (await run.coordinator("key", kind)).address


async def test_a_response_must_name_the_leader_and_its_address() -> None:
    async with a_run() as run:
        topic, _ = await placed_topics.topic_and_other_node(run)
        host, port = await run.node(1)
        partition = SimpleNamespace(current_leader=SimpleNamespace(leader_id=1, leader_epoch=0))
        right = SimpleNamespace(node_endpoints=[SimpleNamespace(node_id=1, host=host, port=port)])
        await placed_topics.names_leader(run, topic, right, partition)
        with pytest.raises(Mismatch, match="NodeEndpoints"):
            await placed_topics.names_leader(run, topic, SimpleNamespace(node_endpoints=[]), partition)
        partition.current_leader.leader_epoch = 1
        with pytest.raises(Mismatch, match="CurrentLeader"):
            await placed_topics.names_leader(run, topic, right, partition)


async def test_topics_that_are_not_placed_have_one_leader() -> None:
    async with a_run() as run:
        topics = [await run.topic(4), await run.topic(2)]
        assert len({leader for topic in topics for leader in topic.leaders.values()}) == 1
