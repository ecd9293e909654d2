"""SyncGroup of classic groups, and of classic members of KIP-848 groups."""

from __future__ import annotations

from kafka_share_proxy.conformance.target import mixed_group
from kafka_share_proxy.conformance.target.classic_members import SyncReply
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup, GroupRefusal
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.pending import PendingResponse
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

PROTOCOL_SINCE = 5


async def handle(call: TargetCall[messages.SyncGroupRequest]) -> messages.SyncGroupResponse:
    """Wait for the assignment of the leader."""
    request = call.request
    error = group_error(call.cluster, call.peer.node_id, request.group_id)
    if (
        error == ErrorCode.NONE
        and call.version >= PROTOCOL_SINCE
        and not (request.protocol_type and request.protocol_name)
    ):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error != ErrorCode.NONE:
        return messages.SyncGroupResponse(error_code=error)
    group = call.cluster.groups.get(request.group_id)
    if group is None:
        return messages.SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    protocol = (request.protocol_type, request.protocol_name)
    if isinstance(group, ConsumerGroup):
        return _response(_sync_consumer_group(request, group, protocol))
    assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
    reply = group.sync(request.member_id, request.group_instance_id, request.generation_id, protocol, assignments)
    return _response(await reply.wait() if isinstance(reply, PendingResponse) else reply)


def _sync_consumer_group(
    request: messages.SyncGroupRequest, group: ConsumerGroup, protocol: tuple[str | None, str | None]
) -> SyncReply:
    try:
        return mixed_group.sync(group, request.member_id, request.group_instance_id, request.generation_id, protocol)
    except GroupRefusal as refused:
        return SyncReply(error=refused.error)


def _response(reply: SyncReply) -> messages.SyncGroupResponse:
    return messages.SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
