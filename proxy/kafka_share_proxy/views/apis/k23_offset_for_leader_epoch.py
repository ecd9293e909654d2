"""OffsetForLeaderEpoch (key 23): served from the base partitions if it names a view, otherwise forwarded.

Behaviour
- Every leader epoch that a consumer of a view holds is one of the base, so the broker's entry for the base is right.
- Errors and throttle time are the broker's. A view that is not available gets the error code for that, a partition that
  it does not have gets 3.

KIPs: 101, 320. See views/README.md rule 21 and views/README.md rule 29.
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

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH


async def handle(call: Call[messages.OffsetForLeaderEpochRequest], views: ViewServices) -> bytes | None:
    response = messages.OffsetForLeaderEpochResponse
    return await replied(
        call, await respond_from_bases(call, views, _Wording(), response, lambda each: each.throttle_time_ms)
    )


Entry: TypeAlias = "messages.OffsetForLeaderEpochResponse.EpochEndOffset"


class _Wording(Wording["messages.OffsetForLeaderEpochRequest", "messages.OffsetForLeaderEpochResponse", Entry]):
    def queries(self, request: messages.OffsetForLeaderEpochRequest) -> Topics:
        return [
            (topic.topic, [(e.partition, (e.current_leader_epoch, e.leader_epoch)) for e in topic.partitions])
            for topic in request.topics
        ]

    def request(
        self, like: messages.OffsetForLeaderEpochRequest, by_topic: Mapping[str, Sequence[Query]]
    ) -> messages.OffsetForLeaderEpochRequest:
        topic = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = copied(like)
        asked.topics = [
            topic(topic=name, partitions=[_asked(each) for each in queries]) for name, queries in by_topic.items()
        ]
        return asked

    def entries(self, response: messages.OffsetForLeaderEpochResponse) -> Iterable[tuple[Place, Entry]]:
        return (((topic.topic, e.partition), e) for topic in response.topics for e in topic.partitions)

    def entry(self, partition: int, source: Entry | ErrorCode) -> Entry:
        entry = (
            messages.OffsetForLeaderEpochResponse.EpochEndOffset(error_code=source)
            if isinstance(source, ErrorCode)
            else copied(source)
        )
        entry.partition = partition
        return entry

    def response(
        self, throttle_ms: int, topics: Iterable[tuple[str, list[Entry]]]
    ) -> messages.OffsetForLeaderEpochResponse:
        topic = messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        said = [topic(topic=name, partitions=entries) for name, entries in topics]
        return messages.OffsetForLeaderEpochResponse(throttle_time_ms=throttle_ms, topics=said)


def _asked(query: Query) -> messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition:
    current, epoch = query.content
    return messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=query.partition, current_leader_epoch=current, leader_epoch=epoch
    )


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
