"""AlterShareGroupOffsets (KIP-932)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

UNINITIALIZED = -1
"""Start offset that removes the state of a share partition."""

_Request = messages.AlterShareGroupOffsetsRequest
_Response = messages.AlterShareGroupOffsetsResponse
_Result = _Response.AlterShareGroupOffsetsResponsePartition


async def handle(call: TargetCall[_Request]) -> _Response:
    """Set the start offsets of a group without members. A missing group is created."""
    request, coordinator = call.request, call.cluster.share.coordinator
    error = group_error(call.cluster, call.peer.node_id, request.group_id)
    if error == ErrorCode.NONE and call.cluster.groups.get(request.group_id) is not None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    if error != ErrorCode.NONE:
        return _Response(error_code=error, responses=[])
    group = coordinator.add_group(request.group_id)
    if group.members:
        return _Response(error_code=ErrorCode.NON_EMPTY_GROUP, error_message="The group is not empty.", responses=[])
    group.offsets_altered()
    return _Response(responses=[_topic(call, each) for each in request.topics])


def _topic(
    call: TargetCall[_Request], requested: _Request.AlterShareGroupOffsetsRequestTopic
) -> _Response.AlterShareGroupOffsetsResponseTopic:
    topic = call.cluster.topics.with_name(requested.topic_name)
    return _Response.AlterShareGroupOffsetsResponseTopic(
        topic_name=requested.topic_name,
        topic_id=ZERO_UUID if topic is None else topic.topic_id,
        partitions=[_alter(call, requested.topic_name, each) for each in requested.partitions],
    )


def _alter(
    call: TargetCall[_Request], name: str, requested: _Request.AlterShareGroupOffsetsRequestPartition
) -> _Result:
    result = _Result(partition_index=requested.partition_index)
    topic, share = call.cluster.topics.with_name(name), call.cluster.share
    partition = None if topic is None else topic.partition(requested.partition_index)
    if topic is None or partition is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif requested.start_offset < UNINITIALIZED:
        result.error_code = ErrorCode.INVALID_REQUEST
    else:
        key = ShareKey(call.request.group_id, topic.topic_id, partition.index)
        if requested.start_offset == UNINITIALIZED:
            share.coordinator.remove_share(key)
        else:
            share.begin_at(key, partition, requested.start_offset)
    return result
