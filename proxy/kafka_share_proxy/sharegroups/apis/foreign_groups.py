"""Requests of other group types for an id that is a share group here: an id has one type. Versions: all.

The codes are those of Kafka 4.3.0 for a native share group (measured).

- JoinGroup: 23. ConsumerGroupHeartbeat, StreamsGroupHeartbeat: 69 "is not a ... group". Never sent upstream: a broker
  that does not know the share group would create another group under its id.
- OffsetCommit, TxnOffsetCommit: 69 per partition, but 3, 29, 30, 53 and the like if the broker returns them. The
  request is sent to the broker with a member id that cannot exist, so that nothing is written. TxnOffsetCommit below v3
  has no member id: for it only READ on the group is checked. Ranges of individual commits get 42 and a line in the log,
  so that no client believes that its metadata was lost in transit.
- OffsetDelete: 69. The request is sent to the broker without topics, which shows whether DELETE is allowed.
- ConsumerGroupDescribe, StreamsGroupDescribe: 69 for the ids held here, the broker's own response for the rest.
- Errors of a coordinator that moved, is loading or is down are forwarded (14, 15, 16): the client looks it up as usual.
- Forwarded, since a broker's response for an unknown id is the same as for a share group: SyncGroup, Heartbeat,
  LeaveGroup (25), OffsetFetch (0 with offset -1), AddOffsetsToTxn (0).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias, TypeVar

from kafka_share_proxy.brokers.rights import PROBE_MEMBER, Right, on_read_group, request_read_group, rights_of
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs, UnavailableResponder
from kafka_share_proxy.forwarding.served.commit_responses import CommitEntry, commit_response, refused
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied, reply, send_upstream
from kafka_share_proxy.sharegroups.apis import refusals
from kafka_share_proxy.sharegroups.apis.held_groups import any_is_held, named_group_is_held, names_held
from kafka_share_proxy.sharegroups.services import ShareHandler, ShareServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

TXN_OFFSET_COMMIT_MEMBER_VERSION = 3
"""Version from which TxnOffsetCommit contains a member id (KIP-447)."""
JOIN_GROUP_NULL_PROTOCOL_VERSION = 7
"""Version from which an error has a null protocol name. Earlier versions have an empty one."""

NOT_A_MEMBER = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors of a broker that does not know the member or group. Any other code is its judgement of the request."""

Api = DeclaredApi[ShareServices]

_Described: TypeAlias = (
    "messages.ConsumerGroupDescribeResponse.DescribedGroup | messages.StreamsGroupDescribeResponse.DescribedGroup"
)


Q = TypeVar("Q", "messages.OffsetCommitRequest", "messages.TxnOffsetCommitRequest")


class _NamesGroup(Protocol):
    @property
    def group_id(self) -> str: ...


async def join_group(call: Call[messages.JoinGroupRequest], services: ShareServices) -> bytes:
    code = await _code(call, services, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    nameless = None if call.version >= JOIN_GROUP_NULL_PROTOCOL_VERSION else ""
    response = messages.JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_name=nameless, leader="", member_id="", members=[]
    )
    return reply(call, response)


async def consumer_group_heartbeat(
    call: Call[messages.ConsumerGroupHeartbeatRequest], services: ShareServices
) -> bytes:
    code, text = await _refusal(call, services, "consumer")
    return reply(call, messages.ConsumerGroupHeartbeatResponse(error_code=code, error_message=text))


async def streams_group_heartbeat(call: Call[messages.StreamsGroupHeartbeatRequest], services: ShareServices) -> bytes:
    code, text = await _refusal(call, services, "streams")
    return reply(call, messages.StreamsGroupHeartbeatResponse(error_code=code, error_message=text))


async def offset_commit(call: Call[messages.OffsetCommitRequest], services: ShareServices) -> bytes:
    return await _query_without_member(call, services)


async def txn_offset_commit(call: Call[messages.TxnOffsetCommitRequest], services: ShareServices) -> bytes:
    if call.version >= TXN_OFFSET_COMMIT_MEMBER_VERSION:
        return await _query_without_member(call, services)
    code = await _code(call, services, ErrorCode.GROUP_ID_NOT_FOUND)
    if code != ErrorCode.GROUP_ID_NOT_FOUND:
        return await replied(call, refused(call, call.message.topics, code))
    group_id = call.message.group_id
    response = commit_response(call, call.message.topics, lambda entry: _not_found(services, group_id, entry))
    return await replied(call, response)


async def offset_delete(call: Call[messages.OffsetDeleteRequest], _: ShareServices) -> bytes:
    request = messages.OffsetDeleteRequest(group_id=call.message.group_id, topics=[])
    response = await send_upstream(call, request)
    if response.error_code in NOT_A_MEMBER:
        response.error_code = ErrorCode.GROUP_ID_NOT_FOUND
    response.topics = []
    return reply(call, response)


async def consumer_group_describe(call: Call[messages.ConsumerGroupDescribeRequest], services: ShareServices) -> bytes:
    response = await send_upstream(call, call.message)
    await _correct(call, services, response.groups, "consumer")
    return await replied(call, response)


