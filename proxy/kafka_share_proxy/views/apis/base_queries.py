"""Requests about partitions of views, sent to the broker as requests about their base partitions (views/README.md rule
21).

What the broker returns for the base, including errors and missing rights, is returned for the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import (
    decode_response_in_slices,
    replied,
    send_request_in_slices,
)
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions.message_classes import copied
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode

R = TypeVar("R", bound=Message)
"""Class of the responses."""
E = TypeVar("E", bound=Message)
"""Class of the partition entries in responses."""


class Query(NamedTuple):
    """A query about one partition of one upstream topic."""

    topic: str
    partition: int
    content: tuple[int, ...]
    """Fields of the partition's request entry."""


PartitionKey = tuple[str, int]
"""Topic name and partition."""

QueryOrError = Query | ErrorCode
"""The query for a requested partition, or the error if it is not sent."""

Topics = Sequence[tuple[str, Sequence[tuple[int, tuple[int, ...]]]]]
"""Topic names, each with index and `Query.content` of its partitions."""

_topics = attrgetter("topics")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageShape(Generic[R, E]):
    """Classes and field names of one API's messages about partitions of topics."""

    request_topic: Callable[..., Message]
    request_partition: Callable[..., Message]
    response: type[R]
    response_topic: Callable[..., Message]
    response_partition: Callable[..., E]
    topic: str
    """Field with the name of a topic."""
    partition: str
    """Field with the index of a partition."""
    content: tuple[str, str]
    """Fields of a partition in a request that are its `Query.content`."""

    def queries(self, request: RequestMessage[R]) -> Topics:
        """Return what a request queries."""
        name, index, content = attrgetter(self.topic), attrgetter(self.partition), attrgetter(*self.content)
        topics = _topics(request)
        return [(name(topic), [(index(each), content(each)) for each in topic.partitions]) for topic in topics]

    def other_request(self, like: RequestMessage[R], by_topic: Mapping[str, Sequence[Query]]) -> RequestMessage[R]:
        """Build a request with other topics and partitions."""
        topics = [
            self.request_topic(**{self.topic: name, "partitions": [self._partition_entry(each) for each in queries]})
            for name, queries in by_topic.items()
        ]
        return copied(like, topics=topics)

    def _partition_entry(self, query: Query) -> Message:
        content = zip(self.content, query.content, strict=True)
        return self.request_partition(**{self.partition: query.partition}, **dict(content))

    def entries(self, response: R) -> Iterable[tuple[PartitionKey, E]]:
        """Return (topic-partition, entry) for each entry."""
        name, index = attrgetter(self.topic), attrgetter(self.partition)
        return (((name(topic), index(each)), each) for topic in _topics(response) for each in topic.partitions)

    def entry(self, partition: int, source: E | ErrorCode) -> E:
        """Build an entry: a copy of another partition's entry, or an error."""
        index = {self.partition: partition}
        if isinstance(source, ErrorCode):
            return self.response_partition(error_code=source, **index)
        return copied(source, **index)

    def topic_entry(self, name: str, entries: list[E]) -> Message:
        """Build the entry of a topic."""
        return self.response_topic(**{self.topic: name, "partitions": entries})


async def respond_from_bases(
    call: Call[RequestMessage[R]], views: ViewServices, shape: MessageShape[R, E]
) -> bytes | None:
    """Build a response about views from the broker's response about their bases.

    Args:
        call: the request, which names views.
        views: the services that look up and create views.
        shape: the structure of the API's messages.
    """
    topics = shape.queries(call.message)
    requested = await queries_about(call, views, topics)
    responses = await request_in_rounds(
        call, requested, lambda by_topic: shape.other_request(call.message, by_topic), shape.response
    )
    entry_of = await by_query(call.work, responses, shape.entries)

    def entry(requested_partition: tuple[tuple[int, object], QueryOrError]) -> E:
        (partition, _), query = requested_partition
        source = entry_of.get(query) if isinstance(query, Query) else query
        return shape.entry(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if source is None else source)

    entries = []
    for (name, partitions), queries in zip(topics, requested, strict=True):
        entries.append(shape.topic_entry(name, await call.work.map(entry, zip(partitions, queries, strict=True))))
        await call.work.step()
    throttle_ms = max((attrgetter("throttle_time_ms")(each) for _, each in responses), default=0)
    return await replied(call, copied(shape.response(), throttle_time_ms=throttle_ms, topics=entries))


