"""Blocking client for cluster metadata: topics, leaders, offsets, and one connection to each leader."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from kafka_share_proxy.pipeline.kafka.connection import BlockingConnection
from kafka_share_proxy.pipeline.kafka.fetch_sizes import FetchSizes
from kafka_share_proxy.pipeline.source.options import SourceOptions
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import ZERO_UUID, Address, TopicPartition

T = TypeVar("T")

EARLIEST_TIMESTAMP, LATEST_TIMESTAMP = -2, -1
METADATA_VERSION_MAX, LIST_OFFSETS_VERSION_MAX, FIND_COORDINATOR_VERSION_MAX = 12, 7, 3
"""Highest version used of each request. Later versions of FindCoordinator have another layout."""
BACKOFF_S, BACKOFF_MAX_S = 0.1, 2.0
TOPIC_S = 10.0
"""Seconds that a missing topic has to appear: not every broker knows a new topic immediately."""
ATTEMPTS_MAX = 60
"""Maximum number of attempts of one call, which `timeoutMs` ends first as a rule."""

RETRIED = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID,
})  # fmt: skip
"""Codes that are retried: RetriableException of Kafka's clients 4.3."""


class Unavailable(ProxyError):
    """A request did not succeed within its timeout. The text names the last failure."""


class ReadRefused(ProxyError):
    """The cluster returned an error that a retry cannot change."""


class TopicReplaced(ProxyError):
    """The topic was deleted and created again after the read was planned."""


class TryAgain(Exception):
    """One attempt failed with an error that is worth a retry."""


class DescribedTopic(NamedTuple):
    """A topic as described by a Metadata response."""

    topic_id: bytes
    leaders: Mapping[int, int]


@dataclass
class Deadline:
    """Limit of the attempts of one call, by time and number. `restart` restarts both."""

    timeout_s: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _ends: float = field(init=False)
    _attempts: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._ends, self._attempts = self.now() + self.timeout_s, 0

    @property
    def is_over(self) -> bool:
        return self.now() >= self._ends

    def wait(self, reason: str) -> None:
        """Wait before the next attempt (exponential backoff). Raises Unavailable if no time or attempt is left."""
        self._attempts += 1
        pause = min(BACKOFF_S * 2 ** (self._attempts - 1), BACKOFF_MAX_S)
        if self._attempts >= ATTEMPTS_MAX or self.now() + pause >= self._ends:
            raise Unavailable(f"{reason} ({self._attempts} attempts, timeoutMs={self.timeout_s * 1000:.0f})")
        self.sleep(pause)


