"""Requests of other group types for an id that is a share group here: one id is one type.

Versions: all. The codes are those Kafka 4.3.0 answers for a native share group (measured).

Behaviour
- JoinGroup: 23. ConsumerGroupHeartbeat, StreamsGroupHeartbeat: 69 "is not a ... group". Never sent upstream: a broker
  that does not know the share group would create another group under its id.
- OffsetCommit, TxnOffsetCommit: 69 per partition, but 3, 29, 30, 53 and the like where the broker says so. It is asked
  with the very request, in the name of a member that cannot exist, which writes nothing. TxnOffsetCommit below v3 has
  no member to name and would write; there READ on the group is asked and every partition gets 69.
- OffsetDelete: 69. The broker is asked without topics, which deletes nothing and tells whether DELETE is allowed.
- ConsumerGroupDescribe, StreamsGroupDescribe: 69 for the ids held here, the broker's own answer for the rest.
- A coordinator that is elsewhere, loading or down is passed on (14, 15, 16): the client looks for it, as always.
- Forwarded, since a broker answers them for an id it does not know as it does for a share group: SyncGroup, Heartbeat,
  LeaveGroup (25), OffsetFetch (0 with offset -1), AddOffsetsToTxn (0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.brokers.rights import PROBE_MEMBER, Right, ask_read_group, rights_of, tell_read_group
from proxy.forwarding.ask_and_reply import ask_upstream, replied, reply
from proxy.forwarding.declared_api import Away, DeclaredApi, Look, Needs
from proxy.forwarding.interfaces import Call
from proxy.sharegroups.apis import refusals
from proxy.sharegroups.apis.held_groups import any_is_held, first_string_is_held, names_held
from proxy.sharegroups.services import ShareHandler, ShareServices
from proxy.wire import registry
from proxy.wire.errors import ErrorCode

OFFSET_COMMIT, JOIN_GROUP, TXN_OFFSET_COMMIT, OFFSET_DELETE = 8, 11, 28, 47
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
STREAMS_GROUP_HEARTBEAT, STREAMS_GROUP_DESCRIBE = 88, 89

TXN_OFFSET_COMMIT_MEMBER_VERSION = 3
"""From here on TxnOffsetCommit names a member (KIP-447)."""
JOIN_GROUP_NULL_PROTOCOL_VERSION = 7
"""From here on an error has no protocol name; before, an empty one."""

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
"""What a broker says of a member or group it does not know; anything else is its judgement of the request."""

COORDINATOR_TROUBLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

Api = DeclaredApi[ShareServices]


async def join_group(call: Call, services: ShareServices) -> bytes:
    """JoinGroup (key 11)."""
    code = await _code(call, services, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    nameless = None if call.version >= JOIN_GROUP_NULL_PROTOCOL_VERSION else ""
    response = registry.message("JoinGroupResponse")(
        error_code=code, generation_id=-1, protocol_name=nameless, leader="", member_id="", members=[]
    )
    return reply(call, response)


async def consumer_group_heartbeat(call: Call, services: ShareServices) -> bytes:
    """ConsumerGroupHeartbeat (key 68)."""
    return await _heartbeat(call, services, "ConsumerGroupHeartbeatResponse", "consumer")


async def streams_group_heartbeat(call: Call, services: ShareServices) -> bytes:
    """StreamsGroupHeartbeat (key 88)."""
    return await _heartbeat(call, services, "StreamsGroupHeartbeatResponse", "streams")


async def offset_commit(call: Call, services: ShareServices) -> bytes:  # noqa: ARG001 - as handlers are called
    """OffsetCommit (key 8)."""
    return await replied(call, await _as_nobody(call))


async def txn_offset_commit(call: Call, services: ShareServices) -> bytes:
    """TxnOffsetCommit (key 28)."""
    if call.version >= TXN_OFFSET_COMMIT_MEMBER_VERSION:
        return await replied(call, await _as_nobody(call))
    code = await _code(call, services, ErrorCode.GROUP_ID_NOT_FOUND)
    response = registry.message("TxnOffsetCommitResponse")
    topics = []
    for topic in call.message.topics:
        partitions = await call.work.map(
            lambda asked: response.TxnOffsetCommitResponsePartition(
                partition_index=asked.partition_index, error_code=code
            ),
            topic.partitions,
        )
        topics.append(response.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        await call.work.step()
    return await replied(call, response(topics=topics))


async def offset_delete(call: Call, services: ShareServices) -> bytes:  # noqa: ARG001 - as handlers are called
    """OffsetDelete (key 47)."""
    request = registry.message("OffsetDeleteRequest")(group_id=call.message.group_id, topics=[])
    answer = await ask_upstream(call, request)
    if answer.error_code in NOT_A_MEMBER:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
    answer.topics = []
    return reply(call, answer)


async def consumer_group_describe(call: Call, services: ShareServices) -> bytes:
    """ConsumerGroupDescribe (key 69)."""
    return await _describe(call, services, "consumer")


async def streams_group_describe(call: Call, services: ShareServices) -> bytes:
    """StreamsGroupDescribe (key 89)."""
    return await _describe(call, services, "streams")


async def _code(call: Call, services: ShareServices, allowed: ErrorCode) -> ErrorCode:
    """`allowed` where the principal may READ the group, else the broker's code."""
    connection, group_id, now = call.connection, call.message.group_id, services.timers.now()
    code = rights_of(connection).group_code(Right.READ_GROUP, group_id, now, services.options.rights_cache_s)
    if code is None:
        code = tell_read_group(connection, group_id, await ask_read_group(connection, group_id), now)
    return allowed if code == ErrorCode.NONE else code


