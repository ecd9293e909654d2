"""AlterShareGroupOffsets v0 (KIP-932), served here (sharegroups/README.md rules 53, 69).

- READ on the group denied 30, empty id 24, a group of another type upstream 69, members 68. Nothing is changed then.
- Per topic: READ denied 29, unknown 3; per partition: beyond the topic 3, an offset below -1 42. The others are changed
  all the same.
- Offset -1 deletes the state. The response is sent once the change is durable, or with 15, as by KIP-932's persister,
  if the journal does not confirm it in time. The change then continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.brokers.rights import Right, on_read_group, request_read_group, rights_of
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied, reply
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import settled_by
from kafka_share_proxy.sharegroups.apis import refusals
from kafka_share_proxy.sharegroups.apis.offset_requests import begin_at, load_topics, not_starting, topic_of
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.new_groups import GroupRefused, hold_group
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.group_changes import BEING_DELETED
from kafka_share_proxy.sharegroups.state.state_writes import Outcome
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

_Topic: TypeAlias = "messages.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic"

KEY = ApiKey.ALTER_SHARE_GROUP_OFFSETS
VERSIONS = (0, 0)

UNINITIALIZED = -1

NOT_EMPTY = "The group is not empty."
"""Error message for 68, which admin tools print."""
DELETED = (ErrorCode.GROUP_ID_NOT_FOUND, "The group was deleted meanwhile.")

Codes = dict[tuple[str, int], ErrorCode]
"""(topic name, partition) -> error code of the response."""
Changes = dict[ShareKey, tuple[str, int]]


async def handle(call: Call[messages.AlterShareGroupOffsetsRequest], services: ShareServices) -> bytes:
    request = call.message
    topics = list(request.topics or ())
    code = await _read_refusal(call, services, request.group_id, [topic.topic_name for topic in topics])
    if code != ErrorCode.NONE:
        return _refusal(call, code)
    if not request.group_id:
        return _refusal(call, ErrorCode.INVALID_GROUP_ID)
    group = services.coordinator.group(request.group_id)
    if group is None:
        new_group = await hold_group(call.connection, services, request.group_id)
        if isinstance(new_group, GroupRefused):
            return _refusal(call, new_group.code, new_group.message)
        group = new_group
    if group.members:
        return _refusal(call, ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
    topics_by_name = {
        topic.topic_name: topic_of(call.connection, services, topic.topic_name, Right.READ_TOPIC) for topic in topics
    }
    codes, changes = await _judged(call, topics, topics_by_name)
    if not await not_starting(services, list(changes)):
        return _refusal(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if group.members or group.dead:  # a member joined, or the group was deleted, during the wait
        return _refusal(call, *((ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY) if group.members else DELETED))
    if group.deleting:
        return _refusal(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, BEING_DELETED)
    group.offsets_altered()
    codes |= await _written(services, changes)
    services.notes("share-group-offsets-altered", group=request.group_id, partitions=len(changes))
    return await _response(call, topics, topics_by_name, codes)


async def _written(services: ShareServices, changes: Changes) -> Codes:
    """Return the outcome of the changes. 15 if it is not known in time."""
    begins = {key: None if offset == UNINITIALIZED else offset for key, (_, offset) in changes.items()}
    replacing = None if services.audit is None else services.audit.replacing("AlterShareGroupOffsets", begins)
    writes = {key: _change(services, key, offset) for key, (_, offset) in changes.items()}
    if replacing is not None:
        for write in writes.values():
            replacing.follow(write)
    deadline = services.timers.now() + RESPONSE_MAX_S
    codes: Codes = {}
    for key, write in writes.items():
        in_time = await settled_by(services.timers, deadline, write)
        code = write.result()[key] if in_time else ErrorCode.COORDINATOR_NOT_AVAILABLE
        codes[changes[key][0], key.partition] = code
    return codes


async def _read_refusal(
    call: Call[messages.AlterShareGroupOffsetsRequest], services: ShareServices, group_id: str, names: Sequence[str]
) -> ErrorCode:
    """Return the error that refuses READ on the group, or NONE; look up the topics in the same round trip."""
    connection, now = call.connection, services.timers.now()
    code = rights_of(connection).group_code(Right.READ_GROUP, group_id, now, services.options.rights_cache_s)
    response = request_read_group(connection, group_id) if code is None else None
    await load_topics(call, services, names, Right.READ_TOPIC)
    if response is not None:
        code = on_read_group(connection, group_id, await response, now)
    return ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code


async def _judged(
    call: Call[messages.AlterShareGroupOffsetsRequest],
    topics: Sequence[_Topic],
    topics_by_name: dict[str, Topic | ErrorCode],
) -> tuple[Codes, Changes]:
    """Return the final error codes, and the changes to make."""
    group_id = call.message.group_id
    codes: Codes = {}
    changes: Changes = {}
    for name, partition, offset in _entries(topics):
        topic = topics_by_name[name]
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


def _entries(topics: Sequence[_Topic]) -> Iterator[tuple[str, int, int]]:
    for topic in topics:
        for partition in topic.partitions or ():
            yield topic.topic_name, partition.partition_index, partition.start_offset


def _change(services: ShareServices, key: ShareKey, offset: int) -> Promise[Outcome]:
    return services.writes.remove([key]) if offset == UNINITIALIZED else begin_at(services, key, offset)


def _refusal(call: Call[messages.AlterShareGroupOffsetsRequest], code: ErrorCode, text: str | None = None) -> bytes:
    message = messages.AlterShareGroupOffsetsResponse
    return reply(call, message(error_code=code, error_message=text, responses=[]))


async def _response(
    call: Call[messages.AlterShareGroupOffsetsRequest],
    topics: Sequence[_Topic],
    topics_by_name: dict[str, Topic | ErrorCode],
    codes: Codes,
) -> bytes:
    message = messages.AlterShareGroupOffsetsResponse
    responses = []
    for requested in topics:
        topic = topics_by_name[requested.topic_name]
        partitions = []
        for partition in requested.partitions or ():
            code = codes.get((requested.topic_name, partition.partition_index), ErrorCode.NONE)
            partitions.append(
                message.AlterShareGroupOffsetsResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
            await call.work.step()
        topic_id = topic.topic_id if isinstance(topic, Topic) else ZERO_UUID
        responses.append(
            message.AlterShareGroupOffsetsResponseTopic(
                topic_name=requested.topic_name, topic_id=topic_id, partitions=partitions
            )
        )
    return await replied(call, message(responses=responses))


API = DeclaredApi(key=KEY, handle=handle, versions=VERSIONS, needs=Needs.OWNER, respond_unavailable=refusals.whole)
