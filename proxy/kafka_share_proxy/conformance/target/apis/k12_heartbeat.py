"""Heartbeat of classic groups, and of classic members of KIP-848 groups."""

from __future__ import annotations

from kafka_share_proxy.conformance.target import mixed_group
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.consumer_group import GroupRefusal
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
    error = ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(group, ClassicGroup):
        error = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
    elif group is not None:
        try:
            error = mixed_group.heartbeat(group, request.member_id, request.group_instance_id, request.generation_id)
        except GroupRefusal as refused:
            error = refused.error
    return messages.HeartbeatResponse(error_code=error)
