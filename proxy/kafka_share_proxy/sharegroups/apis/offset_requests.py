"""Common parts of the three share group offset APIs (90-92): topics by name, log ends, changes of state.

Only the leader knows the end of a log. A client sends offset requests on its connection to the group's coordinator,
which leads a part of the partitions. The proxy queries the other leaders under its own identity, after checking the
client's right to DESCRIBE the topic on the client's connection. If the proxy has no identity that the brokers accept,
those partitions carry an error, as on a broker that cannot reach the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.brokers.rights import Right
from kafka_share_proxy.brokers.topic_leaders import (
    names_to_query,
    on_many_topics,
    request_many_topics,
    trouble_with,
    verdict,
)
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import first_until
from kafka_share_proxy.sharegroups.fetch.start_offsets import (
    Offsets,
    offsets_from_response,
    offsets_request,
    on_offsets,
    request_offsets,
)
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.settings import LATEST_TIMESTAMP
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_writes import Outcome
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import UNKNOWN_NODE, ZERO_UUID, TopicIdPartition

STARTING_WAIT_S = 5.0
"""Maximum seconds that a change waits for a member that is looking up the start offset of the same share partition."""


async def load_topics(
    call: Call[Message], services: ShareServices, names: Iterable[str], right: Right, ids: Iterable[bytes] = ()
) -> None:
    """Look up these topics and the client's right on them, as far as they are unknown or outdated."""
    connection = call.connection
    unknown = names_to_query(connection, services, dict.fromkeys(names), right)
    await on_many_topics(connection, services, request_many_topics(connection, unknown, list(ids)), call.work)


def topic_of(connection: Connection, services: ShareServices, name: str, right: Right) -> Topic | ErrorCode:
    """Return the topic, or the error that hides it: 29, 3 or the broker's. Call `load_topics` first."""
    allowed = verdict(connection, services, right, name)
    if allowed is False:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = services.topology.topic(name)
    if topic is None or not allowed or topic.topic_id == ZERO_UUID:
        return trouble_with(connection, services, name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic


async def log_ends(connection: Connection, services: ShareServices, partitions: Sequence[tuple[Topic, int]]) -> Offsets:
    """Return the ends of the logs as the leaders report them. All leaders are queried concurrently."""
    by_node: dict[int, list[tuple[Topic, int]]] = {}
    for topic, partition in partitions:
        by_node.setdefault(topic.leaders[partition].node_id, []).append((topic, partition))
    queries = [(part, _Query(connection, services, node_id, part)) for node_id, part in by_node.items()]
    ends: Offsets = {}
    for part, query in queries:
        responded = await query.response()
        for topic, partition in part:
            topic_partition = TopicIdPartition(topic.topic_id, partition)
            ends[topic_partition] = responded.get(topic_partition, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1))
    return ends


class _Query:
    """ListOffsets to one leader, sent by the constructor."""

    def __init__(
        self, connection: Connection, services: ShareServices, node_id: int, partitions: Sequence[tuple[Topic, int]]
    ) -> None:
        self._services = services
        self._partitions = partitions
        self._own_result: Promise[memoryview] | None = None
        self._elsewhere: Promise[messages.ListOffsetsResponse] | None = None
        if node_id == UNKNOWN_NODE:
            return
        if node_id == connection.node_id:
            self._own_result = request_offsets(connection, services, partitions, LATEST_TIMESTAMP)
        elif services.own is not None:
            request = offsets_request(partitions, LATEST_TIMESTAMP)
            self._elsewhere = services.own.send_request(node_id, ApiKey.LIST_OFFSETS, request)

    async def response(self) -> Offsets:
        topics = {topic.name: topic for topic, _ in self._partitions}
        if self._own_result is not None:
            return on_offsets(self._services, topics, await self._own_result)
        if self._elsewhere is None:
            return self._all(ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            return offsets_from_response(self._services, topics, await self._elsewhere)
        except ProxyError as error:
            self._services.notes("log-end-not-known", reason=str(error))
            return self._all(ErrorCode.NETWORK_EXCEPTION)

    def _all(self, code: ErrorCode) -> Offsets:
        return {TopicIdPartition(topic.topic_id, partition): (code, -1) for topic, partition in self._partitions}


def shares_of(services: ShareServices, group_id: str, topic_id: bytes | None = None) -> list[ShareKey]:
    """Return the share partitions of a group that have state, of all topics or of one, sorted."""
    return sorted(key for key in services.coordinator.keys_of(group_id) if topic_id is None or key.topic_id == topic_id)


async def not_starting(services: ShareServices, keys: Sequence[ShareKey]) -> bool:
    """Wait until no request looks up the start offsets of these share partitions. Return False on timeout."""
    reads, deadline = services.reads, services.timers.now() + STARTING_WAIT_S
    while busy := [key for key in keys if key in reads.starting]:
        if services.timers.now() >= deadline:
            return False
        waiter = reads.wait(busy[:1])
        try:
            await first_until(services.timers, deadline, waiter.woken)
        finally:
            reads.stop_waiting(waiter)
    return True


def begin_at(services: ShareServices, key: ShareKey, offset: int) -> Promise[Outcome]:
    """Replace the state of a share partition: it begins at this offset, without deliveries.

    Until the new state is durable, no other request can start it. The caller has waited for `not_starting`.
    """
    share = services.coordinator.share(key)
    epoch = 0 if share is None else share.partition.state_epoch + 1
    leader = services.topology.leader(key.topic_id, key.partition)
    node_id = UNKNOWN_NODE if leader is None else leader.node_id
    services.reads.starting.add(key)
    written = services.writes.create(key, services.coordinator.new_partition(key, offset, epoch), node_id)

    def wake() -> None:
        services.reads.starting.discard(key)
        services.reads.wake(key)

    written.on_settled(wake)
    return written
