"""Questions about partitions of views, put to the broker as questions about their base partitions.

Several slots of a view have one base partition. Equal questions share one answer; different ones about the same base
partition go in successive requests, for brokers refuse a partition named twice (ListOffsets) or collapse it
(Fetch; views/README.md rule 21).
All go over the client's own connection, in the client's own version, and what the broker says of the base, errors and
missing rights included, is said of the view.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

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
Q = TypeVar("Q", bound=Message)
"""The class of the requests."""


class Question(NamedTuple):
    """About one partition of one topic upstream."""

    topic: str
    partition: int
    content: tuple[int, ...]
    """The fields of the request that ask about it."""


Place = tuple[str, int]

Asked = Question | ErrorCode
"""What is asked about a partition of a request, or why nothing is."""


Topics = Sequence[tuple[str, Sequence[tuple[int, tuple[int, ...]]]]]
"""Name of each topic of a request, and of each of its partitions the number and `Question.content`."""


class Wording(ABC, Generic[Q, R, E]):
    """The fields in which one API asks about partitions of topics, and answers."""

    @abstractmethod
    def questions(self, request: Q) -> Topics:
        """What a client asks."""

    @abstractmethod
    def request(self, like: Q, by_topic: Mapping[str, Sequence[Question]]) -> RequestMessage[R]:
        """A request with other questions."""

    @abstractmethod
    def entries(self, answer: R) -> Iterable[tuple[Place, E]]:
        """What an answer says: of which place, and what."""

    @abstractmethod
    def entry(self, partition: int, source: E | ErrorCode) -> E:
        """What is said of a partition: as of another one, or why nothing is."""

    @abstractmethod
    def answer(self, throttle_ms: int, topics: Iterable[tuple[str, list[E]]]) -> R:
        """The whole answer, topic by topic."""


async def answer_from_bases(
    call: Call[Q], views: ViewServices, wording: Wording[Q, R, E], response: type[R], throttle: Callable[[R], int]
) -> R:
    """Return an answer about views that says what the broker says about their bases.

    Args:
        call: names views.
        views: known, and made where the client may have them.
        wording: of the API.
        response: the class of the answer.
        throttle: the throttle time of an answer.
    """
    topics = wording.questions(call.message)
    asked = await questions_about(call.connection, views, topics)
    told = await ask_in_rounds(call, asked, lambda by_topic: wording.request(call.message, by_topic), response)
    found = by_question(told, wording.entries)

    def entry(partition: int, question: Asked) -> E:
        source = found.get(question) if isinstance(question, Question) else question
        return wording.entry(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if source is None else source)

    said = [
        (name, [entry(partition, each) for (partition, _), each in zip(places, questions, strict=True)])
        for (name, places), questions in zip(topics, asked, strict=True)
    ]
    return wording.answer(max((throttle(answer) for _, answer in told), default=0), said)


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


async def questions_about(connection: Connection, views: ViewServices, topics: Topics) -> list[list[Asked]]:
    """For each topic of a request, and each of its partitions, what is to be asked over the client's connection."""
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
