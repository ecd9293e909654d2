"""Metadata: nodes, topics, leaders, and creation of unknown topics."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_share_proxy.conformance.target.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.topics import HostedPartition, HostedTopic
from kafka_share_proxy.conformance.target.views import find_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE, ZERO_UUID

NULL_NAME_SINCE = 12

_Topic = messages.MetadataResponse.MetadataResponseTopic
_Partition = messages.MetadataResponse.MetadataResponsePartition


async def handle(call: TargetCall[messages.MetadataRequest]) -> messages.MetadataResponse:
    """Return the nodes that are up and the requested topics."""
    cluster, request = call.cluster, call.request
    response = messages.MetadataResponse(
        brokers=[_broker(cluster, node_id) for node_id in cluster.nodes_up],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=list(_topics(call)),
    )
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _broker(cluster: TargetCluster, node_id: int) -> messages.MetadataResponse.MetadataResponseBroker:
    host, port = cluster.address(node_id)
    return messages.MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port)


def _topics(call: TargetCall[messages.MetadataRequest]) -> Iterator[_Topic]:
    requested = call.request.topics
    if requested is None or (call.version == 0 and not requested):
        for topic in call.cluster.topics.by_name.values():
            if topic.base is None:
                yield _described(call.cluster, topic)
        return
    if any(each.topic_id != ZERO_UUID for each in requested):
        yield from (_by_id(call, each.topic_id) for each in requested)
        return
    for name in dict.fromkeys(each.name or "" for each in requested):
        known = find_view(call.cluster, name) or call.cluster.topics.with_name(name)
        if isinstance(known, ErrorCode):
            yield _Topic(error_code=known, name=name)
        else:
            yield _described(call.cluster, known) if known is not None else _unknown(call, name)


def _by_id(call: TargetCall[messages.MetadataRequest], topic_id: bytes) -> _Topic:
    topic = call.cluster.topics.with_id(topic_id)
    if topic is not None:
        return _described(call.cluster, topic)
    name = None if call.version >= NULL_NAME_SINCE else ""
    return _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=topic_id)


def _unknown(call: TargetCall[messages.MetadataRequest], name: str) -> _Topic:
    """Return the error of an unknown topic, which is created if the client and the cluster allow that.

    The client sees it at its next request, as with a controller (AutoTopicCreationManager).
    """
    cluster = call.cluster
    if cluster.topics.name_error(name) is not None:
        return _Topic(error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name)
    if call.request.allow_auto_topic_creation and cluster.settings.auto_create_topics:
        cluster.create_topic(name, cluster.settings.default_partitions)
    return _Topic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _described(cluster: TargetCluster, topic: HostedTopic) -> _Topic:
    return _Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(cluster, partition) for partition in topic.partitions],
    )


def _partition(cluster: TargetCluster, partition: HostedPartition) -> _Partition:
    has_leader = partition.leader != UNKNOWN_NODE
    return _Partition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=[node for node in partition.replicas if cluster.is_up(node)],
        offline_replicas=[node for node in partition.replicas if not cluster.is_up(node)],
    )
