"""ConsumerGroupHeartbeat (KIP-848)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerHeartbeat,
    GroupRefusal,
)
from kafka_share_proxy.conformance.target.consumer_members import ConsumerMember
from kafka_share_proxy.conformance.target.group_access import (
    check_size,
    consumer_group_to_join,
    group_error,
    known_group,
)
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.server_assignors import ASSIGNORS
from kafka_share_proxy.conformance.target.views import create_views
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

CLIENT_MEMBER_ID_SINCE = 1

_Request = messages.ConsumerGroupHeartbeatRequest
_Response = messages.ConsumerGroupHeartbeatResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Join, keep or leave a group."""
    try:
        _check(call)
        error = group_error(call.cluster, call.peer.node_id, call.request.group_id)
        if error != ErrorCode.NONE:
            raise GroupRefusal(error, error.name)
        return _heartbeat(call)
    except GroupRefusal as refused:
        return _Response(error_code=refused.error, error_message=refused.text)


def _heartbeat(call: TargetCall[_Request]) -> _Response:
    request = call.request
    if request.member_epoch == JOIN_EPOCH:
        group = consumer_group_to_join(call.cluster, request.group_id)
    else:
        known = known_group(call.cluster, request.group_id)
        if not isinstance(known, ConsumerGroup):
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        group = known
    if request.member_epoch < JOIN_EPOCH:
        group.leave(request.member_id, request.instance_id, request.member_epoch)
        return _Response(member_id=request.member_id, member_epoch=request.member_epoch)
    create_views(call.cluster, request.subscribed_topic_names or ())
    member, with_assignment = _accepted(call, group)
    interval_ms = int(call.cluster.group_configs.value(request.group_id, "consumer.heartbeat.interval.ms"))
    return _Response(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=_assignment(member) if with_assignment else None,
    )


def _accepted(call: TargetCall[_Request], group: ConsumerGroup) -> tuple[ConsumerMember, bool]:
    """Return the member, and True if the response contains its assignment. A new group without it is not kept."""
    request, groups = call.request, call.cluster.groups
    is_new = groups.get(request.group_id) is not group
    try:
        if request.member_epoch == JOIN_EPOCH:
            check_size(call.cluster, group, request.member_id, request.instance_id)
        accepted = group.heartbeat(_parsed(call))
    except GroupRefusal:
        if is_new:
            group.close()
        raise
    if is_new:
        groups.put(group)
    return accepted


def _parsed(call: TargetCall[_Request]) -> ConsumerHeartbeat:
    request = call.request
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        member_id=request.member_id or call.cluster.seeded.uuid_text(),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset(TopicIdPartition(bytes(each.topic_id), index) for each in owned for index in each.partitions),
        client_id=call.client_id,
        client_host=f"/{call.peer.host}",
    )


def _check(call: TargetCall[_Request]) -> None:
    """Check what does not depend on state (GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid)."""
    mistake = _mistake(call)
    if mistake is not None:
        raise GroupRefusal(ErrorCode.INVALID_REQUEST, mistake)
    assignor = call.request.server_assignor
    if assignor is not None and assignor not in ASSIGNORS:
        text = f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}."
        raise GroupRefusal(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _mistake(call: TargetCall[_Request]) -> str | None:
    request, epoch = call.request, call.request.member_epoch
    needs_id = call.version >= CLIENT_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH
    fields = {"MemberId": request.member_id if needs_id else None, "GroupId": request.group_id}
    fields |= {"InstanceId": request.instance_id, "RackId": request.rack_id}
    for name, value in fields.items():
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if epoch == JOIN_EPOCH:
        return _join_mistake(request)
    if epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < LEAVE_STATIC_EPOCH else None


def _join_mistake(request: _Request) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _assignment(member: ConsumerMember) -> _Response.Assignment:
    topics: dict[bytes, list[int]] = {}
    for partition in sorted(member.assigned):
        topics.setdefault(partition.topic_id, []).append(partition.partition)
    entries = [_Response.TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]
    return _Response.Assignment(topic_partitions=entries)
