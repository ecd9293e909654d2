"""Common parts of ShareFetch and ShareAcknowledge: partitions, rights, and leader hints in the response.

The order of the checks is that of KafkaApis.handleShareFetchRequest and handleShareAcknowledgeRequest
(sharegroups/README.md rule 13): group named, READ on the group, member id, then the session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import TypeAlias, TypeVar

from kafka_share_proxy.brokers.connection_slots import OptionalSlot
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.rights import Right, on_read_group, request_read_group, rights_of
from kafka_share_proxy.brokers.topic_leaders import (
    JudgedTopics,
    judge_described,
    judge_topics,
    on_many_topics,
    request_many_topics,
    topics_to_query,
)
from kafka_share_proxy.forwarding.rewriting.address_book import MakesEndpoint, node_endpoints
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.slices import AT_ONCE, Work
from kafka_share_proxy.sharegroups.model.acknowledging import AcknowledgementBatch
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.redelivery import NamedDelay, NamedDelays
from kafka_share_proxy.sharegroups.model.sessions import Session, SessionKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.codec.primitives import Tags
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode
from kafka_share_proxy.wire.redelivery_delay import APPLIED, delay_ms_in
from kafka_share_proxy.wire.values import UNKNOWN_NODE, TopicIdPartition

_Topic: TypeAlias = "messages.ShareFetchRequest.FetchTopic | messages.ShareAcknowledgeRequest.AcknowledgeTopic"
_Batch: TypeAlias = (
    "messages.ShareFetchRequest.AcknowledgementBatch | messages.ShareAcknowledgeRequest.AcknowledgementBatch"
)
E = TypeVar("E")


class AckBatches(list[AcknowledgementBatch]):
    """Acknowledgement batches of one partition, as in the request."""

    delays: NamedDelays = ()

    def add(self, batches: Iterable[_Batch]) -> None:
        """Append batches of a request."""
        for batch in batches:
            self.append((batch.first_offset, batch.last_offset, batch.acknowledge_types or ()))
            if batch.unknown_tags and (delay_ms := delay_ms_in(batch.unknown_tags)) is not None:
                self.delays = (*self.delays, NamedDelay(batch.first_offset, batch.last_offset, delay_ms / 1000))


MEMBER_ID_LENGTH_MAX = 36
"""Maximum length of a member id in characters: a UUID with hyphens."""

NO_HINT = (UNKNOWN_NODE, -1)
"""CurrentLeader without a hint. Never the schema's default 0/0, which clients take for a leader."""


async def partitions_in(
    topics: Iterable[_Topic] | None, work: Work = AT_ONCE
) -> tuple[list[TopicIdPartition], dict[TopicIdPartition, AckBatches]]:
    """Return the partitions of a request in order, each once, and their acknowledgement batches.

    librdkafka may list a topic or partition twice, for fetching and for acknowledging. The batches are joined.
    """
    partitions: dict[TopicIdPartition, None] = {}
    batches: dict[TopicIdPartition, AckBatches] = {}
    for topic in topics or ():
        for entry in topic.partitions or ():
            partition = TopicIdPartition(topic.topic_id, entry.partition_index)
            partitions[partition] = None
            if entry.acknowledgement_batches:
                batches.setdefault(partition, AckBatches()).add(entry.acknowledgement_batches)
            await work.step()
    return list(partitions), batches


def delay_tags(batches: Mapping[TopicIdPartition, AckBatches], partition: TopicIdPartition, code: ErrorCode) -> Tags:
    """Return the tagged fields of a partition in the response: they confirm named delays, where there are any."""
    return APPLIED if code == NO_ERROR and batches[partition].delays else ()


def member_id_mistake(member_id: str | None) -> str | None:
    """Return the error text (INVALID_REQUEST) for an invalid member id. None if it is valid."""
    if not member_id:
        return "MemberId can't be empty."
    if len(member_id) > MEMBER_ID_LENGTH_MAX:
        return f"MemberId can't be longer than {MEMBER_ID_LENGTH_MAX} characters."
    return None


async def without_outcome(
    topics: Iterable[_Topic] | None, entry: Callable[[int], object], topic: Callable[..., E], work: Work
) -> list[E]:
    """Return the topics of a response to acknowledgements whose outcome is unknown (sharegroups/README.md rule 72).

    `entry` makes one from the partition number, `topic` one from its id and partitions.
    """
    _, batches = await partitions_in(topics, work)
    entries: dict[bytes, list[object]] = {}
    for partition in batches:
        entries.setdefault(partition.topic_id, []).append(entry(partition.partition))
        await work.step()
    return [topic(topic_id=topic_id, partitions=each) for topic_id, each in entries.items()]


