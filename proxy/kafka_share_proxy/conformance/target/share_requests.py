"""Common parts of ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.partition_access import find_partition, moved_leader
from kafka_share_proxy.conformance.target.topics import HostedPartition
from kafka_share_proxy.sharegroups.model.coordinator import Change, ShareKey
from kafka_share_proxy.sharegroups.model.partition import Refusal, check_shape
from kafka_share_proxy.sharegroups.model.sessions import SessionKey
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

_Topic: TypeAlias = "messages.ShareFetchRequest.FetchTopic | messages.ShareAcknowledgeRequest.AcknowledgeTopic"
MEMBER_ID_LENGTH_MAX = 36
"""Maximum length of a member id in characters (KafkaApis)."""
AckBatches = list[tuple[int, int, Sequence[int]]]
"""(first offset, last offset, types) as in the request."""


def member_id_mistake(member_id: str | None) -> str | None:
    """Return the error text (INVALID_REQUEST) for an invalid member id in a share request, or None."""
    if not member_id:
        return "MemberId can't be empty."
    if len(member_id) > MEMBER_ID_LENGTH_MAX:
        return f"MemberId can't be longer than {MEMBER_ID_LENGTH_MAX} characters."
    return None


def partitions_in(
    topics: Iterable[_Topic],
) -> tuple[list[TopicIdPartition], dict[TopicIdPartition, AckBatches]]:
    """Return the partitions of a request in order, each once, and the acknowledgements of those that have some."""
    partitions: dict[TopicIdPartition, None] = {}
    batches: dict[TopicIdPartition, AckBatches] = {}
    for topic in topics:
        for entry in topic.partitions:
            partition = TopicIdPartition(bytes(topic.topic_id), entry.partition_index)
            partitions[partition] = None
            if entry.acknowledgement_batches:
                acks = [(b.first_offset, b.last_offset, b.acknowledge_types) for b in entry.acknowledgement_batches]
                batches.setdefault(partition, []).extend(acks)
    return list(partitions), batches


def find_led(cluster: TargetCluster, node_id: int, partition: TopicIdPartition) -> HostedPartition | ErrorCode:
    """Return a partition that the node leads, or the error code."""
    topic = cluster.topics.with_id(partition.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return find_partition(topic, partition.partition, node_id)


def leader_of(cluster: TargetCluster, partition: TopicIdPartition, error: int) -> tuple[int, int]:
    """Return (node id, leader epoch) for CurrentLeader, (-1, -1) unless the error is that it moved."""
    topic = cluster.topics.with_id(partition.topic_id)
    return moved_leader(topic or ErrorCode.UNKNOWN_TOPIC_ID, partition.partition, error)


def acknowledge(
    cluster: TargetCluster,
    session: SessionKey,
    batches: Mapping[TopicIdPartition, AckBatches],
    *,
    renew_allowed: bool,
) -> tuple[dict[TopicIdPartition, ErrorCode], list[Change]]:
    """Decide all acknowledgements of a request. Return the error of each partition, and the changes to settle."""
    outcome: dict[TopicIdPartition, ErrorCode] = {}
    changes: list[Change] = []
    for partition, acks in batches.items():
        outcome[partition] = _acknowledge_one(cluster, session, partition, acks, renew_allowed, changes)
    cluster.share.schedule()
    return outcome, changes


def _acknowledge_one(
    cluster: TargetCluster,
    session: SessionKey,
    partition: TopicIdPartition,
    batches: AckBatches,
    renew_allowed: bool,
    changes: list[Change],
) -> ErrorCode:
    mistake = check_shape(batches, renew_allowed)
    if mistake is not None:
        return mistake.error
    hosted = find_led(cluster, session.node_id, partition)
    if isinstance(hosted, ErrorCode):
        return hosted
    key = ShareKey(session.group_id, *partition)
    share = cluster.share.share(key, hosted)
    if share is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    settings, now = cluster.share.coordinator.settings(session.group_id), cluster.clock.now()
    decided = share.partition.decide_acknowledge(session.member_id, batches, renew_allowed, settings, now)
    if isinstance(decided, Refusal):
        return decided.error
    if decided.changes:
        changes.append((key, decided))
    return ErrorCode.NONE
