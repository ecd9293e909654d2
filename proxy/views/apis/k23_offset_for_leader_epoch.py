"""OffsetForLeaderEpoch: answered here where it names a view, from the base partitions; else passed on untouched.

Behaviour
- Every leader epoch a consumer of a view holds is one of the base's, so the broker's answer about the base is right.
- Errors and throttle time are the broker's. A view that cannot be had is answered with its reason, a partition that it
  does not have with 3.

KIPs: 101, 320. See views/README.md rule 21 and views/README.md rule 29.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.views.apis.base_questions import Place, Question, Topics, Wording, answer_from_bases
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.message_classes import copied

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH


async def handle(call: Call[messages.OffsetForLeaderEpochRequest], views: ViewServices) -> bytes | None:
    """Answer one OffsetForLeaderEpoch."""
    response = messages.OffsetForLeaderEpochResponse
    return reply(call, await answer_from_bases(call, views, _Wording(), response, lambda each: each.throttle_time_ms))


Entry: TypeAlias = "messages.OffsetForLeaderEpochResponse.EpochEndOffset"


class _Wording(Wording["messages.OffsetForLeaderEpochRequest", "messages.OffsetForLeaderEpochResponse", Entry]):
    def questions(self, request: messages.OffsetForLeaderEpochRequest) -> Topics:
        return [
            (topic.topic, [(e.partition, (e.current_leader_epoch, e.leader_epoch)) for e in topic.partitions])
            for topic in request.topics
        ]

    def request(
        self, like: messages.OffsetForLeaderEpochRequest, by_topic: Mapping[str, Sequence[Question]]
    ) -> messages.OffsetForLeaderEpochRequest:
        topic = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = copied(like)
        asked.topics = [
            topic(topic=name, partitions=[_asked(each) for each in questions]) for name, questions in by_topic.items()
        ]
        return asked

    def entries(self, answer: messages.OffsetForLeaderEpochResponse) -> Iterable[tuple[Place, Entry]]:
        return (((topic.topic, e.partition), e) for topic in answer.topics for e in topic.partitions)

    def entry(self, partition: int, source: Entry | ErrorCode) -> Entry:
        entry = (
            messages.OffsetForLeaderEpochResponse.EpochEndOffset(error_code=source)
            if isinstance(source, ErrorCode)
            else copied(source)
        )
        entry.partition = partition
        return entry

    def answer(
        self, throttle_ms: int, topics: Iterable[tuple[str, list[Entry]]]
    ) -> messages.OffsetForLeaderEpochResponse:
        topic = messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        said = [topic(topic=name, partitions=entries) for name, entries in topics]
        return messages.OffsetForLeaderEpochResponse(throttle_time_ms=throttle_ms, topics=said)


def _asked(question: Question) -> messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition:
    current, epoch = question.content
    return messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=question.partition, current_leader_epoch=current, leader_epoch=epoch
    )


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
