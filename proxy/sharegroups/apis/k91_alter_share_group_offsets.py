"""AlterShareGroupOffsets v0 (KIP-932), served here.

- READ on the group denied 30, empty id 24, a group of another type upstream 69, members 68; nothing is changed then. A
  group that does not exist is made.
- Per topic: READ denied 29, unknown 3; per partition: beyond the topic 3, an offset below -1 42. The others are changed
  all the same.
- The state of a share partition is replaced: it begins at the offset given, nothing is settled, held or counted; offset
  -1 deletes it, so that the next fetch begins anew by share.auto.offset.reset. Answered once it is durable; with 15,
  as KIP-932's persister does, where the journal cannot tell in time: it goes on all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from proxy.brokers.cluster_view import Topic
from proxy.brokers.rights import Right, ask_read_group, rights_of, tell_read_group
from proxy.durable.interfaces import ANSWER_MAX_S
from proxy.forwarding.ask_and_reply import replied, reply
from proxy.forwarding.declared_api import DeclaredApi, Needs
from proxy.forwarding.interfaces import Call
from proxy.loop.promise import Promise
from proxy.loop.waiting import settled_by
from proxy.sharegroups.apis import refusals
from proxy.sharegroups.apis.offset_requests import begin_at, know_topics, not_starting, topic_of
from proxy.sharegroups.group_changes import BEING_DELETED
from proxy.sharegroups.model.coordinator import ShareKey
from proxy.sharegroups.new_groups import GroupRefused, hold_group
from proxy.sharegroups.services import ShareServices
from proxy.sharegroups.state_writes import Outcome
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import ZERO_UUID

_Topic: TypeAlias = "messages.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic"

KEY = ApiKey.ALTER_SHARE_GROUP_OFFSETS
VERSIONS = (0, 0)

UNINITIALIZED = -1

NOT_EMPTY = "The group is not empty."
"""What tools print of error 68."""
GONE = (ErrorCode.GROUP_ID_NOT_FOUND, "The group was deleted meanwhile.")

Codes = dict[tuple[str, int], ErrorCode]
"""(topic name, partition) -> what is answered."""
Changes = dict[ShareKey, tuple[str, int]]
"""Share partition -> (topic name, offset)."""


async def handle(call: Call[messages.AlterShareGroupOffsetsRequest], services: ShareServices) -> bytes:
    """Answer one AlterShareGroupOffsets."""
    request = call.message
    topics = list(request.topics or ())
    code = await _read_refusal(call, services, request.group_id, [topic.topic_name for topic in topics])
    if code != ErrorCode.NONE:
        return _refusal(call, code)
    if not request.group_id:
        return _refusal(call, ErrorCode.INVALID_GROUP_ID)
    group = services.coordinator.group(request.group_id)
    if group is None:
        held = await hold_group(call.connection, services, request.group_id)
        if isinstance(held, GroupRefused):
            return _refusal(call, held.code, held.message)
        group = held
    if group.members:
        return _refusal(call, ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
    known = {t.topic_name: topic_of(call.connection, services, t.topic_name, Right.READ_TOPIC) for t in topics}
    codes, changes = await _judged(call, topics, known)
    if not await not_starting(services, list(changes)):
        return _refusal(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if group.members or group.dead:  # somebody came while this waited
        return _refusal(call, *((ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY) if group.members else GONE))
    if group.deleting:
        return _refusal(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, BEING_DELETED)
    group.offsets_altered()
    codes |= await _written(services, changes)
    services.notes("share-group-offsets-altered", group=request.group_id, partitions=len(changes))
    return await _answer(call, topics, known, codes)


async def _written(services: ShareServices, changes: Changes) -> Codes:
    """What became of the changes; 15 where that is not known in time."""
    begins = {key: None if offset == UNINITIALIZED else offset for key, (_, offset) in changes.items()}
    replacing = None if services.audit is None else services.audit.replacing("AlterShareGroupOffsets", begins)
    writes = {key: _change(services, key, offset) for key, (_, offset) in changes.items()}
    if replacing is not None:
        for write in writes.values():
            replacing.follow(write)
    deadline = services.timers.now() + ANSWER_MAX_S
    codes: Codes = {}
    for key, write in writes.items():
        in_time = await settled_by(services.timers, deadline, write)
        code = write.result()[key] if in_time else ErrorCode.COORDINATOR_NOT_AVAILABLE
        codes[changes[key][0], key.partition] = code
    return codes


async def _read_refusal(
    call: Call[messages.AlterShareGroupOffsetsRequest], services: ShareServices, group_id: str, names: Sequence[str]
) -> ErrorCode:
    """What refuses READ on the group, or NONE; on the way what is not known of the topics."""
    connection, now = call.connection, services.timers.now()
    code = rights_of(connection).group_code(Right.READ_GROUP, group_id, now, services.options.rights_cache_s)
    answer = ask_read_group(connection, group_id) if code is None else None
    await know_topics(call, services, names, Right.READ_TOPIC)
    if answer is not None:
        code = tell_read_group(connection, group_id, await answer, now)
    return ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code


async def _judged(
    call: Call[messages.AlterShareGroupOffsetsRequest], topics: Sequence[_Topic], known: dict[str, Topic | ErrorCode]
) -> tuple[Codes, Changes]:
    """The codes that are settled, and what is to be changed."""
    group_id = call.message.group_id
    codes: Codes = {}
    changes: Changes = {}
    for name, partition, offset in _places(topics):
        topic = known[name]
        if not isinstance(topic, Topic):
            codes[name, partition] = topic
        elif not 0 <= partition < topic.partitions:
            codes[name, partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif offset < UNINITIALIZED:
            codes[name, partition] = ErrorCode.INVALID_REQUEST
        else:
            changes[ShareKey(group_id, topic.topic_id, partition)] = (name, offset)
        await call.work.step()
    return codes, changes


def _places(topics: Sequence[_Topic]) -> Iterator[tuple[str, int, int]]:
    for topic in topics:
        for partition in topic.partitions or ():
            yield topic.topic_name, partition.partition_index, partition.start_offset


def _change(services: ShareServices, key: ShareKey, offset: int) -> Promise[Outcome]:
    return services.writes.remove([key]) if offset == UNINITIALIZED else begin_at(services, key, offset)


def _refusal(call: Call[messages.AlterShareGroupOffsetsRequest], code: ErrorCode, text: str | None = None) -> bytes:
    message = messages.AlterShareGroupOffsetsResponse
    return reply(call, message(error_code=code, error_message=text, responses=[]))


async def _answer(
    call: Call[messages.AlterShareGroupOffsetsRequest],
    topics: Sequence[_Topic],
    known: dict[str, Topic | ErrorCode],
    codes: Codes,
) -> bytes:
    message = messages.AlterShareGroupOffsetsResponse
    responses = []
    for asked in topics:
        topic = known[asked.topic_name]
        partitions = []
        for partition in asked.partitions or ():
            code = codes.get((asked.topic_name, partition.partition_index), ErrorCode.NONE)
            partitions.append(
                message.AlterShareGroupOffsetsResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
            await call.work.step()
        topic_id = topic.topic_id if isinstance(topic, Topic) else ZERO_UUID
        responses.append(
            message.AlterShareGroupOffsetsResponseTopic(
                topic_name=asked.topic_name, topic_id=topic_id, partitions=partitions
            )
        )
    return await replied(call, message(responses=responses))


API = DeclaredApi(key=KEY, handle=handle, versions=VERSIONS, needs=Needs.OWNER, away=refusals.whole)
