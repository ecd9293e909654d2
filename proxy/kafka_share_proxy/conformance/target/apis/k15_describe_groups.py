"""DescribeGroups of classic groups. Others are unknown here (KIP-1043)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.authorized_operations import GROUP_OPERATIONS
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup, ClassicState
from kafka_share_proxy.conformance.target.group_access import group_error, is_share_group
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

NOT_FOUND_SINCE = 6
DEAD = "Dead"

_Request = messages.DescribeGroupsRequest
_Group = messages.DescribeGroupsResponse.DescribedGroup


async def handle(call: TargetCall[_Request]) -> messages.DescribeGroupsResponse:
    """Describe groups."""
    return messages.DescribeGroupsResponse(groups=[_described(call, group_id) for group_id in call.request.groups])


def _described(call: TargetCall[_Request], group_id: str) -> _Group:
    error = group_error(call.cluster, call.peer.node_id, group_id)
    if error != ErrorCode.NONE:
        return _Group(group_id=group_id, error_code=error)
    group = call.cluster.groups.get(group_id)
    described = _entry(group) if isinstance(group, ClassicGroup) else _unknown(call, group_id)
    if call.request.include_authorized_operations and described.error_code == ErrorCode.NONE:
        described.authorized_operations = GROUP_OPERATIONS
    return described


def _unknown(call: TargetCall[_Request], group_id: str) -> _Group:
    described = _Group(group_id=group_id, group_state=DEAD)
    if call.version >= NOT_FOUND_SINCE:
        is_other = call.cluster.groups.get(group_id) is not None or is_share_group(call.cluster, group_id)
        text = "is not a classic group" if is_other else "not found"
        described.error_code, described.error_message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {text}."
    return described


def _entry(group: ClassicGroup) -> _Group:
    is_stable = group.state is ClassicState.STABLE
    member = messages.DescribeGroupsResponse.DescribedGroupMember
    return _Group(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            member(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata(group.protocol) if is_stable else b"",
                member_assignment=each.assignment,
            )
            for each in group.members.values()
        ],
    )
