"""OffsetForLeaderEpoch: answered here where it names a view, from the base partitions; else passed on untouched.

Behaviour
- Every leader epoch a consumer of a view holds is one of the base's, so the broker's answer about the base is right.
- Errors and throttle time are the broker's. A view that cannot be had is answered with its reason, a partition that it
  does not have with 3.

KIPs: 101, 320. See views/README.md rule 21 and views/README.md rule 29.
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

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH


async def handle(call: Call[messages.OffsetForLeaderEpochRequest], views: ViewServices) -> bytes | None:
    """Answer one OffsetForLeaderEpoch, or let it pass."""
    topics = [
        (t.topic, [(e.partition, (e.current_leader_epoch, e.leader_epoch)) for e in t.partitions])
        for t in call.message.topics
    ]
    asked = await questions_about(call.connection, views, topics)
    told = await ask_in_rounds(call, asked, _writer(call), messages.OffsetForLeaderEpochResponse)
    return reply(call, _answer(call, asked, told))


def _writer(
    call: Call[messages.OffsetForLeaderEpochRequest],
) -> Callable[[Mapping[str, Sequence[Question]]], messages.OffsetForLeaderEpochRequest]:
    message, request = messages.OffsetForLeaderEpochRequest, call.message

    def make(by_topic: Mapping[str, Sequence[Question]]) -> messages.OffsetForLeaderEpochRequest:
        return message(
            replica_id=request.replica_id,
            topics=[
                message.OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        message.OffsetForLeaderPartition(
                            partition=question.partition,
                            current_leader_epoch=question.content[0],
                            leader_epoch=question.content[1],
                        )
                        for question in questions
                    ],
                )
                for name, questions in by_topic.items()
            ],
        )

    return make


def _answer(
    call: Call[messages.OffsetForLeaderEpochRequest],
    asked: Sequence[Sequence[Asked]],
    told: Sequence[tuple[dict[Place, Question], messages.OffsetForLeaderEpochResponse]],
) -> messages.OffsetForLeaderEpochResponse:
    message = messages.OffsetForLeaderEpochResponse
    found = by_question(told, lambda answer: (((t.topic, e.partition), e) for t in answer.topics for e in t.partitions))

    def entry_of(partition: int, question: Asked) -> messages.OffsetForLeaderEpochResponse.EpochEndOffset:
        source = found.get(question) if isinstance(question, Question) else None
        entry = message.EpochEndOffset(partition=partition)
        if source is None:
            entry.error_code = error_of(question)
        else:
            entry.error_code, entry.leader_epoch = source.error_code, source.leader_epoch
            entry.end_offset = source.end_offset
        return entry

    topics = [
        message.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[entry_of(e.partition, each) for e, each in zip(topic.partitions, questions, strict=True)],
        )
        for topic, questions in zip(call.message.topics, asked, strict=True)
    ]
    return message(throttle_time_ms=throttle_ms(told), topics=topics)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
