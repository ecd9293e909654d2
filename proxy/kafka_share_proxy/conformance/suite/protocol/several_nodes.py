"""Cases of requests at leaders, followers and other nodes (conformance/README.md rule 43)."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka_share_proxy.conformance.suite.case_run import CaseRun, spans_of, values_of
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.conformance.suite.partition_reads import fetch, read
from kafka_share_proxy.conformance.suite.placed_topics import (
    NEEDS,
    names_leader,
    topic_and_other_node,
    topic_on_each_node,
)
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    ShareSessionMember,
    acquired,
    entry,
    share_group,
    share_member,
)
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

NO_EPOCH, OLD_EPOCH, EPOCH, LATER_EPOCH = -1, -2, 0, 99
EPOCHS = {
    "earlier": (OLD_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
    "current": (EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "later": (LATER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
}
"""Row -> CurrentLeaderEpoch and the code of a follower: the epoch is compared before the role."""
CHECKS = "KIP-320; Partition.getLocalLog"
LEADERS = "KIP-951; KafkaApis.getCurrentLeader"
LATEST = -1


# Metadata


@case("metadata.nodes.same-brokers", "MetadataResponse.json", needs=(NEEDS,))
async def same_brokers(run: CaseRun) -> None:
    """Each node shows the same brokers with the same addresses, and the same cluster id."""
    first = await run.request("Metadata", topics=[])
    expected = sorted((each.node_id, each.host, each.port) for each in first.brokers)
    for node in await run.nodes():
        response = await run.request("Metadata", await run.connection(await run.node(node)), topics=[])
        actual = sorted((each.node_id, each.host, each.port) for each in response.brokers)
        equal(f"brokers at node {node}", actual, expected)
        equal(f"cluster id at node {node}", response.cluster_id, first.cluster_id)


@case("metadata.nodes.leaders", "MetadataResponse.json", needs=(NEEDS,))
async def leaders(run: CaseRun) -> None:
    """Each node shows the leaders, epochs, replicas and in-sync replicas of a topic that has a partition on each
    node.
    """
    topic = await topic_on_each_node(run)
    nodes = await run.nodes()
    for node in nodes:
        connection = await run.connection(await run.node(node))
        response = await run.request("Metadata", connection, topics=[{"name": topic.name}])
        actual = {
            each.partition_index: (each.leader_id, each.leader_epoch, list(each.replica_nodes), list(each.isr_nodes))
            for each in response.topics[0].partitions
        }
        equal(f"partitions at node {node}", actual, {index: (n, 0, [n], [n]) for index, n in enumerate(nodes)})


@case("metadata.nodes.replicas", "CreateTopicsRequest.json (Assignments)", needs=(NEEDS,))
async def replicas(run: CaseRun) -> None:
    """The first node of a manual assignment leads, and the replicas are shown in its order."""
    second, first = (await run.nodes())[:2]
    topic = await run.topic(replicas=[[first, second]])
    response = await run.request("Metadata", topics=[{"name": topic.name}])
    partition = response.topics[0].partitions[0]
    equal("LeaderId", partition.leader_id, first)
    equal("ReplicaNodes", list(partition.replica_nodes), [first, second])


@case_for_each(
    {"group": (0,), "transaction": (1,)},
    "metadata.nodes.coordinator-of-{name}",
    "FindCoordinatorResponse.json",
    needs=(NEEDS, "FindCoordinator:4"),
)
async def same_coordinator(run: CaseRun, kind: int) -> None:
    """Each node returns the same coordinator of a {name}."""
    key = run.name("key")
    expected = (await run.coordinator(key, kind)).address
    for node in await run.nodes():
        connection = await run.connection(await run.node(node))
        response = await run.request("FindCoordinator", connection, key_type=kind, coordinator_keys=[key])
        (coordinator,) = response.coordinators
        equal(f"error at node {node}", coordinator.error_code, ErrorCode.NONE)
        equal(f"address at node {node}", (coordinator.host, coordinator.port), tuple(expected))


# Produce and Fetch


@case("produce-fetch.nodes.own-partitions", "KafkaApis.handleProduceRequest, handleFetchRequest", needs=(NEEDS,))
async def own_partitions(run: CaseRun) -> None:
    """Each node appends to the partition that it leads, and returns its records."""
    topic = await topic_on_each_node(run)
    for partition, node in topic.leaders.items():
        base = await run.produce(topic, [b"at node %d" % node], partition=partition)
        equal(f"base offset at node {node}", base, 0)
    for partition, node in topic.leaders.items():
        actual = await read(run, topic, partition=partition, on=await run.leader(topic, partition))
        equal(f"records at node {node}", values_of(actual.records), [(0, b"at node %d" % node)])


class RefusedProduce(NamedTuple):
    """Produce to a node that does not lead."""

    topic: CaseTopic
    response: Any
    partition: Any
    """Partition in the response."""


async def produce_at(run: CaseRun, version: int) -> RefusedProduce:
    """Send a batch to a node that does not lead."""
    topic, other = await topic_and_other_node(run)
    data = records.build_batch(0, [records.Record(value=b"v", timestamp=0)])
    listed = {"name": topic.name, "partition_data": [{"index": 0, "records": data}]}
    response = await run.request("Produce", other, version, acks=-1, timeout_ms=10_000, topic_data=[listed])
    return RefusedProduce(topic, response, response.responses[0].partition_responses[0])


@case("produce-fetch.nodes.produce", "ReplicaManager.appendRecords", needs=(NEEDS,))
async def produce(run: CaseRun) -> None:
    """A Produce at a node that does not lead gets NOT_LEADER_OR_FOLLOWER with BaseOffset -1, and appends nothing."""
    topic, _, partition = await produce_at(run, 9)
    equal("ErrorCode", partition.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    equal("BaseOffset", partition.base_offset, -1)
    equal("end offset", await run.end_offset(topic), 0)


@case("produce-fetch.nodes.produce-leader", LEADERS, needs=(NEEDS, "Produce:10"))
async def produce_leader(run: CaseRun) -> None:
    """A Produce v10 at a node that does not lead gets CurrentLeader and its address."""
    topic, response, partition = await produce_at(run, 10)
    equal("ErrorCode", partition.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await names_leader(run, topic, response, partition)


@case_for_each(
    {str(version): (version,) for version in (10, 11, 12, 15)},
    "produce-fetch.nodes.fetch-v{name}",
    "ReplicaManager.readFromLog",
    needs=(NEEDS, "Fetch:{0}"),
)
async def fetch_elsewhere(run: CaseRun, version: int) -> None:
    """A Fetch v{0} at a node without a replica gets NOT_LEADER_OR_FOLLOWER without records."""
    topic, other = await topic_and_other_node(run, count=3)
    partition = (await fetch(run, topic, on=other, version=version)).responses[0].partitions[0]
    equal("ErrorCode", partition.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    equal("HighWatermark", partition.high_watermark, -1)
    equal("bytes of records", len(partition.records or b""), 0)


@case("produce-fetch.nodes.fetch-leader", LEADERS, needs=(NEEDS, "Fetch:16"))
async def fetch_leader(run: CaseRun) -> None:
    """A Fetch v16 at a node without a replica gets CurrentLeader and its address."""
    topic, other = await topic_and_other_node(run, count=3)
    response = await fetch(run, topic, on=other, version=16)
    partition = response.responses[0].partitions[0]
    equal("ErrorCode", partition.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await names_leader(run, topic, response, partition)


@case(
    "produce-fetch.nodes.fetch-old-version-at-follower",
    "KIP-392; FetchParams.fetchOnlyLeader",
    needs=(NEEDS, "Fetch:10"),
)
async def fetch_v10_at_follower(run: CaseRun) -> None:
    """A Fetch v10 at a follower gets NOT_LEADER_OR_FOLLOWER: consumers read from followers since version 11."""
    topic, follower = await topic_and_other_node(run, is_replicated=True, count=3)
    partition = (await fetch(run, topic, on=follower, version=10)).responses[0].partitions[0]
    equal("ErrorCode", partition.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    equal("bytes of records", len(partition.records or b""), 0)


@case("produce-fetch.nodes.fetch-at-follower", "KIP-392", needs=(NEEDS, "Fetch:11"))
async def fetch_at_follower(run: CaseRun) -> None:
    """A Fetch v11 at a follower returns the records that are replicated."""
    topic, follower = await topic_and_other_node(run, is_replicated=True, count=3)

    async def replicated() -> Any:
        partition = await read(run, topic, on=follower, version=11)
        equal("ErrorCode", partition.error_code, ErrorCode.NONE)
        return spans_of(partition.records)

    equal("batches", await run.until(replicated, "the high watermark of the follower"), [(0, 2, 3)])


@case_for_each({"later": EPOCHS["later"]}, "produce-fetch.nodes.fetch-epoch-{name}", CHECKS, needs=(NEEDS, "Fetch:12"))
async def fetch_epoch_at_follower(run: CaseRun, epoch: int, code: ErrorCode) -> None:
    """A Fetch v12 at a follower with CurrentLeaderEpoch {0} in epoch 0 gets {1.name}."""
    topic, follower = await topic_and_other_node(run, is_replicated=True, count=3)
    partition = await read(run, topic, on=follower, version=12, current_leader_epoch=epoch)
    equal("ErrorCode", partition.error_code, code)


@case_for_each(EPOCHS, "produce-fetch.nodes.list-offsets-epoch-{name}", CHECKS, needs=(NEEDS, "ListOffsets:4"))
async def list_offsets_at_follower(run: CaseRun, epoch: int, code: ErrorCode) -> None:
    """ListOffsets at a follower with CurrentLeaderEpoch {0} in epoch 0 gets {1.name}, offset and timestamp -1."""
    topic, follower = await topic_and_other_node(run, is_replicated=True, count=3)
    entry_ = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": epoch}
    topics = [{"name": topic.name, "partitions": [entry_]}]
    response = await run.request("ListOffsets", follower, replica_id=-1, topics=topics)
    partition = response.topics[0].partitions[0]
    equal("ErrorCode", partition.error_code, code)
    equal("Offset and Timestamp", (partition.offset, partition.timestamp), (-1, -1))


@case_for_each(EPOCHS, "produce-fetch.nodes.end-of-epoch-{name}", CHECKS, needs=(NEEDS,))
async def end_of_epoch_at_follower(run: CaseRun, epoch: int, code: ErrorCode) -> None:
    """OffsetForLeaderEpoch at a follower with CurrentLeaderEpoch {0} in epoch 0 gets {1.name}, epoch and offset -1."""
    topic, follower = await topic_and_other_node(run, is_replicated=True, count=3)
    requested = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}
    topics = [{"topic": topic.name, "partitions": [requested]}]
    response = await run.request("OffsetForLeaderEpoch", follower, replica_id=-1, topics=topics)
    partition = response.topics[0].partitions[0]
    equal("ErrorCode", partition.error_code, code)
    equal("LeaderEpoch and EndOffset", (partition.leader_epoch, partition.end_offset), (-1, -1))


@case("produce-fetch.nodes.delete-records", "ReplicaManager.deleteRecordsOnLocalLog", needs=(NEEDS,))
async def delete_records(run: CaseRun) -> None:
    """DeleteRecords at a node that does not lead gets NOT_LEADER_OR_FOLLOWER, and deletes nothing."""
    topic, other = await topic_and_other_node(run, count=3)
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 2}]}]
    response = await run.request("DeleteRecords", other, topics=topics, timeout_ms=10_000)
    partition = response.topics[0].partitions[0]
    equal("ErrorCode", partition.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    equal("LowWatermark", partition.low_watermark, -1)
    equal("earliest offset", await run.end_offset(topic, timestamp=-2), 0)


# Share groups


@case("share-groups.nodes.fetch", "KIP-932, KIP-951; KafkaApis.processShareFetchResponse", needs=(NEEDS, "share"))
async def share_fetch(run: CaseRun) -> None:
    """A ShareFetch at a node that does not lead gets NOT_LEADER_OR_FOLLOWER with CurrentLeader and its address."""
    topic, other = await topic_and_other_node(run, is_replicated=True, count=3)
    group = await share_group(run, topic)
    member = ShareSessionMember(run, group, other, run.name("m")[-36:])
    response = await member.fetch(topic)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    partition = entry(response, topic)
    equal("ErrorCode", partition.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    equal("acquired records", acquired(response, topic), [])
    await names_leader(run, topic, response, partition)


@case("share-groups.nodes.own-partition", "KIP-932", needs=(NEEDS, "share"))
async def share_own_partition(run: CaseRun) -> None:
    """A ShareFetch of partitions of two nodes returns records of the own one, NOT_LEADER_OR_FOLLOWER for the other."""
    topic = await topic_on_each_node(run, count=3)
    group = await share_group(run, topic)
    member = await share_member(run, group, topic, partition=1)
    first = await member.fetch((topic, 0), (topic, 1))
    equal("error of the other partition", entry(first, topic, 0).error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    equal("acquired of the other partition", acquired(first, topic, 0), [])
    response = first if acquired(first, topic, 1) else await member.take((topic, 1))
    equal("error of the own partition", entry(response, topic, 1).error_code, ErrorCode.NONE)
    equal("acquired of the own partition", acquired(response, topic, 1), [(0, 2, 1)])


@case("share-groups.nodes.leaders", "KIP-932; SharePartitionManager.newContext", needs=(NEEDS, "share"))
async def share_leaders(run: CaseRun) -> None:
    """A member acquires and acknowledges each partition at its leader, with one session for each node."""
    topic = await topic_on_each_node(run, count=3)
    group = await share_group(run, topic)
    member_id = run.name("m")[-36:]
    for partition in topic.partitions:
        member = await share_member(run, group, topic, partition=partition)
        member.member_id = member_id
        equal(f"acquired of {partition}", await member.acquire(topic, partition), [(0, 2, 1)])
        response = await member.acknowledge((topic, partition, 0, 2, ACCEPT))
        equal("error of the response", response.error_code, ErrorCode.NONE)
        equal(f"error of partition {partition}", entry(response, topic, partition).error_code, ErrorCode.NONE)
