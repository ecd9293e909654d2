"""LeaveGroup of classic groups (KIP-345 from version 3 on)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

LIST_SINCE = 3

_Result = messages.LeaveGroupResponse.MemberResponse


async def handle(call: TargetCall[messages.LeaveGroupRequest]) -> messages.LeaveGroupResponse:
    """Remove members."""
    request = call.request
    error = group_error(call.cluster, call.peer.node_id, request.group_id)
    if error != ErrorCode.NONE:
        return messages.LeaveGroupResponse(error_code=error)
    members = [(each.member_id, each.group_instance_id) for each in request.members]
    if call.version < LIST_SINCE:
        members = [(request.member_id, None)]
    group = call.cluster.groups.get(request.group_id)
    results = []
    for member_id, instance_id in members:
        left = group.leave(member_id, instance_id) if isinstance(group, ClassicGroup) else ErrorCode.UNKNOWN_MEMBER_ID
        results.append(_Result(member_id=member_id, group_instance_id=instance_id, error_code=left))
    if isinstance(group, ClassicGroup) and any(each.error_code == ErrorCode.NONE for each in results):
        group.members_left()
    if call.version < LIST_SINCE:
        return messages.LeaveGroupResponse(error_code=results[0].error_code)
    return messages.LeaveGroupResponse(members=results)
