"""OffsetDelete (KIP-496)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup
from kafka_share_proxy.conformance.target.consumer_protocol import CONSUMER, read_subscription
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

_Request = messages.OffsetDeleteRequest
_Response = messages.OffsetDeleteResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Delete committed offsets of topics that the group does not subscribe to."""
    request = call.request
    error = group_error(call.cluster, call.peer.node_id, request.group_id)
    group = call.cluster.groups.get(request.group_id)
    if error == ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    if error == ErrorCode.NONE and isinstance(group, ClassicGroup):
        error = ErrorCode.NON_EMPTY_GROUP if group.members and group.protocol_type != CONSUMER else ErrorCode.NONE
    if error != ErrorCode.NONE or group is None:
        return _Response(error_code=error)
    subscribed = group.subscribed() if isinstance(group, ConsumerGroup) else classic_topics(group)
    topics = []
    for topic in request.topics:
        partitions = [_delete(call, topic.name, each.partition_index, subscribed) for each in topic.partitions]
        topics.append(_Response.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return _Response(topics=topics)


def _delete(
    call: TargetCall[_Request], name: str, index: int, subscribed: set[str] | None
) -> _Response.OffsetDeleteResponsePartition:
    code = ErrorCode.NONE
    topic = call.cluster.topics.with_name(name)
    if topic is None or topic.partition(index) is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif subscribed is None or name in subscribed:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    else:
        call.cluster.groups.offsets(call.request.group_id).delete(TopicPartition(name, index))
    return _Response.OffsetDeleteResponsePartition(partition_index=index, error_code=code)


def classic_topics(group: ClassicGroup) -> set[str] | None:
    """Return the topics of all members. None if the metadata of a member of a consumer cannot be read."""
    topics: set[str] = set()
    if group.protocol_type != CONSUMER:
        return topics
    for member in group.members.values():
        subscription = read_subscription(member.metadata(group.protocol))
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return topics
