"""What Metadata and DescribeTopicPartitions say of a view: the topic is its own, its partitions are its base's.

Partition p*R + r of the view has the leader, the leader epoch and the replicas of base partition p: clients then fetch
from the right broker, and every epoch they hold is one of the base. Never internal, which breaks assignors
(views/README.md rule 14).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from proxy.brokers.questions import TopicEntry
from proxy.views.creation import SeenView
from proxy.wire import messages
from proxy.wire.errors import ErrorCode

DescribedTopic: TypeAlias = "messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic"
_Partition: TypeAlias = "messages.MetadataResponse.MetadataResponsePartition"


def metadata_entry(sight: SeenView) -> TopicEntry:
    """The topic of a Metadata answer."""
    message = messages.MetadataResponse
    entry = message.MetadataResponseTopic(
        error_code=int(sight.code), name=sight.name.topic, is_internal=False, partitions=[]
    )
    if sight.view is not None:
        entry.topic_id = sight.view.topic_id
        entry.topic_authorized_operations = sight.view.topic_authorized_operations
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
    return entry


def refused_entry(topic: str, code: ErrorCode) -> TopicEntry:
    """Of a name that no view can have."""
    return messages.MetadataResponse.MetadataResponseTopic(
        error_code=int(code), name=topic, is_internal=False, partitions=[]
    )


def describe_as_base(entry: DescribedTopic, sight: SeenView) -> None:
    """Change the entry of a view in a DescribeTopicPartitions answer; which partitions it has stays."""
    leads = dict(_partitions(sight))
    entry.is_internal = False
    entry.partitions = [each for each in entry.partitions or () if each.partition_index in leads]
    for partition in entry.partitions:
        of = leads[partition.partition_index]
        partition.error_code = of.error_code
        partition.leader_id, partition.leader_epoch = of.leader_id, of.leader_epoch
        partition.replica_nodes, partition.isr_nodes = of.replica_nodes, of.isr_nodes
        partition.offline_replicas = of.offline_replicas
        # Nobody is told of for the base. Empty, as of every topic by a broker: Java's admin does not expect null.
        partition.eligible_leader_replicas, partition.last_known_elr = [], []


def refused_description(topic: str, code: ErrorCode, sight: SeenView | None = None) -> DescribedTopic:
    """A view that cannot be shown, in a DescribeTopicPartitions answer."""
    entry = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=int(code), name=topic, partitions=[]
    )
    if sight is not None and sight.view is not None:
        entry.topic_id = sight.view.topic_id
    return entry


def _partitions(sight: SeenView) -> Iterator[tuple[int, _Partition]]:
    """Partitions of the view, each with the Metadata entry of the base partition it shows a slot of."""
    view = sight.known
    if view is None or sight.base is None:
        return
    by_index: Mapping[int, _Partition] = {each.partition_index: each for each in sight.base.partitions or ()}
    for index in range(view.partitions):
        of = by_index.get(view.place(index)[0])
        if of is not None:
            yield index, of