async def streams_group_describe(call: Call[messages.StreamsGroupDescribeRequest], services: ShareServices) -> bytes:
    response = await send_upstream(call, call.message)
    await _correct(call, services, response.groups, "streams")
    return await replied(call, response)


async def _code(call: Call[_NamesGroup], services: ShareServices, allowed: ErrorCode) -> ErrorCode:
    """Return `allowed` if the principal may READ the group, else the broker's error."""
    connection, group_id, now = call.connection, call.message.group_id, services.timers.now()
    code = rights_of(connection).group_code(Right.READ_GROUP, group_id, now, services.options.rights_cache_s)
    if code is None:
        code = on_read_group(connection, group_id, await request_read_group(connection, group_id), now)
    return allowed if code == ErrorCode.NONE else code


async def _refusal(call: Call[_NamesGroup], services: ShareServices, kind: str) -> tuple[ErrorCode, str | None]:
    """Return error code and text for a heartbeat of another group type."""
    code = await _code(call, services, ErrorCode.GROUP_ID_NOT_FOUND)
    return code, _not_a(kind, call.message.group_id) if code is ErrorCode.GROUP_ID_NOT_FOUND else None


async def _query_without_member(call: Call[Q], services: ShareServices) -> bytes:
    """Send the request to the broker with a member id that cannot exist. Replace its "no such member" by 69 or 42."""
    request = call.message
    request.generation_id_or_member_epoch, request.member_id, request.group_instance_id = 0, PROBE_MEMBER, None
    codes: dict[tuple[str, bytes, int], ErrorCode] = {}
    for requested_topic in request.topics:
        for entry in requested_topic.partitions:
            partition = requested_topic.name, bytes(requested_topic.topic_id), entry.partition_index
            codes[partition] = _not_found(services, request.group_id, entry)
            await call.work.step()
    response = await send_upstream(call, request)
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code in NOT_A_MEMBER:
                partition = topic.name, bytes(topic.topic_id), result.partition_index
                result.error_code = codes.get(partition, ErrorCode.GROUP_ID_NOT_FOUND)
            await call.work.step()
    return await replied(call, response)


def _not_found(services: ShareServices, group_id: str, entry: CommitEntry) -> ErrorCode:
    """Return the error of a commit to a share group. A commit of ranges gets another one, explained in the log."""
    if not services.has_ranges(group_id, entry.committed_metadata):
        return ErrorCode.GROUP_ID_NOT_FOUND
    reason = "it is a share group, whose records are acknowledged one by one: commit ranges in another group"
    services.notes("commit-refused", group=group_id, partition=entry.partition_index, reason=reason)
    return ErrorCode.INVALID_REQUEST


async def _correct(call: Call[Message], services: ShareServices, groups: Iterable[_Described], kind: str) -> None:
    for group in groups:
        if group.error_code in NOT_A_MEMBER and services.holds(group.group_id):
            group.error_code, group.error_message = ErrorCode.GROUP_ID_NOT_FOUND, _not_a(kind, group.group_id)
            group.members = []
        await call.work.step()


def _not_a(kind: str, group_id: str) -> str:
    return f"Group {group_id} is not a {kind} group."


async def _join_unavailable(
    _call: Call[messages.JoinGroupRequest], code: ErrorCode, _reason: str
) -> messages.JoinGroupResponse:
    response = messages.JoinGroupResponse
    return response(error_code=code, generation_id=-1, protocol_name="", leader="", member_id="", members=[])


async def _commit_unavailable(call: Call[Q], code: ErrorCode, _reason: str) -> Message:
    return refused(call, call.message.topics, code)


def _makes(key: int, handle: ShareHandler, respond_unavailable: UnavailableResponder) -> Api:
    """Declare an API that would create a group upstream. It waits until it is known which groups are share groups."""
    wants = named_group_is_held(or_loading=True)
    return DeclaredApi(
        key=key, handle=handle, wants=wants, needs=Needs.GROUP_LOADED, respond_unavailable=respond_unavailable
    )


def _groups_in_request(
    request: messages.ConsumerGroupDescribeRequest | messages.StreamsGroupDescribeRequest,
) -> list[str]:
    return request.group_ids


def _describes(key: int, handle: ShareHandler) -> Api:
    return DeclaredApi(
        key=key,
        handle=handle,
        wants=any_is_held(or_loading=False),
        picks=names_held(_groups_in_request, or_loading=False),
    )


APIS: tuple[Api, ...] = (
    _makes(ApiKey.JOIN_GROUP, join_group, _join_unavailable),
    _makes(ApiKey.OFFSET_COMMIT, offset_commit, _commit_unavailable),
    DeclaredApi(key=ApiKey.OFFSET_DELETE, handle=offset_delete, wants=named_group_is_held(or_loading=False)),
    _makes(ApiKey.TXN_OFFSET_COMMIT, txn_offset_commit, _commit_unavailable),
    _makes(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat, refusals.whole),
    _makes(ApiKey.STREAMS_GROUP_HEARTBEAT, streams_group_heartbeat, refusals.whole),
    _describes(ApiKey.CONSUMER_GROUP_DESCRIBE, consumer_group_describe),
    _describes(ApiKey.STREAMS_GROUP_DESCRIBE, streams_group_describe),
)
