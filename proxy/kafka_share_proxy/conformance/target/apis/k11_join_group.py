"""JoinGroup of classic groups, and of classic members of KIP-848 groups."""

from __future__ import annotations

from kafka_share_proxy.conformance.target import mixed_group
from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.classic_members import ClassicJoin, JoinReply
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup, GroupRefusal
from kafka_share_proxy.conformance.target.consumer_protocol import CONSUMER, read_subscription
from kafka_share_proxy.conformance.target.group_access import check_size, classic_group_to_join, group_error
from kafka_share_proxy.conformance.target.group_registry import AnyGroup
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.pending import PendingResponse
from kafka_share_proxy.conformance.target.views import create_views
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

MEMBER_ID_REQUIRED_SINCE, NULL_PROTOCOL_SINCE, SKIP_ASSIGNMENT_SINCE = 4, 7, 9


async def handle(call: TargetCall[messages.JoinGroupRequest]) -> messages.JoinGroupResponse:
    """Join, and wait until the rebalance is complete."""
    error = _error(call)
    if error != ErrorCode.NONE:
        return _response(call, JoinReply(error=error, member_id=call.request.member_id))
    known = call.cluster.groups.get(call.request.group_id)
    if isinstance(known, ConsumerGroup) and known.members:
        return _response(call, _join_consumer_group(call, known))
    if call.request.member_id and (known is None or not _has_member(known)):
        return _response(call, JoinReply(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=call.request.member_id))
    group = classic_group_to_join(call.cluster, call.request.group_id)
    if isinstance(group, ErrorCode):
        return _response(call, JoinReply(error=group, member_id=call.request.member_id))
    _create_views(call)
    reply = group.join(_join(call))
    return _response(call, await reply.wait() if isinstance(reply, PendingResponse) else reply)


def _join_consumer_group(call: TargetCall[messages.JoinGroupRequest], group: ConsumerGroup) -> JoinReply:
    member_id = call.request.member_id or call.cluster.seeded.uuid_text()
    try:
        check_size(call.cluster, group, member_id, call.request.group_instance_id)
        _create_views(call)
        return mixed_group.join(group, _join(call), member_id)
    except GroupRefusal as refused:
        return JoinReply(error=refused.error)


def _create_views(call: TargetCall[messages.JoinGroupRequest]) -> None:
    if call.request.protocol_type == CONSUMER:
        for protocol in call.request.protocols:
            subscription = read_subscription(bytes(protocol.metadata))
            create_views(call.cluster, () if subscription is None else subscription.topics)


def _has_member(group: AnyGroup) -> bool:
    return bool(group.members) or (isinstance(group, ClassicGroup) and bool(group.pending))


def _error(call: TargetCall[messages.JoinGroupRequest]) -> ErrorCode:
    error = group_error(call.cluster, call.peer.node_id, call.request.group_id)
    settings, timeout = call.cluster.settings, call.request.session_timeout_ms
    if error != ErrorCode.NONE:
        return error
    if not settings.group_session_timeout_min_ms <= timeout <= settings.group_session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _join(call: TargetCall[messages.JoinGroupRequest]) -> ClassicJoin:
    request = call.request
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return ClassicJoin(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=f"/{call.peer.host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        needs_member_id=call.version >= MEMBER_ID_REQUIRED_SINCE,
        skips_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
    )


def _response(call: TargetCall[messages.JoinGroupRequest], reply: JoinReply) -> messages.JoinGroupResponse:
    protocol = reply.protocol
    if protocol is None and call.version < NULL_PROTOCOL_SINCE:
        protocol = ""
    member = messages.JoinGroupResponse.JoinGroupResponseMember
    return messages.JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=protocol,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            member(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in reply.members
        ],
    )
