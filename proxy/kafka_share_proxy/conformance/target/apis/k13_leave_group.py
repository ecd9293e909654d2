"""LeaveGroup of classic groups and KIP-848 groups (KIP-345 from version 3 on)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target import mixed_group
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.group_registry import AnyGroup
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
    errors = _leave(call.cluster.groups.get(request.group_id), members)
    results = [
        _Result(member_id=member_id, group_instance_id=instance_id, error_code=error)
        for (member_id, instance_id), error in zip(members, errors, strict=True)
    ]
    if call.version < LIST_SINCE:
        return messages.LeaveGroupResponse(error_code=results[0].error_code)
    return messages.LeaveGroupResponse(members=results)


def _leave(group: AnyGroup | None, members: list[tuple[str, str | None]]) -> list[ErrorCode]:
    if group is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
    if not isinstance(group, ClassicGroup):
        return mixed_group.leave(group, members)
    errors = [group.leave(member_id, instance_id) for member_id, instance_id in members]
    if ErrorCode.NONE in errors:
        group.members_left()
    return errors
