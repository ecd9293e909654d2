"""Entries of views in Metadata and DescribeTopicPartitions: its own topic with the partitions of its base.

Partition p*R + r of the view has the leader, the leader epoch and the replicas of base partition p. Rules:
views/README.md 13 and 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.loop.slices import Work
from kafka_share_proxy.views.creation import ViewOutcome
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

DescribedTopic: TypeAlias = "messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic"
_DescribedPartition: TypeAlias = "messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition"
_Partition: TypeAlias = "messages.MetadataResponse.MetadataResponsePartition"


async def metadata_entry(work: Work, outcome: ViewOutcome) -> TopicEntry:
    """Return the entry, in slices: partitions may be many."""
    message = messages.MetadataResponse
    entry = message.MetadataResponseTopic(
        error_code=int(outcome.code), name=outcome.name.topic, is_internal=False, partitions=[]
    )
    if outcome.topic_entry is not None:
        entry.topic_id = outcome.topic_entry.topic_id
        entry.topic_authorized_operations = outcome.topic_entry.topic_authorized_operations
    await work.step()
    for index, base in _partitions(outcome):
        entry.partitions.append(
            message.MetadataResponsePartition(
                error_code=base.error_code,
                partition_index=index,
                leader_id=base.leader_id,
                leader_epoch=base.leader_epoch,
                replica_nodes=base.replica_nodes,
                isr_nodes=base.isr_nodes,
                offline_replicas=base.offline_replicas,
            )
        )
        await work.step()
    return entry


def refused_entry(topic: str, code: ErrorCode) -> TopicEntry:
    return messages.MetadataResponse.MetadataResponseTopic(
        error_code=int(code), name=topic, is_internal=False, partitions=[]
    )


def describe_as_base(entry: DescribedTopic, outcome: ViewOutcome) -> None:
    """Replace partition data in a view's entry by that of the base."""
    bases = dict(_partitions(outcome))
    entry.is_internal = False
    entry.partitions = [each for each in entry.partitions or () if each.partition_index in bases]
    for partition in entry.partitions:
        _show_base(partition, bases[partition.partition_index])


def _show_base(partition: _DescribedPartition, base: _Partition) -> None:
    partition.error_code = base.error_code
    partition.leader_id, partition.leader_epoch = base.leader_id, base.leader_epoch
    partition.replica_nodes, partition.isr_nodes = base.replica_nodes, base.isr_nodes
    partition.offline_replicas = base.offline_replicas
    # Metadata has neither list. Empty ones, as in a broker's entry of any topic: Java's admin client does not expect
    # null.
    partition.eligible_leader_replicas, partition.last_known_elr = [], []


async def description(work: Work, outcome: ViewOutcome) -> DescribedTopic:
    message = messages.DescribeTopicPartitionsResponse
    entry = message.DescribeTopicPartitionsResponseTopic(name=outcome.name.topic, partitions=[])
    if outcome.topic_entry is not None:
        entry.topic_authorized_operations = outcome.topic_entry.topic_authorized_operations
    entry.is_internal = False
    await work.step()
    for index, base in _partitions(outcome):
        partition = message.DescribeTopicPartitionsResponsePartition(partition_index=index)
        _show_base(partition, base)
        entry.partitions.append(partition)
        await work.step()
    return entry


def refused_description(topic: str, code: ErrorCode, outcome: ViewOutcome | None = None) -> DescribedTopic:
    entry = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=int(code), name=topic, partitions=[]
    )
    if outcome is not None and outcome.topic_entry is not None:
        entry.topic_id = outcome.topic_entry.topic_id
    return entry


def _partitions(outcome: ViewOutcome) -> Iterator[tuple[int, _Partition]]:
    view = outcome.view
    if view is None or outcome.base_entry is None:
        return
    by_index: Mapping[int, _Partition] = {each.partition_index: each for each in outcome.base_entry.partitions or ()}
    for index in range(view.partitions):
        base = by_index.get(view.place(index)[0])
        if base is not None:
            yield index, base
