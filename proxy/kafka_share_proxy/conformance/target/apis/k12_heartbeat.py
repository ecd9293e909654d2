"""Heartbeat of classic groups."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode


async def handle(call: TargetCall[messages.HeartbeatRequest]) -> messages.HeartbeatResponse:
    """Extend the session of a member."""
    request = call.request
    error = group_error(call.cluster, call.peer.node_id, request.group_id)
    if error != ErrorCode.NONE:
        return messages.HeartbeatResponse(error_code=error)
    group = call.cluster.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        return messages.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    error = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
    return messages.HeartbeatResponse(error_code=error)