async def request_access(
    call: Call[Message],
    services: ShareServices,
    group_id: str,
    partitions: Collection[TopicIdPartition],
    acknowledged: Container[TopicIdPartition] = (),
) -> tuple[ErrorCode, JudgedTopics]:
    """Return the error that refuses READ on the group, or NONE, and the rights and leaders of all topics.

    Unknown or outdated topics are looked up in the same round trip.
    """
    connection, now, cache_s = call.connection, services.timers.now(), services.options.rights_cache_s
    code = rights_of(connection).group_code(Right.READ_GROUP, group_id, now, cache_s)
    topic_ids = {partition.topic_id for partition in partitions}
    if code is not None and (described := judge_described(connection, services, topic_ids)) is not None:
        return code, described
    group = request_read_group(connection, group_id) if code is None else None
    topics = request_many_topics(connection, *topics_to_query(connection, services, partitions, acknowledged))
    await on_many_topics(connection, services, topics, call.work)
    if group is not None:
        code = on_read_group(connection, group_id, await group, now)
    judged = judge_topics(connection, services, topic_ids)
    return ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code, judged


async def refresh(connection: Connection, services: ShareServices, partitions: Iterable[TopicIdPartition]) -> None:
    """Refresh the topics of these partitions, unless that was done just now."""
    names, ids = topics_to_query(connection, services, partitions)
    await on_many_topics(connection, services, request_many_topics(connection, names, ids))


def follow_leader(services: ShareServices, key: ShareKey) -> None:
    """Release a share partition's locks if the view has another leader than the one they were granted at."""
    leader = services.topology.leader(key.topic_id, key.partition)
    if leader is None or leader.node_id == UNKNOWN_NODE:
        return
    change = services.coordinator.move_leader(key, leader.node_id)
    if change is not None:
        services.reads.cache.drop_partition(key.topic_id, key.partition)
        services.writes.write([change])


def end_session(services: ShareServices, key: SessionKey) -> None:
    """Remove a session and release what its member holds at that node, without waiting for the write."""
    session = services.coordinator.sessions.end(key)
    if session is not None:
        release(services, [session])


def release(services: ShareServices, sessions: Iterable[Session]) -> None:
    """Release the locks of sessions that have ended."""
    for session in sessions:
        services.writes.write(services.coordinator.release(session))


_ENDS_SESSIONS = OptionalSlot[Callable[[], None]]()
"""Callback that ends the share sessions of a connection when it closes."""


def end_with_connection(connection: Connection, services: ShareServices) -> None:
    """End the connection's sessions and reservations when it closes. Registered once per connection."""
    if _ENDS_SESSIONS.of(connection) is not None:
        return
    connection_id = connection.id

    def closed() -> None:
        release(services, services.coordinator.sessions.end_connection(connection_id))
        services.reads.end_connection(connection_id)

    _ENDS_SESSIONS.put(connection, closed)
    connection.on_close(closed)


def let_move(connection: Connection, services: ShareServices) -> None:
    """Let the connection move to another worker, unless sessions of groups that are served here belong to it."""
    closed = _ENDS_SESSIONS.of(connection)
    if closed is not None and not services.coordinator.sessions.has_connection(connection.id):
        _ENDS_SESSIONS.forget(connection)
        connection.not_on_close(closed)
        services.reads.end_connection(connection.id)


def leader_hint(services: ShareServices, partition: TopicIdPartition, code: ErrorCode) -> tuple[int, int]:
    """Return (node id, leader epoch) for CurrentLeader. It contains a leader only if the error is that it moved."""
    if code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return NO_HINT
    leader = services.topology.leader(partition.topic_id, partition.partition)
    return NO_HINT if leader is None or leader.node_id == UNKNOWN_NODE else (leader.node_id, leader.epoch)


def hint_endpoints(services: ShareServices, entry: MakesEndpoint[E], hints: Iterable[tuple[int, int]]) -> list[E]:
    nodes = (node_id for node_id, _ in hints if node_id != UNKNOWN_NODE)
    return node_endpoints(services.book, services.topology, entry, nodes)
