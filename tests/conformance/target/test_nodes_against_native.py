"""Requests at the nodes of a cluster of three: the target responds as a native 4.3.0 does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_share_proxy.conformance.cluster_thread import KafkaCluster, running_cluster
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.brokers import Running
from tests.support.raw import Raw, Topic, until
from tests.support.two_clusters import Labels

pytestmark = pytest.mark.broker

Fresh = Callable[[str], str]
Trace = dict[str, Any]
NODES = (1, 2, 3)
OFFSETS: dict[str, list[tuple[str, list[int]]] | None] = {
    "named": [("", [0, 1, 2])],
    "unknown topic": [("-none", [0, 1])],
    "no topics": [],
    "all topics": None,
}
"""Topics by the end of their names, with partitions."""


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.native(nodes=3)


@pytest.fixture
def target() -> Iterator[KafkaCluster]:
    with running_cluster() as cluster:
        yield cluster
        assert cluster.failures() == []


def plain(response: Any) -> Any:
    return Labels().plain(response)


def coordinator_first(raw: Raw, group: str) -> list[int]:
    """Return the nodes, the coordinator of the group first."""
    where = raw.coordinator(group)
    return sorted(NODES, key=lambda node: raw.node(node) != where)


# Offsets of share groups


def describe_offsets(raw: Raw, topic: Topic, group: str) -> Trace:
    """Describe the offsets of a group, of an unknown one, and of none, at its coordinator and at another node."""
    for partition in topic.leaders:
        raw.produce(topic, 3, partition=partition)
    starts = [{"partition_index": partition, "start_offset": 1} for partition in topic.leaders]
    values = {"group_id": group, "topics": [{"topic_name": topic.name, "partitions": starts}]}
    altered = raw.send_request("AlterShareGroupOffsets", 0, on=raw.on_coordinator(group), **values)
    trace: Trace = {"altered": plain(altered)}
    for role, node in zip(("coordinator", "other", "third"), coordinator_first(raw, group), strict=True):
        for name, requested in OFFSETS.items():
            topics = requested if requested is None else [
                {"topic_name": topic.name + end, "partitions": partitions} for end, partitions in requested
            ]  # fmt: skip
            for suffix in ("", "-none") if role == "coordinator" else ("",):
                at = coordinator_first(raw, group + suffix)[0] if suffix else node
                groups = [{"group_id": group + suffix, "topics": topics}]
                label = f"{name} of group{suffix} at the {role}"
                try:
                    response = raw.send_request(
                        "DescribeShareGroupOffsets", 1, on=raw.connect(raw.node(at)), groups=groups
                    )
                except TimeoutError:
                    trace[label] = "no response"
                else:
                    trace[label] = plain(response)
    return trace


def test_share_offsets_of_named_topics_are_described_at_any_node(
    kafka: Cluster, target: KafkaCluster, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    traces = []
    for bootstrap in (kafka.bootstrap, target.bootstrap):
        with Raw(bootstrap) as raw:
            created = raw.create_topic(topic, assignments={node - 1: [node] for node in NODES})
            traces.append(describe_offsets(raw, created, group))
    native, ours = traces
    assert ours == native


# Epochs


def fetch_in_epochs(raw: Raw, topic: str, epoch: int) -> Trace:
    """Fetch with the epochs around the current one, with and without a session."""
    trace: Trace = {}
    existing = raw.topic(topic)
    assert existing is not None
    leader = raw.kept(raw.node(existing.leaders[0]))
    for version in (9, 12, 16):
        for step in (-1, 0, 1):
            partition = {"partition": 0, "current_leader_epoch": epoch + step, "fetch_offset": 0}
            partition |= {"partition_max_bytes": 1 << 20}
            identity = {"topic": topic} if version < 13 else {"topic_id": existing.topic_id}
            values = {"max_wait_ms": 0, "min_bytes": 0, "topics": [{**identity, "partitions": [partition]}]}
            for session in (-1, 0):
                response = raw.send_request("Fetch", version, on=leader, session_epoch=session, **values)
                entry = response.responses[0].partitions[0]
                trace[f"v{version}, epoch {step:+d}, session epoch {session}"] = (
                    entry.error_code,
                    entry.high_watermark,
                    len(entry.records or b"") > 0,
                    (entry.current_leader.leader_id, entry.current_leader.leader_epoch - epoch),
                    [each.node_id for each in response.node_endpoints],
                )
    return trace


def epoch_of(raw: Raw, topic: str) -> tuple[int, int]:
    """Return leader and leader epoch of partition 0."""
    entry = raw.send_request("Metadata", 12, topics=[{"name": topic}]).topics[0].partitions[0]
    return entry.leader_id, entry.leader_epoch


def test_a_fetch_with_another_leader_epoch_is_refused(kafka: Cluster, target: KafkaCluster, fresh: Fresh) -> None:
    topic = fresh("topic")
    traces = []
    for bootstrap in (kafka.bootstrap, target.bootstrap):
        with Raw(bootstrap) as raw:
            created = raw.create_topic(topic, assignments={0: [1]})
            raw.produce(created, 2)
            if bootstrap == target.bootstrap:
                target.move_leader(topic, 0, 2)
            else:
                moved = {"name": topic, "partitions": [{"partition_index": 0, "replicas": [2]}]}
                raw.send_request("AlterPartitionReassignments", 0, topics=[moved], timeout_ms=10_000)
            until(lambda raw=raw: epoch_of(raw, topic)[0] == 2, "the leader to move")  # type: ignore[misc]
            traces.append(fetch_in_epochs(raw, topic, epoch_of(raw, topic)[1]))
    native, ours = traces
    assert ours == native
