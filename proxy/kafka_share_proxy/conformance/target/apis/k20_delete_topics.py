"""DeleteTopics, by name and from version 6 on by id."""

from __future__ import annotations

from collections import Counter

from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

IDS_SINCE = 6

_Request = messages.DeleteTopicsRequest
_Result = messages.DeleteTopicsResponse.DeletableTopicResult


async def handle(call: TargetCall[_Request]) -> messages.DeleteTopicsResponse:
    """Delete topics, each for itself."""
    requested = call.request.topics
    if call.version < IDS_SINCE:
        requested = [_Request.DeleteTopicState(name=name) for name in call.request.topic_names]
    counts = Counter((each.name, bytes(each.topic_id)) for each in requested)
    unique = {(each.name, bytes(each.topic_id)): each for each in requested}
    results = [_delete(call, each, repeated=counts[key] > 1) for key, each in unique.items()]
    return messages.DeleteTopicsResponse(responses=results)


def _delete(call: TargetCall[_Request], requested: _Request.DeleteTopicState, *, repeated: bool) -> _Result:
    topics, by_id = call.cluster.topics, requested.topic_id != ZERO_UUID
    result = _Result(name=requested.name, topic_id=requested.topic_id)
    if repeated or by_id == (requested.name is not None):
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = (
            "Duplicate topic." if repeated else "Neither or both of topic name and id were specified."
        )
        return result
    topic = topics.with_id(requested.topic_id) if by_id else topics.with_name(requested.name or "")
    if topic is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = "This server does not host this topic."
        return result
    call.cluster.delete_topic(topic.name)
    result.name, result.topic_id = topic.name, topic.topic_id
    return result
