"""Topics with chosen leaders, and nodes that do not lead or coordinate (conformance/README.md rule 43)."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.connection import PeerConnection
from kafka_share_proxy.conformance.suite.expectations import equal

NEEDS = "several-nodes"
"""Capability that every case with these topics needs."""


async def topic_on_each_node(run: CaseRun, count: int = 0) -> CaseTopic:
    """Return a topic with one partition on each node, without further replicas. Every node shows it."""
    topic = await run.topic(count=count, replicas=[[node] for node in await run.nodes()])
    for node in topic.leaders.values():
        await _shown_at(run, node, topic)
    return topic


async def topic_and_other_node(
    run: CaseRun, *, is_replicated: bool = False, count: int = 0
) -> tuple[CaseTopic, PeerConnection]:
    """Return a topic of one partition, and a connection to a node that does not lead it.

    With `is_replicated` that node is a follower.
    """
    leader, other = (await run.nodes())[:2]
    topic = await run.topic(count=count, replicas=[[leader, other] if is_replicated else [leader]])
    return topic, await _shown_at(run, other, topic)


async def _shown_at(run: CaseRun, node: int, topic: CaseTopic) -> PeerConnection:
    connection = await run.connection(await run.node(node))
    await run.cluster.await_topic(connection, topic.name, len(topic.partitions))
    return connection


async def not_coordinator(run: CaseRun, key: str, key_type: int = 0) -> PeerConnection:
    """Return a connection to a node that does not coordinate a group, or a transactional id (1)."""
    coordinator = (await run.coordinator(key, key_type)).address
    brokers = await run.cluster.brokers(await run.connection())
    return await run.connection(next(address for _, address in sorted(brokers.items()) if address != coordinator))


async def names_leader(run: CaseRun, topic: CaseTopic, response: Any, partition: Any) -> None:
    """Raise Mismatch unless the response has leader and address of partition 0, which is in epoch 0 (KIP-951)."""
    leader = topic.leaders[0]
    current = partition.current_leader
    equal("CurrentLeader", (current.leader_id, current.leader_epoch), (leader, 0))
    endpoints = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
    equal("NodeEndpoints", endpoints, [(leader, *await run.node(leader))])
