"""Topics, leaders and topic rights, refreshed over the requesting client's own connection."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata, Topic
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.operations import DESCRIBE_BIT, READ_BIT
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.brokers.rights import Right, absent_topics_of, rights_of
from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.wire.acl_operations import NO_BITS
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE, TopicIdPartition

METADATA_VERSION = 12
"""Lowest version of Metadata with topic ids."""

RIGHTS_GRACE_S = 5.0
"""Seconds that a cached right stays valid after its refresh is due (`TopicQueryOptions.rights_cache_s`), so that it
cannot expire between the check and its use. A waiting ShareFetch rechecks every half of this.
"""

_BITS_WITH = frozenset(
    {
        NO_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Errors returned with the rights, only to principals with DESCRIBE (3.9.1, 4.3.0)."""

ABSENT_MAX = 1000
_NEVER_ABSENT = (-inf, 0)
"""Time and error code for a topic that the broker has not hidden."""
TOPIC_LENGTH_MAX = 249
"""Maximum length of a topic name (org.apache.kafka.common.internals.Topic)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueryOptions:
    """Lifetimes of cached results, in seconds."""

    rights_cache_s: float = 15.0
    metadata_age_s: float = 1.0
    """Maximum age of metadata for an "unknown" or "not the leader" error."""


class TopicQuery(Protocol):
    """Dependencies of queries for topics (a part of `forwarding.served.services.Services`)."""

    @property
    def timers(self) -> Timers: ...

    @property
    def topology(self) -> ClusterMetadata: ...

    @property
    def options(self) -> TopicQueryOptions: ...


def request_topics(connection: Connection, names: Iterable[str] = (), ids: Iterable[bytes] = ()) -> Promise[memoryview]:
    """Request Metadata for these topics, with the principal's rights."""
    request = about_topics(names, ids, operations=True)
    return connection.send_request(
        ApiKey.METADATA, METADATA_VERSION, registry.request(ApiKey.METADATA, METADATA_VERSION).encode(request)
    )


def on_topics(connection: Connection, services: TopicQuery, response: memoryview) -> messages.MetadataResponse:
    """Fold the response and the rights in it, and return it decoded."""
    now = services.timers.now()
    metadata: messages.MetadataResponse = registry.codec_of(messages.MetadataResponse, METADATA_VERSION).decode(
        response
    )
    for topic in metadata.topics:
        _remember(connection, topic, now)
    services.topology.fold(metadata, now)
    return metadata


def _remember(connection: Connection, topic: messages.MetadataResponse.MetadataResponseTopic, now: float) -> None:
    rights, absent = rights_of(connection), absent_topics_of(connection)
    if topic.error_code not in (NO_ERROR, ErrorCode.LEADER_NOT_AVAILABLE):
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


def request_many_topics(
    connection: Connection, names: Collection[str], ids: Collection[bytes] = ()
) -> list[Promise[memoryview]]:
    """Send several requests together. See `request_topics`."""
    requested = [*((name, None) for name in names), *((None, topic_id) for topic_id in ids)]
    parts = [requested[start : start + TOPICS_AT_ONCE] for start in range(0, len(requested), TOPICS_AT_ONCE)]
    return [
        request_topics(
            connection, [name for name, _ in part if name is not None], [i for _, i in part if i is not None]
        )
        for part in parts
    ]


async def on_many_topics(
    connection: Connection, services: TopicQuery, responses: Iterable[Promise[memoryview]], work: Work = AT_ONCE
) -> list[messages.MetadataResponse.MetadataResponseTopic]:
    topics = []
    for response in responses:
        topics += on_topics(connection, services, await response).topics
        await work.pause()
    return topics


def names_to_query(connection: Connection, services: TopicQuery, names: Iterable[str], right: Right) -> list[str]:
    """Return the topics whose metadata is old, or for which the right is not known."""
    now, options, view = services.timers.now(), services.options, services.topology
    rights = rights_of(connection)
    queried = []
    for name in names:
        known = rights.verdict(right, name, now, options.rights_cache_s) is not None
        old = view.age(name, now) > options.metadata_age_s
        if (old or not known) and not _just_absent(connection, services, name):
            queried.append(name)
    return queried


def topics_to_query(
    connection: Connection,
    services: TopicQuery,
    partitions: Iterable[TopicIdPartition],
    settled: Container[TopicIdPartition] = (),
) -> tuple[set[str], set[bytes]]:
    """Return the names and ids that are due and could change the verdict of `judge`.

    `settled`: partitions that will not be read from the broker, so that no Fetch would notice a deleted topic.
    """
    names: set[str] = set()
    ids: set[bytes] = set()
    judged: dict[bytes, _Known] = {}
    for partition in partitions:
        known = judged.get(partition.topic_id)
        if known is None:
            known = judged[partition.topic_id] = _known(connection, services, partition.topic_id)
        if known.topic is None:
            if known.is_due:
                ids.add(partition.topic_id)
            continue
        may_have_changed = known.is_old and (
            partition in settled or judge_partition(known.topic, partition.partition, connection.node_id) != NO_ERROR
        )
        if known.is_due or may_have_changed:
            names.add(known.topic.name)
    return names, ids


