"""OffsetCommit of classic groups, KIP-848 groups and clients without a group (OffsetMetadataManager of Kafka 4.3)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.consumer_group import GroupRefusal
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.individual_commits import requested_offset
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.offset_commits import Committer, check_committer
from kafka_share_proxy.conformance.target.partition_access import find_topic, has_partition
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition, TopicPartition

TOPIC_IDS_SINCE = 10

_Request = messages.OffsetCommitRequest
_Topic = messages.OffsetCommitResponse.OffsetCommitResponseTopic
_Result = messages.OffsetCommitResponse.OffsetCommitResponsePartition


async def handle(call: TargetCall[_Request]) -> messages.OffsetCommitResponse:
    """Commit offsets."""
    request = call.request
    error = group_error(call.cluster, call.peer.node_id, request.group_id)
    committer = None
    if error == ErrorCode.NONE and any(_exists(call, topic) for topic in request.topics):
        try:
            committer = check_committer(
                call.cluster,
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                call.version,
            )
        except GroupRefusal as refused:
            error = refused.error
    topics = []
    for topic in request.topics:
        results = [_commit(call, topic, each, committer, error) for each in topic.partitions]
        topics.append(_Topic(name=topic.name, topic_id=topic.topic_id, partitions=results))
    return messages.OffsetCommitResponse(topics=topics)


def _exists(call: TargetCall[_Request], entry: _Request.OffsetCommitRequestTopic) -> bool:
    """Return True if a partition of the topic exists: without one, the request does not create the group."""
    topic = find_topic(call.cluster, entry.name, entry.topic_id, by_id=call.version >= TOPIC_IDS_SINCE)
    return has_partition(topic, [each.partition_index for each in entry.partitions])


def _commit(
    call: TargetCall[_Request],
    entry: _Request.OffsetCommitRequestTopic,
    requested: _Request.OffsetCommitRequestPartition,
    committer: Committer | None,
    error: ErrorCode,
) -> _Result:
    result = _Result(partition_index=requested.partition_index)
    metadata = requested.committed_metadata or ""
    offset = requested_offset(requested.committed_offset, requested.committed_leader_epoch, metadata)
    topic = find_topic(call.cluster, entry.name, entry.topic_id, by_id=call.version >= TOPIC_IDS_SINCE)
    if isinstance(topic, ErrorCode):
        result.error_code = topic
    elif topic.partition(requested.partition_index) is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif committer is None:
        result.error_code = error
    elif isinstance(offset, ErrorCode):
        result.error_code = offset
    else:
        partition = TopicPartition(topic.name, requested.partition_index)
        assigned = TopicIdPartition(topic.topic_id, requested.partition_index)
        result.error_code = committer.commit(partition, assigned, offset)
    return result
