"""ListOffsets: answered here where it names a view, from the base partitions; else passed on untouched.

Behaviour
- Every timestamp, the special ones included, means in a view what it means in the base: "the first offset at or behind
  that time in the base" is a valid start in each slot. The offset of the largest timestamp may be another slot's.
- Leader epochs, errors and throttle time are the broker's.
- A view that cannot be had is answered with its reason, a partition that it does not have with 3.

KIPs: 320, 396, 734, 405, 1005, 1023. See views/README.md rule 21 and views/README.md rule 29.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.views.apis.base_questions import (
    Asked,
    Place,
    Question,
    ask_in_rounds,
    by_question,
    error_of,
    questions_about,
    throttle_ms,
)
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey

KEY = ApiKey.LIST_OFFSETS


async def handle(call: Call[messages.ListOffsetsRequest], views: ViewServices) -> bytes | None:
    """Answer one ListOffsets, or let it pass."""
    topics = [
        (t.name, [(e.partition_index, (e.timestamp, e.current_leader_epoch)) for e in t.partitions])
        for t in call.message.topics
    ]
    asked = await questions_about(call.connection, views, topics)
    told = await ask_in_rounds(call, asked, _writer(call), messages.ListOffsetsResponse)
    return reply(call, _answer(call, asked, told))


def _writer(
    call: Call[messages.ListOffsetsRequest],
) -> Callable[[Mapping[str, Sequence[Question]]], messages.ListOffsetsRequest]:
    message, request = messages.ListOffsetsRequest, call.message

    def make(by_topic: Mapping[str, Sequence[Question]]) -> messages.ListOffsetsRequest:
        return message(
            replica_id=request.replica_id,
            isolation_level=request.isolation_level,
            timeout_ms=request.timeout_ms,
            topics=[
                message.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        message.ListOffsetsPartition(
                            partition_index=question.partition,
                            timestamp=question.content[0],
                            current_leader_epoch=question.content[1],
                        )
                        for question in questions
                    ],
                )
                for name, questions in by_topic.items()
            ],
        )

    return make


def _answer(
    call: Call[messages.ListOffsetsRequest],
    asked: Sequence[Sequence[Asked]],
    told: Sequence[tuple[dict[Place, Question], messages.ListOffsetsResponse]],
) -> messages.ListOffsetsResponse:
    message = messages.ListOffsetsResponse
    found = by_question(
        told, lambda answer: (((t.name, e.partition_index), e) for t in answer.topics for e in t.partitions)
    )

    def entry_of(partition: int, question: Asked) -> messages.ListOffsetsResponse.ListOffsetsPartitionResponse:
        source = found.get(question) if isinstance(question, Question) else None
        entry = message.ListOffsetsPartitionResponse(partition_index=partition)
        if source is None:
            entry.error_code = error_of(question)
        else:
            entry.error_code, entry.timestamp = source.error_code, source.timestamp
            entry.offset, entry.leader_epoch = source.offset, source.leader_epoch
        return entry

    topics = [
        message.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[entry_of(e.partition_index, each) for e, each in zip(topic.partitions, questions, strict=True)],
        )
        for topic, questions in zip(call.message.topics, asked, strict=True)
    ]
    return message(throttle_time_ms=throttle_ms(told), topics=topics)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
