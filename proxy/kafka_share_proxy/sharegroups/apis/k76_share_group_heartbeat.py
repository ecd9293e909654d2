"""ShareGroupHeartbeat v1 (KIP-932), served here.

- Order of checks, and codes: sharegroups/README.md rules 3, 5, 10.
- Subscribed topics are looked up on the member's own connection if the view of them is outdated, so that a topic that
  is created or grows reaches the members with a later heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_share_proxy.brokers.rights import Right, on_read_group, request_read_group, rights_of
from kafka_share_proxy.brokers.topic_leaders import describe_refusal, names_to_query, on_topics, request_topics
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S, JournalRefused
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.waiting import settled_within
from kafka_share_proxy.sharegroups.apis import refusals
from kafka_share_proxy.sharegroups.apis.share_requests import let_move, member_id_mistake
from kafka_share_proxy.sharegroups.model.group import (
    JOIN_EPOCH,
    Heartbeat,
    HeartbeatReply,
    ShareGroup,
    TopicInfo,
    request_mistake,
    unknown_group,
)
from kafka_share_proxy.sharegroups.new_groups import GroupRefused, hold_group
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.group_changes import BEING_DELETED
from kafka_share_proxy.sharegroups.state.state_writes import client_code
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

KEY = ApiKey.SHARE_GROUP_HEARTBEAT
VERSIONS = (1, 1)


async def handle(call: Call[messages.ShareGroupHeartbeatRequest], services: ShareServices) -> bytes:
    reply = await _judge(call, services)
    return _response(call, call.message.member_id, reply)


async def _judge(call: Call[messages.ShareGroupHeartbeatRequest], services: ShareServices) -> HeartbeatReply:
    request, group_id = call.message, call.message.group_id
    beat = Heartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        client_id=call.client_id or "",
        client_host=f"/{call.connection.client_host}",
    )
    mistake = member_id_mistake(beat.member_id)
    names = () if mistake is not None else _topics_of(services, group_id, beat)
    code = await _read_refusal(call, services, group_id, names)
    if code != ErrorCode.NONE:
        return HeartbeatReply(error=code)
    if mistake is not None:
        return HeartbeatReply(error=ErrorCode.INVALID_REQUEST, message=mistake)
    for name in beat.topics or ():
        code = describe_refusal(call.connection, services, name)
        if code != ErrorCode.NONE:
            return HeartbeatReply(error=code)
    mistake = request_mistake(group_id, beat)
    if mistake is not None:
        return HeartbeatReply(error=ErrorCode.INVALID_REQUEST, message=mistake)
    group = services.coordinator.group(group_id)
    if group is None:
        if beat.member_epoch != JOIN_EPOCH:
            return unknown_group(group_id, beat, lost_state_possible=True)
        created = await hold_group(call.connection, services, group_id)
        if isinstance(created, GroupRefused):
            return HeartbeatReply(error=created.code, message=created.message)
        group = created
    if group.deleting:
        return HeartbeatReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message=BEING_DELETED)
    return await _reply_when_stored(services, group, _apply_heartbeat(services, group, beat))


def _topics_of(services: ShareServices, group_id: str, beat: Heartbeat) -> tuple[str, ...]:
    """Return the topics of the heartbeat, or else those that the member is subscribed to."""
    if beat.topics is not None:
        return beat.topics
    group = services.coordinator.group(group_id)
    member = None if group is None else group.members.get(beat.member_id)
    return () if member is None else tuple(sorted(member.topics))


async def _read_refusal(
    call: Call[messages.ShareGroupHeartbeatRequest], services: ShareServices, group_id: str, names: Iterable[str]
) -> ErrorCode:
    """Return the error that refuses READ on the group, or NONE. Look up the topics in the same round trip."""
    connection, now = call.connection, services.timers.now()
    code = rights_of(connection).group_code(Right.READ_GROUP, group_id, now, services.options.rights_cache_s)
    group_response = request_read_group(connection, group_id) if code is None else None
    unknown = names_to_query(connection, services, dict.fromkeys(names), Right.DESCRIBE_TOPIC)
    topics_response = request_topics(connection, unknown) if unknown else None
    if group_response is not None:
        code = on_read_group(connection, group_id, await group_response, now)
    if topics_response is not None:
        on_topics(connection, services, await topics_response)
    return ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code


def _apply_heartbeat(services: ShareServices, group: ShareGroup, beat: Heartbeat) -> HeartbeatReply:
    topics = _shapes(services, group.subscribed_topics() | set(beat.topics or ()))
    coordinator = services.coordinator
    settings, now = coordinator.settings(group.group_id), services.timers.now()
    reply = group.heartbeat(beat, topics, settings, coordinator.limits, now, coordinator.holds)
    services.clock.not_later_than(group.next_deadline())
    return reply


async def _reply_when_stored(services: ShareServices, group: ShareGroup, reply: HeartbeatReply) -> HeartbeatReply:
    """Store a new group epoch before the member receives it, so that it never decreases, not even after a crash."""
    if group.epoch == group.stored_epoch:
        return reply
    try:
        stored = services.changes.store_epoch(group)
        if not await settled_within(services.timers, RESPONSE_MAX_S, stored):
            return HeartbeatReply(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        stored.result()
    except JournalRefused as refusal:
        return HeartbeatReply(error=client_code(refusal.code), message=str(refusal))
    return reply


def _shapes(services: ShareServices, names: Iterable[str]) -> dict[str, TopicInfo]:
    """Return id and partition count of the known topics."""
    shapes = {}
    for name in names:
        topic = services.topology.topic(name)
        if topic is not None and topic.topic_id != ZERO_UUID:
            shapes[name] = TopicInfo(topic.topic_id, topic.partitions)
    return shapes


def _response(call: Call[messages.ShareGroupHeartbeatRequest], member_id: str | None, reply: HeartbeatReply) -> bytes:
    message = messages.ShareGroupHeartbeatResponse
    if reply.error != ErrorCode.NONE:
        response = message(error_code=reply.error, error_message=reply.message)
    else:
        response = message(
            member_id=member_id,
            member_epoch=reply.member_epoch,
            heartbeat_interval_ms=round(reply.heartbeat_interval_s * 1000),
            assignment=None if reply.assignment is None else _assignment(reply.assignment),
        )
    return frames.response(KEY, call.version, call.correlation_id, response)


def _assignment(assignment: Mapping[bytes, Iterable[int]]) -> messages.ShareGroupHeartbeatResponse.Assignment:
    message = messages.ShareGroupHeartbeatResponse
    return message.Assignment(
        topic_partitions=[
            message.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in sorted(assignment.items())
        ]
    )


API = DeclaredApi(
    key=KEY,
    handle=handle,
    versions=VERSIONS,
    needs=Needs.OWNER,
    respond_unavailable=refusals.whole,
    before_move=let_move,
    is_repeated=True,
)
