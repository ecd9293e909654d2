"""Checks of a request for one partition at one node."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.topics import HostedPartition, HostedTopic
from kafka_share_proxy.conformance.target.views import create_view
from kafka_share_proxy.wire.errors import ErrorCode


def find_topic(cluster: TargetCluster, name: str, topic_id: bytes, *, by_id: bool) -> HostedTopic | ErrorCode:
    """Return a topic by its id or its name, or the error code if it is unknown. A view is created if it is named."""
    if by_id:
        return cluster.topics.with_id(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    return create_view(cluster, name) or cluster.topics.with_name(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def has_partition(topic: HostedTopic | ErrorCode, indexes: Iterable[int]) -> bool:
    """Return True if the topic has at least one of these partitions."""
    return isinstance(topic, HostedTopic) and any(topic.partition(index) is not None for index in indexes)


def find_partition(
    topic: HostedTopic | ErrorCode, index: int, node_id: int, epoch: int = -1
) -> HostedPartition | ErrorCode:
    """Return a partition that the node leads in this leader epoch, or the error code."""
    if isinstance(topic, ErrorCode):
        return topic
    partition = topic.partition(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != node_id and node_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = partition.epoch_error(epoch)
    if error == ErrorCode.NONE and partition.leader != node_id:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return partition if error == ErrorCode.NONE else error


def moved_leader(topic: HostedTopic | ErrorCode, index: int, error: int) -> tuple[int, int]:
    """Return (node id, leader epoch) for CurrentLeader, (-1, -1) for errors that need none (KIP-951)."""
    if error not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH) or isinstance(topic, ErrorCode):
        return -1, -1
    partition = topic.partition(index)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


def endpoints_of(cluster: TargetCluster, nodes: Iterable[int]) -> list[tuple[int, str, int]]:
    """Return (node id, host, port) of the nodes, each once."""
    return [(node_id, *cluster.address(node_id)) for node_id in sorted({node for node in nodes if node >= 0})]
