"""Groups in OffsetFetch requests and responses of any version: v8 lists groups, v1 to v7 have one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

RequestedGroup: TypeAlias = "messages.OffsetFetchRequest.OffsetFetchRequestGroup | messages.OffsetFetchRequest"
"""An entry with `group_id` and `topics`."""
GroupResponse: TypeAlias = "messages.OffsetFetchResponse.OffsetFetchResponseGroup | messages.OffsetFetchResponse"

GROUPS_VERSION = 8
"""First version with a list of groups."""
ERROR_VERSION = 2


@dataclass(frozen=True, slots=True)
class FetchSplits(Splits):
    """Splits by group, also for versions with one group and no list."""

    def groups(self, request: Message) -> list[str]:
        listed = Splits.groups(self, request)
        if listed or not isinstance(request, messages.OffsetFetchRequest) or not request.group_id:
            return listed
        return [request.group_id]


SPLITS = FetchSplits(
    "groups",
    lambda entry: str(entry.group_id),
    "groups",
    lambda entry: str(entry.group_id),
    lambda entry: str(entry.group_id),
)


def requested_groups(request: messages.OffsetFetchRequest, version: int) -> Sequence[RequestedGroup]:
    return request.groups or () if version >= GROUPS_VERSION else (request,)


def responded_groups(
    request: messages.OffsetFetchRequest, response: messages.OffsetFetchResponse, version: int
) -> Iterator[tuple[str, GroupResponse]]:
    if version < GROUPS_VERSION:
        yield request.group_id, response
        return
    for group in response.groups or ():
        yield group.group_id, group


def refused(request: messages.OffsetFetchRequest, version: int, code: ErrorCode) -> messages.OffsetFetchResponse:
    response = messages.OffsetFetchResponse
    if version >= GROUPS_VERSION:
        group = response.OffsetFetchResponseGroup
        return response(groups=[group(group_id=g.group_id, error_code=code) for g in request.groups or ()])
    if version >= ERROR_VERSION:
        return response(error_code=code, topics=[])
    topics = [
        response.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                response.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return response(topics=topics)