class _Known(NamedTuple):
    """Knowledge about a topic on one connection."""

    topic: Topic | None
    is_due: bool
    """True if the topic must be requested."""
    is_old: bool
    """True if the topic should be requested when its leader matters."""


def _known(connection: Connection, services: TopicQuery, topic_id: bytes) -> _Known:
    now, options, view = services.timers.now(), services.options, services.topology
    topic = view.topic_by_id(topic_id)
    if topic is None:
        return _Known(None, is_due=not _just_absent(connection, services, topic_id), is_old=True)
    if _just_absent(connection, services, topic.name):
        return _Known(topic, is_due=False, is_old=False)
    is_due = verdict(connection, services, Right.READ_TOPIC, topic.name) is None or view.is_stale(topic.name)
    return _Known(topic, is_due, is_old=view.age(topic.name, now) > options.metadata_age_s)


JudgedTopics = dict[bytes, tuple[Topic | None, ErrorCode]]
"""Topic, if it is known, and NONE or the error that keeps a connection from reading it, by topic id."""


def judge_described(connection: Connection, services: TopicQuery, topic_ids: Iterable[bytes]) -> JudgedTopics | None:
    """Return rights and leaders of topics that were all described just now, so that `topics_to_query` returns none.

    None if one of them was not, or if a right has to be requested.
    """
    now, options = services.timers.now(), services.options
    rights, absent, since = rights_of(connection), absent_topics_of(connection), now - options.metadata_age_s
    judged: JudgedTopics = {}
    for topic_id in topic_ids:
        topic = services.topology.topic_by_id_since(topic_id, since)
        if topic is None or absent.get(topic.name, _NEVER_ABSENT)[0] >= since:
            return None
        is_allowed = rights.verdict(Right.READ_TOPIC, topic.name, now, options.rights_cache_s)
        if is_allowed is None:
            return None
        judged[topic_id] = topic, NO_ERROR if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return judged


def judge_topics(connection: Connection, services: TopicQuery, topic_ids: Iterable[bytes]) -> JudgedTopics:
    return {topic_id: judge_topic(connection, services, topic_id) for topic_id in topic_ids}


def judge(connection: Connection, services: TopicQuery, partition: TopicIdPartition) -> ErrorCode:
    """Return NONE if this connection may read the partition here (sharegroups/README.md rule 22)."""
    topic, code = judge_topic(connection, services, partition.topic_id)
    if topic is None or code != NO_ERROR:
        return code
    return judge_partition(topic, partition.partition, connection.node_id)


def judge_topic(connection: Connection, services: TopicQuery, topic_id: bytes) -> tuple[Topic | None, ErrorCode]:
    topic = services.topology.topic_by_id(topic_id)
    if topic is None:
        return None, trouble_with(connection, services, topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    allowed = verdict(connection, services, Right.READ_TOPIC, topic.name, RIGHTS_GRACE_S)
    if allowed is None:  # another connection sees the topic, this one's broker did not show it
        return topic, trouble_with(connection, services, topic.name) or ErrorCode.UNKNOWN_TOPIC_ID
    return topic, NO_ERROR if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def trouble_with(connection: Connection, services: TopicQuery, topic: str | bytes) -> ErrorCode:
    """Return the error with which the broker hid a topic, such as 29 or -1. NONE if it is just unknown."""
    code = _recent_error(connection, services, topic)
    return NO_ERROR if code is None or code in _BITS_WITH or code == ErrorCode.UNKNOWN_TOPIC_ID else code


def describe_refusal(connection: Connection, services: TopicQuery, name: str) -> ErrorCode:
    """Return the error that refuses DESCRIBE on a topic that was just requested, or NONE."""
    allowed = verdict(connection, services, Right.DESCRIBE_TOPIC, name, RIGHTS_GRACE_S)
    if allowed is not None:
        return NO_ERROR if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    code = _recent_error(connection, services, name)
    if code is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return NO_ERROR if code in _BITS_WITH else code


def _recent_error(connection: Connection, services: TopicQuery, topic: str | bytes) -> ErrorCode | None:
    """Return the error of the last response about an absent topic, or None if that response is too old."""
    requested_at, code = absent_topics_of(connection).get(topic, _NEVER_ABSENT)
    believed = services.timers.now() - requested_at <= services.options.rights_cache_s + RIGHTS_GRACE_S
    return ErrorCode.of(code) if believed else None


def judge_partition(topic: Topic, partition: int, node_id: int) -> ErrorCode:
    return (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not 0 <= partition < len(topic.leaders)
        else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if node_id == UNKNOWN_NODE or topic.leaders[partition].node_id != node_id
        else NO_ERROR
    )


def verdict(connection: Connection, services: TopicQuery, right: Right, name: str, grace_s: float = 0.0) -> bool | None:
    """True if allowed, False if refused, None if unknown. `grace_s`: added to the lifetime."""
    return rights_of(connection).verdict(right, name, services.timers.now(), services.options.rights_cache_s + grace_s)


def _just_absent(connection: Connection, services: TopicQuery, topic: str | bytes) -> bool:
    requested_at, _ = absent_topics_of(connection).get(topic, _NEVER_ABSENT)
    return services.timers.now() - requested_at <= services.options.metadata_age_s
