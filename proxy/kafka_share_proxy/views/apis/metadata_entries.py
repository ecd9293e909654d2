"""Entries of views in Metadata and DescribeTopicPartitions: its own topic with the partitions of its base.

Partition p*R + r of the view has the leader, the leader epoch and the replicas of base partition p. Rules:
views/README.md 13 and 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.loop.slices import Work
from kafka_share_proxy.views.creation import SeenView
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

DescribedTopic: TypeAlias = "messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic"
_DescribedPartition: TypeAlias = "messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition"
_Partition: TypeAlias = "messages.MetadataResponse.MetadataResponsePartition"


async def metadata_entry(work: Work, sight: SeenView) -> TopicEntry:
    """Return the entry, in slices: partitions may be many."""
    message = messages.MetadataResponse
    entry = message.MetadataResponseTopic(
        error_code=int(sight.code), name=sight.name.topic, is_internal=False, partitions=[]
    )
    if sight.view is not None:
        entry.topic_id = sight.view.topic_id
        entry.topic_authorized_operations = sight.view.topic_authorized_operations
    await work.step()
    for index, of in _partitions(sight):
        entry.partitions.append(
            message.MetadataResponsePartition(
                error_code=of.error_code,
                partition_index=index,
                leader_id=of.leader_id,
                leader_epoch=of.leader_epoch,
                replica_nodes=of.replica_nodes,
                isr_nodes=of.isr_nodes,
                offline_replicas=of.offline_replicas,
            )
        )
        await work.step()
    return entry


def refused_entry(topic: str, code: ErrorCode) -> TopicEntry:
    return messages.MetadataResponse.MetadataResponseTopic(
        error_code=int(code), name=topic, is_internal=False, partitions=[]
    )


def describe_as_base(entry: DescribedTopic, sight: SeenView) -> None:
    """Replace partition data in a view's entry by that of the base."""
    leads = dict(_partitions(sight))
    entry.is_internal = False
    entry.partitions = [each for each in entry.partitions or () if each.partition_index in leads]
    for partition in entry.partitions:
        _show_base(partition, leads[partition.partition_index])


def _show_base(partition: _DescribedPartition, of: _Partition) -> None:
    partition.error_code = of.error_code
    partition.leader_id, partition.leader_epoch = of.leader_id, of.leader_epoch
    partition.replica_nodes, partition.isr_nodes = of.replica_nodes, of.isr_nodes
    partition.offline_replicas = of.offline_replicas
    # Metadata has neither list. Empty ones, as in a broker's entry of any topic: Java's admin client does not expect
    # null.
    partition.eligible_leader_replicas, partition.last_known_elr = [], []


async def description(work: Work, sight: SeenView) -> DescribedTopic:
    message = messages.DescribeTopicPartitionsResponse
    entry = message.DescribeTopicPartitionsResponseTopic(name=sight.name.topic, partitions=[])
    if sight.view is not None:
        entry.topic_authorized_operations = sight.view.topic_authorized_operations
    entry.is_internal = False
    await work.step()
    for index, of in _partitions(sight):
        partition = message.DescribeTopicPartitionsResponsePartition(partition_index=index)
        _show_base(partition, of)
        entry.partitions.append(partition)
        await work.step()
    return entry


def refused_description(topic: str, code: ErrorCode, sight: SeenView | None = None) -> DescribedTopic:
    entry = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=int(code), name=topic, partitions=[]
    )
    if sight is not None and sight.view is not None:
        entry.topic_id = sight.view.topic_id
    return entry


def _partitions(sight: SeenView) -> Iterator[tuple[int, _Partition]]:
    view = sight.known
    if view is None or sight.base is None:
        return
    by_index: Mapping[int, _Partition] = {each.partition_index: each for each in sight.base.partitions or ()}
    for index in range(view.partitions):
        of = by_index.get(view.place(index)[0])
        if of is not None:
            yield index, of
