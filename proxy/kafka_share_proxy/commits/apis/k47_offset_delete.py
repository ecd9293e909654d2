"""OffsetDelete (key 47): the ranges of a partition are deleted with its committed offset.

Versions: all. As DeleteGroups.
"""

from __future__ import annotations

from kafka_share_proxy.commits.locked_partitions import with_locks
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import StoredChange, store, stored_or_reported
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

KEY = ApiKey.OFFSET_DELETE


async def handle(call: Call[messages.OffsetDeleteRequest], services: CommitServices) -> messages.OffsetDeleteResponse:
    group_id = call.message.group_id
    partitions = {
        TopicPartition(topic.name, entry.partition_index)
        for topic in call.message.topics or ()
        for entry in topic.partitions or ()
    }

    async def delete() -> messages.OffsetDeleteResponse:
        return await _delete(call, services)

    return await with_locks(services, group_id, partitions, lambda _: True, delete)


async def _delete(call: Call[messages.OffsetDeleteRequest], services: CommitServices) -> messages.OffsetDeleteResponse:
    response = await send_upstream(call, call.message)
    if response.error_code != ErrorCode.NONE:
        return response
    group = services.held.group(call.message.group_id)
    deleted = [
        partition
        for topic in response.topics or ()
        for entry in topic.partitions or ()
        if entry.error_code == ErrorCode.NONE
        and (partition := TopicPartition(topic.name, entry.partition_index)) in group.partitions
    ]
    store(
        services,
        group,
        [StoredChange(partition, state := group.state_of(partition), state.ended()) for partition in deleted],
    )
    if await stored_or_reported(services, group):
        for partition in deleted:
            group.partitions.pop(partition, None)
    return response


async def _respond_unavailable(
    _call: Call[messages.OffsetDeleteRequest], code: ErrorCode, _reason: str
) -> messages.OffsetDeleteResponse:
    return messages.OffsetDeleteResponse(error_code=code, topics=[])


API = DeclaredApi(key=KEY, handle=handle, needs=Needs.OWNER, respond_unavailable=_respond_unavailable)
