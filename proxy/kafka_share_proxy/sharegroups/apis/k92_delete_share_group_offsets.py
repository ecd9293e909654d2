"""DeleteShareGroupOffsets v0 (KIP-932), served here (sharegroups/README.md rules 53, 69).

- DELETE on the group denied 30, empty id 24, not held here 69, members 68. Nothing is deleted then.
- Per topic: READ denied 29; unknown, or without state in this group: 3. All share partitions of the other topics lose
  their state, durably before the response. 15 if the journal does not confirm the deletion in time.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.brokers.rights import Right, on_delete_group, request_delete_group
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied, reply
from kafka_share_proxy.sharegroups.apis import refusals
from kafka_share_proxy.sharegroups.apis.k91_alter_share_group_offsets import NOT_EMPTY
from kafka_share_proxy.sharegroups.apis.offset_requests import load_topics, not_starting, shares_of, topic_of
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.group_changes import BEING_DELETED
from kafka_share_proxy.sharegroups.state.state_writes import reported_in_time
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

KEY = ApiKey.DELETE_SHARE_GROUP_OFFSETS
VERSIONS = (0, 0)

NOTHING_TO_DELETE = "There is no offset information to delete."


async def handle(call: Call[messages.DeleteShareGroupOffsetsRequest], services: ShareServices) -> bytes:
    request, connection = call.message, call.connection
    names = list(dict.fromkeys(topic.topic_name for topic in request.topics or ()))
    right = request_delete_group(connection, request.group_id)
    await load_topics(call, services, names, Right.READ_TOPIC)
    code = on_delete_group(await right)
    if code != ErrorCode.NONE:
        return _refusal(call, code)
    if not request.group_id:
        return _refusal(call, ErrorCode.INVALID_GROUP_ID)
    topics = {name: topic_of(connection, services, name, Right.READ_TOPIC) for name in names}
    ids = {topic.topic_id for topic in topics.values() if isinstance(topic, Topic)}
    if not await not_starting(services, _keys(services, request.group_id, ids)):
        return _refusal(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group = services.coordinator.group(request.group_id)
    if group is None:
        return _refusal(call, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if group.members:
        return _refusal(call, ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
    if group.deleting:
        return _refusal(call, ErrorCode.COORDINATOR_NOT_AVAILABLE, BEING_DELETED)
    return await _delete(call, services, request.group_id, topics)


def _keys(services: ShareServices, group_id: str, ids: Iterable[bytes]) -> list[ShareKey]:
    """Return the share partitions of these topics that are starting or have state."""
    starting = [key for key in services.reads.starting if key.group_id == group_id and key.topic_id in ids]
    return starting + [key for topic_id in ids for key in shares_of(services, group_id, topic_id)]


async def _delete(
    call: Call[messages.DeleteShareGroupOffsetsRequest],
    services: ShareServices,
    group_id: str,
    topics: dict[str, Topic | ErrorCode],
) -> bytes:
    message = messages.DeleteShareGroupOffsetsResponse
    keys = {
        name: shares_of(services, group_id, topic.topic_id)
        for name, topic in topics.items()
        if isinstance(topic, Topic)
    }
    removed = [key for each in keys.values() for key in each]
    audit = services.audit
    replacing = None if audit is None else audit.replacing("DeleteShareGroupOffsets", dict.fromkeys(removed))
    written = services.writes.remove(removed)
    if replacing is not None:
        replacing.follow(written)
    outcome = await reported_in_time(services.timers, written, removed)
    if removed:
        services.notes("share-group-offsets-deleted", group=group_id, partitions=len(removed))
    responses = []
    for name, topic in topics.items():
        if not isinstance(topic, Topic):
            responses.append(_entry(name, ZERO_UUID, topic))
        elif not keys[name]:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            responses.append(_entry(name, ZERO_UUID, code, NOTHING_TO_DELETE))
        else:
            code = next((outcome[key] for key in keys[name] if outcome[key] != ErrorCode.NONE), ErrorCode.NONE)
            responses.append(_entry(name, topic.topic_id, code))
    return await replied(call, message(responses=responses))


def _entry(
    name: str, topic_id: bytes, code: ErrorCode, text: str | None = None
) -> messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic:
    return messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=code, error_message=text
    )


def _refusal(call: Call[messages.DeleteShareGroupOffsetsRequest], code: ErrorCode, text: str | None = None) -> bytes:
    message = messages.DeleteShareGroupOffsetsResponse
    return reply(call, message(error_code=code, error_message=text, responses=[]))


API = DeclaredApi(key=KEY, handle=handle, versions=VERSIONS, needs=Needs.OWNER, respond_unavailable=refusals.whole)
