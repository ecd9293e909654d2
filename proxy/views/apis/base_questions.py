"""Questions about partitions of views, put to the broker as questions about their base partitions.

Several slots of a view have one base partition. Equal questions share one answer; different ones about the same base
partition go in successive requests, for brokers refuse a partition named twice (ListOffsets) or collapse it
(Fetch; views/README.md rule 21).
All go over the client's own connection, in the client's own version, and what the broker says of the base, errors and
missing rights included, is said of the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from proxy.brokers.interfaces import Connection
from proxy.forwarding.ask_and_reply import ask, told
from proxy.forwarding.interfaces import Call
from proxy.views.model.names import is_view
from proxy.views.services import ViewServices
from proxy.wire.errors import ErrorCode
from proxy.wire.messages import Message, RequestMessage

R = TypeVar("R", bound=Message)
"""The class of the answers."""
E = TypeVar("E")
"""The class of what they say of a partition."""


class _Throttles(Protocol):
    throttle_time_ms: int


class Question(NamedTuple):
    """About one partition of one topic upstream."""

    topic: str
    partition: int
    content: tuple[int, ...]
    """The fields of the request that ask about it."""


Place = tuple[str, int]

Asked = Question | ErrorCode
"""What is asked about a partition of a request, or why nothing is."""


async def make_ready(
    connection: Connection, views: ViewServices, topics: Mapping[str, Iterable[int]]
) -> dict[str, ErrorCode]:
    """Topic -> what stands in the way of a view among these topics (with the partitions that are asked about)."""
    missing = []
    for name, partitions in topics.items():
        view = views.catalog.named(name)
        if is_view(name) and (view is None or any(partition >= view.partitions for partition in partitions)):
            missing.append(name)
    found = await views.ensure(connection, missing) if missing else {}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {name: found.get(name) or unknown for name in missing if views.catalog.named(name) is None}


def upstream_place(views: ViewServices, topic: str, partition: int) -> Place | None:
    """The partition to ask about; None: the view has no such partition."""
    view = views.catalog.named(topic) if is_view(topic) else None
    if view is None:
        return topic, partition
    if not 0 <= partition < view.partitions:
        return None
    return view.name.base, view.place(partition)[0]


async def questions_about(
    connection: Connection, views: ViewServices, topics: Sequence[tuple[str, Sequence[tuple[int, tuple[int, ...]]]]]
) -> list[list[Asked]]:
    """For each topic of a request, and each of its partitions, what is to be asked.

    Args:
        connection: of the client.
        views: known, and made where the client may have them.
        topics: name of each topic, and of each of its partitions the number and what is asked (`Question.content`).
    """
    refused = await make_ready(connection, views, {name: [number for number, _ in asked] for name, asked in topics})

    def question(name: str, partition: int, content: tuple[int, ...]) -> Asked:
        place = upstream_place(views, name, partition)
        if place is None or name in refused:
            return refused.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Question(*place, content)

    return [[question(name, partition, content) for partition, content in asked] for name, asked in topics]


def in_rounds(questions: Iterable[Question]) -> list[dict[Place, Question]]:
    """As few requests as will do, each with every partition at most once."""
    rounds: list[dict[Place, Question]] = []
    for question in dict.fromkeys(questions):
        place = (question.topic, question.partition)
        fitting = next((asked for asked in rounds if place not in asked), None)
        if fitting is None:
            rounds.append({place: question})
        else:
            fitting[place] = question
    return rounds


async def ask_in_rounds(
    call: Call[Message],
    asked: Iterable[Iterable[Asked]],
    make: Callable[[Mapping[str, Sequence[Question]]], RequestMessage[R]],
    response: type[R],
) -> list[tuple[dict[Place, Question], R]]:
    """Ask all rounds at once, one behind the other; each with its decoded answer. `make` writes a request."""
    answers = []
    for chosen in in_rounds(each for topic in asked for each in topic if isinstance(each, Question)):
        by_topic: dict[str, list[Question]] = {}
        for question in chosen.values():
            by_topic.setdefault(question.topic, []).append(question)
        answers.append((chosen, ask(call.connection, call.key, call.version, make(by_topic))))
    return [(chosen, told(response, call.version, await answer)) for chosen, answer in answers]


def by_question(
    told: Iterable[tuple[dict[Place, Question], R]], entries: Callable[[R], Iterable[tuple[Place, E]]]
) -> dict[Question, E]:
    """What was answered to each question. `entries` lists what an answer says: of which place, and what."""
    return {chosen[place]: entry for chosen, answer in told for place, entry in entries(answer) if place in chosen}


def error_of(question: Asked) -> ErrorCode:
    """What a partition is told that no answer came for."""
    return question if isinstance(question, ErrorCode) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def throttle_ms(told: Iterable[tuple[dict[Place, Question], _Throttles]]) -> int:
    """The longest that any of the answers asks for."""
    return max((answer.throttle_time_ms for _, answer in told), default=0)