async def _heartbeat(call: Call, services: ShareServices, name: str, kind: str) -> bytes:
    code = await _code(call, services, ErrorCode.GROUP_ID_NOT_FOUND)
    message = _not_a(kind, call.message.group_id) if code is ErrorCode.GROUP_ID_NOT_FOUND else None
    return reply(call, registry.message(name)(error_code=code, error_message=message))


async def _as_nobody(call: Call) -> Any:
    """The broker's answer to the request in the name of a member that cannot exist, "no such member" made 69."""
    request = call.message
    request.generation_id_or_member_epoch, request.member_id, request.group_instance_id = 0, PROBE_MEMBER, None
    answer = await ask_upstream(call, request)
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code in NOT_A_MEMBER:
                partition.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            await call.work.step()
        await call.work.step()
    return answer


async def _describe(call: Call, services: ShareServices, kind: str) -> bytes:
    answer = await ask_upstream(call, call.message)
    for group in answer.groups:
        if group.error_code in NOT_A_MEMBER and services.holds(group.group_id):
            group.error_code, group.error_message = ErrorCode.GROUP_ID_NOT_FOUND, _not_a(kind, group.group_id)
            group.members = []
        await call.work.step()
    return await replied(call, answer)


def _not_a(kind: str, group_id: str) -> str:
    return f"Group {group_id} is not a {kind} group."


async def _join_away(_call: Call, code: ErrorCode, _reason: str) -> Any:
    response = registry.message("JoinGroupResponse")
    return response(error_code=code, generation_id=-1, protocol_name="", leader="", member_id="", members=[])


async def _commit_away(call: Call, code: ErrorCode, _reason: str) -> Any:
    name = registry.API_KEYS[call.key]
    response = registry.message(f"{name}Response")
    topic, partition = getattr(response, f"{name}ResponseTopic"), getattr(response, f"{name}ResponsePartition")
    topics = [
        topic(
            **{each: getattr(asked, each) for each in ("name", "topic_id") if each in topic.__slots__},
            partitions=[partition(partition_index=p.partition_index, error_code=code) for p in asked.partitions],
        )
        for asked in call.message.topics or ()
    ]
    return response(topics=topics)


_NAMED_FIRST = first_string_is_held(or_loading=True)
_BEHIND_TRANSACTIONAL_ID = first_string_is_held(1, or_loading=True)


def _makes(key: int, handle: ShareHandler, away: Away, wants: Callable[[ShareServices], Look]) -> Api:
    """An API that would make a group upstream: it waits while it is not known which groups are share groups."""
    return DeclaredApi(key=key, handle=handle, wants=wants, needs=Needs.GROUP_LOADED, away=away)


def _describes(key: int, handle: ShareHandler) -> Api:
    return DeclaredApi(
        key=key,
        handle=handle,
        wants=any_is_held(or_loading=False),
        picks=names_held(lambda request: list(request.group_ids), or_loading=False),
    )


APIS: tuple[Api, ...] = (
    _makes(JOIN_GROUP, join_group, _join_away, _NAMED_FIRST),
    _makes(OFFSET_COMMIT, offset_commit, _commit_away, _NAMED_FIRST),
    DeclaredApi(key=OFFSET_DELETE, handle=offset_delete, wants=first_string_is_held(or_loading=False)),
    _makes(TXN_OFFSET_COMMIT, txn_offset_commit, _commit_away, _BEHIND_TRANSACTIONAL_ID),
    _makes(CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat, refusals.whole, _NAMED_FIRST),
    _makes(STREAMS_GROUP_HEARTBEAT, streams_group_heartbeat, refusals.whole, _NAMED_FIRST),
    _describes(CONSUMER_GROUP_DESCRIBE, consumer_group_describe),
    _describes(STREAMS_GROUP_DESCRIBE, streams_group_describe),
)
