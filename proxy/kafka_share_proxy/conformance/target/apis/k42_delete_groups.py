"""DeleteGroups of every type."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Result = messages.DeleteGroupsResponse.DeletableGroupResult


async def handle(call: TargetCall[messages.DeleteGroupsRequest]) -> messages.DeleteGroupsResponse:
    """Delete groups without members, with their offsets."""
    names = dict.fromkeys(call.request.groups_names)
    results = [_Result(group_id=group_id, error_code=_delete(call, group_id)) for group_id in names]
    return messages.DeleteGroupsResponse(results=results)


def _delete(call: TargetCall[messages.DeleteGroupsRequest], group_id: str) -> ErrorCode:
    error = group_error(call.cluster, call.peer.node_id, group_id)
    if error != ErrorCode.NONE:
        return error
    share = call.cluster.share.coordinator
    share_group, group = share.group(group_id), call.cluster.groups.get(group_id)
    if share_group is not None:
        error = share_group.deletion_error()
        if error == ErrorCode.NONE:
            share.remove_group(group_id)
            call.cluster.share.changed(group_id).notify()
        return error
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.members:
        return ErrorCode.NON_EMPTY_GROUP
    call.cluster.groups.delete(group_id)
    return ErrorCode.NONE
