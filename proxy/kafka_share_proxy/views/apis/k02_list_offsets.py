"""ListOffsets (key 2): served here from the base partitions if it names a view, otherwise forwarded unchanged.

Behaviour
- Every timestamp, including the special ones, means the same in a view as in the base: "the first offset at or after
  that time in the base" is a valid start in each slot. The offset of the largest timestamp may belong to another slot.
- Leader epochs, errors and throttle time are the broker's.
- A view that is not available gets the error code for that, a partition that it does not have gets 3.

KIPs: 320, 396, 734, 405, 1005, 1023. See views/README.md rule 21 and views/README.md rule 29.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied
from kafka_share_proxy.views.apis.base_queries import Place, Query, Topics, Wording, respond_from_bases
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.message_classes import copied
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.LIST_OFFSETS


async def handle(call: Call[messages.ListOffsetsRequest], views: ViewServices) -> bytes | None:
    response = messages.ListOffsetsResponse
    return await replied(
        call, await respond_from_bases(call, views, _Wording(), response, lambda each: each.throttle_time_ms)
    )


Entry: TypeAlias = "messages.ListOffsetsResponse.ListOffsetsPartitionResponse"


class _Wording(Wording["messages.ListOffsetsRequest", "messages.ListOffsetsResponse", Entry]):
    def queries(self, request: messages.ListOffsetsRequest) -> Topics:
        return [
            (topic.name, [(e.partition_index, (e.timestamp, e.current_leader_epoch)) for e in topic.partitions])
            for topic in request.topics
        ]

    def request(
        self, like: messages.ListOffsetsRequest, by_topic: Mapping[str, Sequence[Query]]
    ) -> messages.ListOffsetsRequest:
        asked = copied(like)
        asked.topics = [
            messages.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[_asked(each) for each in queries])
            for name, queries in by_topic.items()
        ]
        return asked

    def entries(self, response: messages.ListOffsetsResponse) -> Iterable[tuple[Place, Entry]]:
        return (((topic.name, e.partition_index), e) for topic in response.topics for e in topic.partitions)

    def entry(self, partition: int, source: Entry | ErrorCode) -> Entry:
        entry = (
            messages.ListOffsetsResponse.ListOffsetsPartitionResponse(error_code=source)
            if isinstance(source, ErrorCode)
            else copied(source)
        )
        entry.partition_index = partition
        return entry

    def response(self, throttle_ms: int, topics: Iterable[tuple[str, list[Entry]]]) -> messages.ListOffsetsResponse:
        topic = messages.ListOffsetsResponse.ListOffsetsTopicResponse
        said = [topic(name=name, partitions=entries) for name, entries in topics]
        return messages.ListOffsetsResponse(throttle_time_ms=throttle_ms, topics=said)


def _asked(query: Query) -> messages.ListOffsetsRequest.ListOffsetsPartition:
    timestamp, epoch = query.content
    return messages.ListOffsetsRequest.ListOffsetsPartition(
        partition_index=query.partition, timestamp=timestamp, current_leader_epoch=epoch
    )


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
