"""Topics, leaders and topic rights, refreshed over the asking client's own connection.

A client is told "unknown topic" or "not the leader" only by a view that is fresh (`AskingOptions.view_age_s`); an older
one is asked again first, on that client's connection and therefore with its rights. That age is also what bounds the
rate: however many clients ask, a topic is looked up once per that time, and what does not exist is remembered per
connection for as long.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from proxy.brokers.cluster_view import ClusterView, Topic
from proxy.brokers.interfaces import Connection
from proxy.brokers.questions import about_topics
from proxy.brokers.rights import DESCRIBE_BIT, NO_BITS, READ_BIT, Right, absent_topics_of, rights_of
from proxy.loop.interfaces import Timers
from proxy.loop.promise import Promise
from proxy.loop.slices import AT_ONCE, Work
from proxy.wire import messages, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import UNKNOWN_NODE, TopicIdPartition

METADATA_VERSION = 12
"""v12 is the lowest that takes topic ids, and every supported broker has it."""

RIGHTS_GRACE_S = 5.0
"""A right is asked for when it is as old as `AskingOptions.rights_cache_s`, and believed for so much longer: it must
not grow too old between the question and its use, and a ShareFetch that waits looks again every half of this."""

_BITS_WITH = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Codes of a topic that a broker gives only to those who may DESCRIBE it, with the rights on it (3.9.1, 4.3.0)."""

ABSENT_MAX = 1000
"""Absent topics remembered per connection; past it all are forgotten. Names longer than a topic's are none of them."""
TOPIC_LENGTH_MAX = 249
"""Characters in the name of a topic (org.apache.kafka.common.internals.Topic)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingOptions:
    """How long what a broker said is believed."""

    rights_cache_s: float = 15.0
    """A right that the broker granted or refused on a connection (brokers/README.md rule 15)."""
    view_age_s: float = 1.0
    """Metadata of a topic; older than this it is asked again before a client is told "unknown" or "not the leader"."""


class Asking(Protocol):
    """What these questions are asked with: a part of `forwarding.services.Services`."""

    @property
    def timers(self) -> Timers:
        """The clock by which answers grow old."""

    @property
    def topology(self) -> ClusterView:
        """Where answers are kept."""

    @property
    def options(self) -> AskingOptions:
        """How long they are believed."""


def ask_topics(connection: Connection, names: Iterable[str] = (), ids: Iterable[bytes] = ()) -> Promise[memoryview]:
    """Send Metadata for these topics, with the principal's rights on them; `tell_topics` understands the answer."""
    request = about_topics(names, ids, operations=True)
    return connection.ask(
        ApiKey.METADATA, METADATA_VERSION, registry.request(ApiKey.METADATA, METADATA_VERSION).encode(request)
    )


def tell_topics(connection: Connection, services: Asking, answer: memoryview) -> None:
    """Fold the answer into the view, and remember the rights it tells."""
    now = services.timers.now()
    metadata = registry.codec_of(messages.MetadataResponse, METADATA_VERSION).decode(answer)
    services.topology.fold(metadata, now)
    for topic in metadata.topics:
        _remember(connection, topic, now)


def _remember(connection: Connection, topic: messages.MetadataResponse.MetadataResponseTopic, now: float) -> None:
    rights, absent = rights_of(connection), absent_topics_of(connection)
    if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        if len(absent) >= ABSENT_MAX:
            absent.clear()
        if len(topic.name or "") <= TOPIC_LENGTH_MAX:
            absent[topic.name or topic.topic_id] = (now, topic.error_code)
    if not topic.name:
        return
    if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        rights.remember(Right.READ_TOPIC, topic.name, False, now)
        rights.remember(Right.DESCRIBE_TOPIC, topic.name, False, now)
        return
    bits = topic.topic_authorized_operations
    if bits != NO_BITS and topic.error_code in _BITS_WITH:
        rights.remember(Right.READ_TOPIC, topic.name, bool(bits & READ_BIT), now)
        rights.remember(Right.DESCRIBE_TOPIC, topic.name, bool(bits & DESCRIBE_BIT), now)


TOPICS_AT_ONCE = 500
"""Topics that are asked about in one request."""


def ask_many_topics(
    connection: Connection, names: Collection[str], ids: Collection[bytes] = ()
) -> list[Promise[memoryview]]:
    """As `ask_topics`, for any number: in as many requests as it takes, sent together."""
    wanted = [*((name, None) for name in names), *((None, topic_id) for topic_id in ids)]
    parts = [wanted[start : start + TOPICS_AT_ONCE] for start in range(0, len(wanted), TOPICS_AT_ONCE)]
    return [
        ask_topics(connection, [name for name, _ in part if name is not None], [i for _, i in part if i is not None])
        for part in parts
    ]


async def tell_many_topics(
    connection: Connection, services: Asking, answers: Iterable[Promise[memoryview]], work: Work = AT_ONCE
) -> None:
    """`tell_topics` for the answers to `ask_many_topics`."""
    for answer in answers:
        tell_topics(connection, services, await answer)
        await work.pause()