class BlockingClusterClient:
    """Cached metadata and open connections of one task or planner. Not thread-safe."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, DescribedTopic] = {}
        self._topics_of_last_task: dict[str, DescribedTopic] = {}
        """Topics of the previous task. Leaders are used while the topic id is the same."""
        self._connections: dict[Address, BlockingConnection] = {}
        self.fetch_sizes = FetchSizes()

    def __enter__(self) -> BlockingClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def end_task(self) -> None:
        """Prepare for the next task: keep known leaders, and close the connections with requests in flight."""
        self._topics_of_last_task |= self._topics
        self._topics.clear()
        for address in [
            address for address, connection in self._connections.items() if connection.has_requests_in_flight
        ]:
            self._connections.pop(address).close()

    def deadline(self) -> Deadline:
        return Deadline(self._options.timeout_s)

    def retry(self, attempt: Callable[[], T], deadline: Deadline | None = None) -> T:
        """Retry after TryAgain and UpstreamLost with new connections and metadata.

        Raises Unavailable at the deadline, and every other error of `attempt`.
        """
        until = deadline or self.deadline()
        while True:
            try:
                return attempt()
            except (TryAgain, UpstreamLost) as error:
                self.forget()
                until.wait(str(error))

    def forget(self) -> None:
        """Close the connections and clear the cache."""
        self.close()
        self._topics.clear()
        self._topics_of_last_task.clear()

    # Topics

    def topics(self, topics: Iterable[str]) -> dict[str, DescribedTopic]:
        """Look up topics. Raises ReadRefused, Unavailable."""
        names = list(dict.fromkeys(topics))
        deadline = Deadline(min(TOPIC_S, self._options.timeout_s))
        return self.retry(lambda: self._request_topics(names), deadline)

    def known_topics(self, topics: Iterable[str]) -> dict[str, DescribedTopic]:
        """Return topics, without a request if all are in the cache. Raises ReadRefused, Unavailable."""
        names = list(dict.fromkeys(topics))
        return {name: self._topics[name] for name in names} if self._topics.keys() >= set(names) else self.topics(names)

    def topic(self, name: str) -> DescribedTopic:
        """Return a topic from the cache, or with one Metadata request. Raises TryAgain, UpstreamLost, ReadRefused."""
        if name not in self._topics:
            self._request_topics([name])
        return self._topics[name]

    def _request_topics(self, names: list[str]) -> dict[str, DescribedTopic]:
        connection = self.any_connection()
        version = connection.version(ApiKey.METADATA, METADATA_VERSION_MAX)
        entries = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = messages.MetadataRequest(topics=entries, allow_auto_topic_creation=any(map(_is_view, names)))
        response = connection.send_request(ApiKey.METADATA, request, version)
        self._brokers = {each.node_id: Address(each.host, each.port) for each in response.brokers or ()}
        for topic in response.topics or ():
            check_code(topic.error_code, f"topic {topic.name}")
            leaders = {each.partition_index: each.leader_id for each in topic.partitions or ()}
            self._topics[topic.name or ""] = DescribedTopic(bytes(topic.topic_id), leaders)
        return {name: self._topics[name] for name in names}

    # Offsets

    def offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return the earliest or latest offsets. Under read_committed, the latest is the last stable offset.

        Raises ReadRefused, Unavailable.
        """
        distinct = list(dict.fromkeys(partitions))
        return self.retry(lambda: self._request_offsets(distinct, timestamp)) if distinct else {}

    def _request_offsets(self, distinct: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in distinct:
            by_leader[self._leader(partition)].append(partition)
        offsets = {}
        for node, partitions in by_leader.items():
            connection = self.connection(node)
            version = connection.version(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION_MAX)
            request = _list_offsets(partitions, timestamp, self._options.is_committed)
            for topic in connection.send_request(ApiKey.LIST_OFFSETS, request, version).topics:
                for entry in topic.partitions:
                    partition = TopicPartition(topic.name, entry.partition_index)
                    check_code(entry.error_code, f"offsets of {partition}")
                    offsets[partition] = entry.offset
        if offsets.keys() != set(distinct):
            raise TryAgain(f"offsets of {set(distinct) - offsets.keys()} are missing in the response")
        return offsets

    # Connections

    def _leader(self, partition: TopicPartition) -> int:
        leader = self.topic(partition.topic).leaders.get(partition.partition)
        if leader is None:
            raise ReadRefused(f"{partition} does not exist")
        if leader < 0:
            raise TryAgain(f"{partition} has no leader")
        return leader

    def leader(self, partition: TopicPartition, topic_id: bytes) -> BlockingConnection:
        """Return a connection to the leader of a partition, in one attempt.

        Raises TopicReplaced, and TryAgain, UpstreamLost or ReadRefused if the leader is unknown, unreachable or does
        not exist.
        """
        earlier = self._topics_of_last_task.get(partition.topic)
        if earlier is not None and earlier.topic_id == topic_id and earlier.leaders.get(partition.partition, -1) >= 0:
            return self.connection(earlier.leaders[partition.partition])
        node = self._leader(partition)
        known = self._topics[partition.topic].topic_id
        if topic_id not in (known, ZERO_UUID) and known != ZERO_UUID:
            raise TopicReplaced(
                f"topic {partition.topic} was deleted and created again since this read was planned: its id was "
                f"{topic_id_text(topic_id)}, and is {topic_id_text(known)} now"
            )
        return self.connection(node)

    def connection(self, node: int) -> BlockingConnection:
        """Return a connection to a node. Raises UpstreamLost, TryAgain."""
        return self._connection_to(self.address(node))

    def address(self, node: int) -> Address:
        """Return the address of a node. Raises TryAgain if no Metadata response has named it."""
        if node not in self._brokers:
            raise TryAgain(f"no Metadata response has named the address of node {node}")
        return self._brokers[node]

    def coordinator(self, group: str) -> BlockingConnection:
        """Return a connection to the coordinator of a group, in one attempt.

        Raises TryAgain, UpstreamLost, ReadRefused.
        """
        connection = self.any_connection()
        version = connection.version(ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION_MAX)
        response = connection.send_request(ApiKey.FIND_COORDINATOR, messages.FindCoordinatorRequest(key=group), version)
        check_code(response.error_code, f"coordinator of group {group}")
        return self._connection_to(Address(response.host, response.port))

    def any_connection(self) -> BlockingConnection:
        """Return a connection to any node, if possible an open one. Raises UpstreamLost."""
        troubles = []
        for address in dict.fromkeys((*self._connections, *self._options.bootstrap, *self._brokers.values())):
            try:
                return self._connection_to(address)
            except UpstreamLost as error:
                troubles.append(str(error))
        raise UpstreamLost("; ".join(troubles))

    def _connection_to(self, address: Address) -> BlockingConnection:
        if address not in self._connections:
            self._connections[address] = BlockingConnection(address, self._options.security, self._options.client_id)
        return self._connections[address]


def check_code(code: int, subject: str) -> None:
    """Raise TryAgain or ReadRefused unless the code is NONE."""
    if code in RETRIED:
        raise TryAgain(f"{subject}: {error_name(code)}")
    if code != ErrorCode.NONE:
        raise ReadRefused(f"{subject}: {error_name(code)}")


def _is_view(name: str) -> bool:
    return name.startswith("__view.")


def _list_offsets(partitions: list[TopicPartition], timestamp: int, is_committed: bool) -> messages.ListOffsetsRequest:
    request = messages.ListOffsetsRequest
    by_topic: dict[str, list[messages.ListOffsetsRequest.ListOffsetsPartition]] = defaultdict(list)
    for partition in partitions:
        entry = request.ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        by_topic[partition.topic].append(entry)
    topics = [request.ListOffsetsTopic(name=name, partitions=entries) for name, entries in by_topic.items()]
    return request(replica_id=-1, isolation_level=int(is_committed), topics=topics)