READY_ATTEMPTS = 3
"""Maximum number of times that one request makes its views ready."""


async def make_ready(
    connection: Connection, views: ViewServices, topics: Mapping[str, Iterable[int]], work: Work = AT_ONCE
) -> dict[str, ErrorCode]:
    """Make the views among these topics ready for the named partitions. Return the errors by topic.

    The attempt is repeated if the catalog loses a view meanwhile, because its base was deleted and created again.
    """
    catalog, unavailable = views.catalog, dict[str, ErrorCode]()
    for _ in range(READY_ATTEMPTS):
        missing = []
        for name, partitions in topics.items():
            view = catalog.by_name(name)
            if is_view(name) and (view is None or any(partition >= view.partitions for partition in partitions)):
                missing.append(name)
            await work.step()
        if not missing:
            return {}
        errors = await views.creation.ensure(connection, missing, work)
        unavailable = {}
        for name in topics:
            if is_view(name) and catalog.by_name(name) is None:
                unavailable[name] = errors.get(name, ErrorCode.NONE)
            await work.step()
        if all(code != ErrorCode.NONE for code in unavailable.values()):
            break
    return {name: code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name, code in unavailable.items()}


def upstream_partition(views: ViewServices, topic: str, partition: int) -> PartitionKey | None:
    """Return the partition to query upstream. None if unknown: a query must not reach the view's own, empty topic."""
    if not is_view(topic):
        return topic, partition
    view = views.catalog.by_name(topic)
    if view is None or not 0 <= partition < view.partitions:
        return None
    return view.name.base, view.place(partition)[0]


async def queries_about(call: Call[Message], views: ViewServices, topics: Topics) -> list[list[QueryOrError]]:
    """Make the views ready. Return the query, or the error, for each requested partition by topic."""
    partitions = {name: [partition for partition, _ in requested] for name, requested in topics}
    refused = await make_ready(call.connection, views, partitions, call.work)

    def query(name: str, partition: int, content: tuple[int, ...]) -> QueryOrError:
        key = upstream_partition(views, name, partition)
        if key is None or name in refused:
            return refused.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Query(*key, content)

    all_queries = []
    for name, requested in topics:
        queries = []
        for partition, content in requested:
            queries.append(query(name, partition, content))
            await call.work.step()
        all_queries.append(queries)
        await call.work.step()
    return all_queries


def in_rounds(queries: Iterable[Query]) -> list[dict[PartitionKey, Query]]:
    """Distribute queries over few requests, each with every partition at most once."""
    rounds: list[dict[PartitionKey, Query]] = []
    next_round: dict[PartitionKey, int] = {}
    for query in dict.fromkeys(queries):
        key = (query.topic, query.partition)
        number = next_round.get(key, 0)
        next_round[key] = number + 1
        if number == len(rounds):
            rounds.append({})
        rounds[number][key] = query
    return rounds


async def request_in_rounds(
    call: Call[Message],
    requested: Iterable[Iterable[QueryOrError]],
    build_request: Callable[[Mapping[str, Sequence[Query]]], RequestMessage[R]],
    response: type[R],
) -> list[tuple[dict[PartitionKey, Query], R]]:
    """Send all requests without waiting in between, and return the queries of each with its response.

    `build_request` returns the request for queries by topic.
    """
    in_flight = []
    for chosen in in_rounds(each for topic in requested for each in topic if isinstance(each, Query)):
        by_topic: dict[str, list[Query]] = {}
        for query in chosen.values():
            by_topic.setdefault(query.topic, []).append(query)
            await call.work.step()
        request = build_request(by_topic)
        pending = await send_request_in_slices(call.work, call.connection, call.key, call.version, request)
        in_flight.append((chosen, pending))
    return [
        (chosen, await decode_response_in_slices(call.work, response, call.version, await pending))
        for chosen, pending in in_flight
    ]


async def by_query(
    work: Work,
    responses: Iterable[tuple[dict[PartitionKey, Query], R]],
    entries: Callable[[R], Iterable[tuple[PartitionKey, E]]],
) -> dict[Query, E]:
    """Return the response entry of each query. `entries` lists the topic-partitions and entries of a response."""
    entry_of = {}
    for chosen, response in responses:
        for key, entry in entries(response):
            if key in chosen:
                entry_of[chosen[key]] = entry
            await work.step()
    return entry_of