def names_to_ask(connection: Connection, services: Asking, names: Iterable[str], right: Right) -> list[str]:
    """Of these topics the ones whose entry is old, or on which this connection's right is not known."""
    now, options, view = services.timers.now(), services.options, services.topology
    rights = rights_of(connection)
    asked = []
    for name in names:
        known = rights.verdict(right, name, now, options.rights_cache_s) is not None
        old = view.age(name, now) > options.view_age_s
        if (old or not known) and not _just_absent(connection, services, name):
            asked.append(name)
    return asked


def topics_to_ask(
    connection: Connection,
    services: Asking,
    places: Iterable[TopicIdPartition],
    settled: Container[TopicIdPartition] = (),
) -> tuple[set[str], set[bytes]]:
    """Names and ids whose answer could change what `judge` says of these partitions, and that are due.

    `settled`: partitions that are not going to be read from the broker, so that nobody else would notice that their
    topic is gone.
    """
    names: set[str] = set()
    ids: set[bytes] = set()
    judged: dict[bytes, _Known] = {}
    for place in places:
        known = judged.get(place.topic_id)
        if known is None:
            known = judged[place.topic_id] = _known(connection, services, place.topic_id)
        if known.topic is None:
            if known.is_due:
                ids.add(place.topic_id)
            continue
        doubtful = place in settled or not _leads(known.topic, place.partition, connection.node_id)
        if known.is_due or (known.is_old and doubtful):
            names.add(known.topic.name)
    return names, ids


class _Known(NamedTuple):
    """What is known of a topic, on one connection."""

    topic: Topic | None
    is_due: bool
    """To be asked for in any case."""
    is_old: bool
    """To be asked for if that matters."""


def _known(connection: Connection, services: Asking, topic_id: bytes) -> _Known:
    now, options, view = services.timers.now(), services.options, services.topology
    topic = view.topic_by_id(topic_id)
    if topic is None:
        return _Known(None, is_due=not _just_absent(connection, services, topic_id), is_old=True)
    if _just_absent(connection, services, topic.name):
        return _Known(topic, is_due=False, is_old=False)
    is_due = verdict(connection, services, Right.READ_TOPIC, topic.name) is None or view.is_stale(topic.name)
    return _Known(topic, is_due, is_old=view.age(topic.name, now) > options.view_age_s)


def judge(connection: Connection, services: Asking, place: TopicIdPartition) -> ErrorCode:
    """Whether this connection may work on the partition here, by the view (sharegroups/README.md rule 22)."""
    topic, code = judge_topic(connection, services, place.topic_id)
    if topic is None or code != ErrorCode.NONE:
        return code
    return judge_partition(topic, place.partition, connection.node_id)


def judge_topic(connection: Connection, services: Asking, topic_id: bytes) -> tuple[Topic | None, ErrorCode]:
    """The topic, and whether this connection may read it."""
    topic = services.topology.topic_by_id(topic_id)
    if topic is None:
        return None, trouble_with(connection, services, topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    allowed = verdict(connection, services, Right.READ_TOPIC, topic.name, RIGHTS_GRACE_S)
    if allowed is None:  # another connection sees the topic, this one's broker did not show it
        return topic, trouble_with(connection, services, topic.name) or ErrorCode.UNKNOWN_TOPIC_ID
    return topic, ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def trouble_with(connection: Connection, services: Asking, topic: str | bytes) -> ErrorCode:
    """Why this connection's broker did not show a topic (name or id), where that is not that it knows none: 29, -1."""
    code = _told_of(connection, services, topic)
    return ErrorCode.NONE if code is None or code in _BITS_WITH or code == ErrorCode.UNKNOWN_TOPIC_ID else code


def describe_refusal(connection: Connection, services: Asking, name: str) -> ErrorCode:
    """What refuses DESCRIBE on a topic that was just asked about, or NONE: also where there is no such topic."""
    allowed = verdict(connection, services, Right.DESCRIBE_TOPIC, name, RIGHTS_GRACE_S)
    if allowed is not None:
        return ErrorCode.NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    code = _told_of(connection, services, name)
    if code is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE if code in _BITS_WITH else code


def _told_of(connection: Connection, services: Asking, topic: str | bytes) -> ErrorCode | None:
    """The code with which the broker did not show the topic; None where it said nothing, or too long ago."""
    asked_at, code = absent_topics_of(connection).get(topic, (-inf, 0))
    believed = services.timers.now() - asked_at <= services.options.rights_cache_s + RIGHTS_GRACE_S
    return ErrorCode.of(code) if believed else None


def judge_partition(topic: Topic, partition: int, node_id: int) -> ErrorCode:
    """Whether this node leads that partition of the topic."""
    if not 0 <= partition < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if _leads(topic, partition, node_id) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def verdict(connection: Connection, services: Asking, right: Right, name: str, grace_s: float = 0.0) -> bool | None:
    """Allowed, refused, or not known (for so long, and `grace_s` more)."""
    return rights_of(connection).verdict(right, name, services.timers.now(), services.options.rights_cache_s + grace_s)


def _just_absent(connection: Connection, services: Asking, topic: str | bytes) -> bool:
    """This connection's broker has just said that it does not have it, or does not show it."""
    asked_at, _ = absent_topics_of(connection).get(topic, (-inf, 0))
    return services.timers.now() - asked_at <= services.options.view_age_s


def _leads(topic: Topic, partition: int, node_id: int) -> bool:
    if node_id == UNKNOWN_NODE or not 0 <= partition < topic.partitions:
        return False
    return node_id == topic.leaders[partition].node_id
