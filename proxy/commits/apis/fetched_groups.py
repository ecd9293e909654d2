"""What OffsetFetch asks and is answered, group by group, in whichever version: v8 lists groups, v1 to v7 have one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from proxy.forwarding.split_requests import Splits
from proxy.wire import messages
from proxy.wire.errors import ErrorCode
from proxy.wire.messages import Message

AskedGroup: TypeAlias = "messages.OffsetFetchRequest.OffsetFetchRequestGroup | messages.OffsetFetchRequest"
"""With `group_id` and `topics`."""
AnsweredGroup: TypeAlias = "messages.OffsetFetchResponse.OffsetFetchResponseGroup | messages.OffsetFetchResponse"
"""With `error_code` and `topics`."""

GROUPS_VERSION = 8
"""From here on groups are listed."""
ERROR_VERSION = 2
"""From here on a group as a whole may have an error."""


@dataclass(frozen=True, slots=True)
class FetchSplits(Splits):
    """The groups of a request, also where there is one and no list."""

    def groups(self, request: Message) -> list[str]:
        """See Splits."""
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


def asked_groups(request: messages.OffsetFetchRequest, version: int) -> Sequence[AskedGroup]:
    """Each group of a request."""
    return request.groups or () if version >= GROUPS_VERSION else (request,)


def answered_groups(
    request: messages.OffsetFetchRequest, answer: messages.OffsetFetchResponse, version: int
) -> Iterator[tuple[str, AnsweredGroup]]:
    """Each group of an answer, and its id."""
    if version < GROUPS_VERSION:
        yield request.group_id, answer
        return
    for group in answer.groups or ():
        yield group.group_id, group


def refused(request: messages.OffsetFetchRequest, version: int, code: ErrorCode) -> messages.OffsetFetchResponse:
    """Every group of a request is refused."""
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
