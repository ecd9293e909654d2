"""ShareGroupHeartbeat (KIP-932), by the rules of sharegroups/README.md."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.group_access import coordinator_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.share_requests import member_id_mistake
from kafka_share_proxy.sharegroups.model.group import (
    JOIN_EPOCH,
    Heartbeat,
    HeartbeatReply,
    ShareGroup,
    request_mistake,
    unknown_group,
)
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.ShareGroupHeartbeatRequest
_Response = messages.ShareGroupHeartbeatResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Join, keep or leave a group."""
    reply = _reply(call)
    if reply.error != ErrorCode.NONE:
        return _Response(error_code=reply.error, error_message=reply.message)
    assignment = None
    if reply.assignment is not None:
        entry = _Response.TopicPartitions
        assigned = sorted(reply.assignment.items())
        topics = [entry(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in assigned]
        assignment = _Response.Assignment(topic_partitions=topics)
    return _Response(
        member_id=call.request.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=round(reply.heartbeat_interval_s * 1000),
        assignment=assignment,
    )


def _reply(call: TargetCall[_Request]) -> HeartbeatReply:
    request, names = call.request, call.request.subscribed_topic_names
    beat = Heartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=None if names is None else tuple(names),
        client_id=call.client_id,
        client_host=f"/{call.peer.host}",
    )
    mistake = member_id_mistake(beat.member_id) or request_mistake(request.group_id, beat)
    if mistake is None and any(map(is_view, names or ())):
        mistake = "Share groups divide records themselves: subscribe to the base topic, not to its view."
    if mistake is not None:
        return HeartbeatReply(error=ErrorCode.INVALID_REQUEST, message=mistake)
    error = coordinator_error(call.cluster, call.peer.node_id, request.group_id)
    if error != ErrorCode.NONE:
        return HeartbeatReply(error=error)
    group = _group(call, beat)
    return group if isinstance(group, HeartbeatReply) else _apply(call, group, beat)


def _group(call: TargetCall[_Request], beat: Heartbeat) -> ShareGroup | HeartbeatReply:
    group_id, coordinator = call.request.group_id, call.cluster.share.coordinator
    known = coordinator.group(group_id)
    if known is not None:
        return known
    if beat.member_epoch != JOIN_EPOCH:
        return unknown_group(group_id, beat, lost_state_possible=False)
    if call.cluster.groups.get(group_id) is not None:
        return HeartbeatReply(error=ErrorCode.GROUP_ID_NOT_FOUND, message=f"Group {group_id} is not a share group.")
    return coordinator.add_group(group_id)


def _apply(call: TargetCall[_Request], group: ShareGroup, beat: Heartbeat) -> HeartbeatReply:
    share = call.cluster.share
    topics = share.topic_infos(group.subscribed_topics() | set(beat.topics or ()))
    settings, limits = share.coordinator.settings(group.group_id), share.coordinator.limits
    reply = group.heartbeat(beat, topics, settings, limits, call.cluster.clock.now(), share.coordinator.holds)
    share.schedule()
    return reply
