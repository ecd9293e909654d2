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
    Place,
    Question,
    ask_in_rounds,
    by_question,
    error_of,
    make_ready,
    throttle_ms,
    upstream_place,
)
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH


async def handle(call: Call[messages.OffsetForLeaderEpochRequest], views: ViewServices) -> bytes | None:
    """Answer one OffsetForLeaderEpoch, or let it pass."""
    topics = {topic.topic: [entry.partition for entry in topic.partitions] for topic in call.message.topics}
    refused = await make_ready(call.connection, views, topics)
    questions: dict[tuple[str, int, int], Question | ErrorCode] = {}
    for topic in call.message.topics:
        for index, entry in enumerate(topic.partitions):
            place = upstream_place(views, topic.topic, entry.partition)
            code = refused.get(topic.topic) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            content = (entry.current_leader_epoch, entry.leader_epoch)
            questions[topic.topic, entry.partition, index] = (
                Question(*place, content) if place is not None and topic.topic not in refused else code
            )
    asked = [each for each in questions.values() if isinstance(each, Question)]
    told = await ask_in_rounds(call, asked, _writer(call), messages.OffsetForLeaderEpochResponse)
    return reply(call, _answer(call, questions, told))


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
    questions: Mapping[tuple[str, int, int], Question | ErrorCode],
    told: Sequence[tuple[dict[Place, Question], messages.OffsetForLeaderEpochResponse]],
) -> messages.OffsetForLeaderEpochResponse:
    message = messages.OffsetForLeaderEpochResponse
    found = by_question(told, lambda answer: (((t.topic, e.partition), e) for t in answer.topics for e in t.partitions))

    def entry_of(name: str, partition: int, index: int) -> messages.OffsetForLeaderEpochResponse.EpochEndOffset:
        question = questions[name, partition, index]
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
            partitions=[entry_of(topic.topic, e.partition, i) for i, e in enumerate(topic.partitions)],
        )
        for topic in call.message.topics
    ]
    return message(throttle_time_ms=throttle_ms(told), topics=topics)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
