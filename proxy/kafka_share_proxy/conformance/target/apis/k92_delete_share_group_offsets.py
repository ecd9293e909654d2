"""DeleteShareGroupOffsets (KIP-932)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.DeleteShareGroupOffsetsRequest
_Response = messages.DeleteShareGroupOffsetsResponse
_Result = _Response.DeleteShareGroupOffsetsResponseTopic


async def handle(call: TargetCall[_Request]) -> _Response:
    """Delete the state of topics of a group without members."""
    request, coordinator = call.request, call.cluster.share.coordinator
    error = group_error(call.cluster, call.peer.node_id, request.group_id)
    group = coordinator.group(request.group_id)
    if error == ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif error == ErrorCode.NONE and group is not None and group.members:
        error = ErrorCode.NON_EMPTY_GROUP
    if error != ErrorCode.NONE:
        return _Response(error_code=error, error_message=error.name, responses=[])
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    return _Response(responses=[_delete(call, name) for name in names])


def _delete(call: TargetCall[_Request], name: str) -> _Result:
    coordinator, topic = call.cluster.share.coordinator, call.cluster.topics.with_name(name)
    if topic is None:
        return _Result(topic_name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    keys = [key for key in coordinator.keys_of(call.request.group_id) if key.topic_id == topic.topic_id]
    for key in keys:
        coordinator.remove_share(key)
    if keys:
        return _Result(topic_name=name, topic_id=topic.topic_id)
    text = "There is no offset information to delete."
    return _Result(topic_name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=text)
