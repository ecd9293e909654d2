"""ListOffsets: answered here where it names a view, from the base partitions; else passed on untouched.

Behaviour
- Every timestamp, the special ones included, means in a view what it means in the base: "the first offset at or behind
  that time in the base" is a valid start in each slot. The offset of the largest timestamp may be another slot's.
- Leader epochs, errors and throttle time are the broker's.
- A view that cannot be had is answered with its reason, a partition that it does not have with 3.

KIPs: 320, 396, 734, 405, 1005, 1023. See views/README.md rule 21 and views/README.md rule 29.
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

KEY = ApiKey.LIST_OFFSETS


async def handle(call: Call[messages.ListOffsetsRequest], views: ViewServices) -> bytes | None:
    """Answer one ListOffsets."""
    response = messages.ListOffsetsResponse
    return reply(call, await answer_from_bases(call, views, _Wording(), response, lambda each: each.throttle_time_ms))


Entry: TypeAlias = "messages.ListOffsetsResponse.ListOffsetsPartitionResponse"


class _Wording(Wording["messages.ListOffsetsRequest", "messages.ListOffsetsResponse", Entry]):
    def questions(self, request: messages.ListOffsetsRequest) -> Topics:
        return [
            (topic.name, [(e.partition_index, (e.timestamp, e.current_leader_epoch)) for e in topic.partitions])
            for topic in request.topics
        ]

    def request(
        self, like: messages.ListOffsetsRequest, by_topic: Mapping[str, Sequence[Question]]
    ) -> messages.ListOffsetsRequest:
        asked = copied(like)
        asked.topics = [
            messages.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[_asked(each) for each in questions])
            for name, questions in by_topic.items()
        ]
        return asked

    def entries(self, answer: messages.ListOffsetsResponse) -> Iterable[tuple[Place, Entry]]:
        return (((topic.name, e.partition_index), e) for topic in answer.topics for e in topic.partitions)

    def entry(self, partition: int, source: Entry | ErrorCode) -> Entry:
        entry = (
            messages.ListOffsetsResponse.ListOffsetsPartitionResponse(error_code=source)
            if isinstance(source, ErrorCode)
            else copied(source)
        )
        entry.partition_index = partition
        return entry

    def answer(self, throttle_ms: int, topics: Iterable[tuple[str, list[Entry]]]) -> messages.ListOffsetsResponse:
        topic = messages.ListOffsetsResponse.ListOffsetsTopicResponse
        said = [topic(name=name, partitions=entries) for name, entries in topics]
        return messages.ListOffsetsResponse(throttle_time_ms=throttle_ms, topics=said)


def _asked(question: Question) -> messages.ListOffsetsRequest.ListOffsetsPartition:
    timestamp, epoch = question.content
    return messages.ListOffsetsRequest.ListOffsetsPartition(
        partition_index=question.partition, timestamp=timestamp, current_leader_epoch=epoch
    )


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
