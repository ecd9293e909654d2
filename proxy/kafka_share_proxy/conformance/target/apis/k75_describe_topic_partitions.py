"""DescribeTopicPartitions: topics in pages (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_share_proxy.conformance.target.authorized_operations import TOPIC_OPERATIONS
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.topics import HostedPartition
from kafka_share_proxy.conformance.target.views import find_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE

PARTITIONS_MAX = 2000
"""Maximum number of partitions of one response (max.request.partition.size.limit)."""

_Request = messages.DescribeTopicPartitionsRequest
_Response = messages.DescribeTopicPartitionsResponse
_Topic = _Response.DescribeTopicPartitionsResponseTopic
_Partition = _Response.DescribeTopicPartitionsResponsePartition


async def handle(call: TargetCall[_Request]) -> _Response:
    """Return topics from the cursor on, up to the limit."""
    request = call.request
    limit = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    topics: list[_Topic] = []
    for name, begin in _requested(call):
        topic = find_view(call.cluster, name) or call.cluster.topics.with_name(name)
        if isinstance(topic, ErrorCode):
            topics.append(_Topic(name=name, error_code=topic))
            continue
        if topic is None:
            topics.append(_unknown(call, name))
            continue
        if limit == 0:
            return _Response(topics=topics, next_cursor=_Response.Cursor(topic_name=name, partition_index=begin))
        entry = _Topic(name=name, topic_id=topic.topic_id, is_internal=topic.is_internal)
        entry.topic_authorized_operations = TOPIC_OPERATIONS
        page = topic.partitions[begin : begin + limit]
        entry.partitions = [_partition(call.cluster, each) for each in page]
        topics.append(entry)
        limit -= len(page)
        if begin + len(page) < len(topic.partitions):
            cursor = _Response.Cursor(topic_name=name, partition_index=begin + len(page))
            return _Response(topics=topics, next_cursor=cursor)
    return _Response(topics=topics)


def _requested(call: TargetCall[_Request]) -> Iterator[tuple[str, int]]:
    """Yield (name, first partition) in the order of names, from the cursor on. No names: all topics."""
    names = {each.name for each in call.request.topics} or {
        name for name, topic in call.cluster.topics.by_name.items() if topic.base is None
    }
    cursor = call.request.cursor
    for name in sorted(names):
        if cursor is None or name > cursor.topic_name:
            yield name, 0
        elif name == cursor.topic_name:
            yield name, max(cursor.partition_index, 0)


def _unknown(call: TargetCall[_Request], name: str) -> _Topic:
    is_invalid = call.cluster.topics.name_error(name) is not None
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if is_invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _Topic(name=name, error_code=code)


def _partition(cluster: TargetCluster, partition: HostedPartition) -> _Partition:
    has_leader = partition.leader != UNKNOWN_NODE
    return _Partition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=[node for node in partition.replicas if cluster.is_up(node)],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[node for node in partition.replicas if not cluster.is_up(node)],
    )
