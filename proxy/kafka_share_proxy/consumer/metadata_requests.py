"""Cluster metadata: nodes, topics, leaders and their epochs (Metadata.java, KIP-320, KIP-899, KIP-1102)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.client_options import ClientOptions
from kafka_share_proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.requests import DueRequests, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.consumer.troubles import TroubleKind, Troubles
from kafka_share_proxy.wire import slot_weights
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

VERSIONS = (12, 13)
NO_LEADER = -1
NO_EPOCH = -1

ABSENT_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
TRANSIENT_CODES = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})

UNKNOWN_TOPIC_ADVICE = "Check its name, whether it is in this cluster, and whether this principal may see it (DESCRIBE)"


class NodeAddress(NamedTuple):
    """Address of a broker's listener."""

    host: str
    port: int
    rack: str | None = None


class LeaderAndEpoch(NamedTuple):
    """Leader of a partition and its epoch (Metadata.LeaderAndEpoch)."""

    node_id: int = NO_LEADER
    epoch: int = NO_EPOCH


@dataclass(slots=True)
class KnownTopic:
    """A topic that exists."""

    topic_id: bytes
    leaders: dict[int, LeaderAndEpoch] = field(default_factory=dict)
    internal: bool = False
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)
    slot_weights: tuple[float, ...] = ()
    """Share of the load of each slot, if known."""


class MetadataRequests:
    """Metadata for all components of a client, with one request at a time."""

    def __init__(
        self,
        options: ClientOptions,
        backoff: RetryBackoff,
        *,
        creates_topics: bool = False,
        needs_weights: bool = False,
        troubles: Troubles | None = None,
    ) -> None:
        """`creates_topics`: allow.auto.create.topics. `needs_weights`: request the weights of slots from the proxy."""
        self._troubles = troubles or Troubles()
        self._options = options
        self._creates_topics = creates_topics
        self._tags = (slot_weights.REQUESTED,) if needs_weights else ()
        self._backoff = backoff
        self.nodes: Mapping[int, NodeAddress] = {}
        """Empty if only the bootstrap servers are known."""
        self.topics: dict[str, KnownTopic] = {}
        self._names: dict[bytes, str] = {}
        self._missing: set[str] = set()
        self._watched: frozenset[str] = frozenset()
        self._unwatched: set[str] = set()
        """Further topics that need metadata: of a group that this member leads, or of calls for any partition."""
        self._pattern: re.Pattern[str] | None = None
        self._update_due = False
        self._fresh_until = self._not_before = -math.inf
        self._in_flight: UnsentRequest | None = None
        self._failing_since: float | None = None

    # Requests of other components

    def watch(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Watch topics, or all with a pattern. Raises ValueError for an invalid regular expression."""
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from error
        for name in self._watched - frozenset(topics):
            self._troubles.end(TroubleKind.TOPIC, name)
        self._watched = frozenset(topics)
        if pattern is not None or self._watched - self.topics.keys():
            self._update_due = True

    def drop(self, topics: Iterable[str]) -> None:
        """Forget topics that only a call needed which has ended."""
        for name in self._unwatched & set(topics) - self._watched:
            self._unwatched.discard(name)
            self._troubles.end(TroubleKind.TOPIC, name)

    def matching(self) -> frozenset[str]:
        """Return the topics that match the pattern, without internal ones. Empty without a pattern."""
        if self._pattern is None:
            return frozenset()
        return frozenset(
            name for name, topic in self.topics.items() if not topic.internal and self._pattern.fullmatch(name)
        )

    def request_update(self) -> None:
        self._update_due = True

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int] | None:
        """Return the number of partitions by topic, or None while some topics have not been requested."""
        requested = set(topics)
        if self._pattern is None and (unknown := requested - self.topics.keys() - self._missing):
            self._unwatched |= unknown
            self._update_due = True
            return None
        return {name: len(self.topics[name].leaders) for name in requested if name in self.topics}

    def replica_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks of the replicas. Brokers that are offline have no rack."""
        rack_of = {node_id: node.rack for node_id, node in self.nodes.items() if node.rack}
        return {
            TopicPartition(name, number): frozenset(rack_of[each] for each in nodes if each in rack_of)
            for name in topics
            if name in self.topics
            for number, nodes in self.topics[name].replicas.items()
        }

    def slot_weights(self, topics: Iterable[str]) -> dict[str, tuple[float, ...]]:
        known = {name: self.topics[name].slot_weights for name in topics if name in self.topics}
        return {name: weights for name, weights in known.items() if weights}

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch:
        """Return the leader, and request an update if it is unknown."""
        topic = self.topics.get(partition.topic)
        leader = LeaderAndEpoch() if topic is None else topic.leaders.get(partition.partition, LeaderAndEpoch())
        if leader.node_id == NO_LEADER or leader.node_id not in self.nodes:
            if partition.topic not in self._watched:
                self._unwatched.add(partition.topic)
            self._update_due = True
            if leader.node_id == NO_LEADER:
                self._report_leaderless(partition, topic)
            return LeaderAndEpoch()
        if self._troubles.is_any:
            self._troubles.end(TroubleKind.TOPIC, partition)
        return leader

    def _report_leaderless(self, partition: TopicPartition, topic: KnownTopic | None) -> None:
        if topic is None or not topic.leaders:
            return  # a missing topic is reported when the brokers respond
        count = len(topic.leaders)
        if partition.partition not in topic.leaders:
            text = f"partition {partition} does not exist: topic {partition.topic!r} has partitions 0 to {count - 1}"
            self._troubles.report(TroubleKind.TOPIC, partition, text, "Check the partition number")
        else:
            text = f"partition {partition} has no leader"
            self._troubles.report(TroubleKind.TOPIC, partition, text, "Check that the brokers with its replicas run")

    def note_leader(self, partition: TopicPartition, leader: LeaderAndEpoch) -> None:
        """Note a newer leader (KIP-951)."""
        topic = self.topics.get(partition.topic)
        if topic is not None and leader.epoch > topic.leaders.get(partition.partition, LeaderAndEpoch()).epoch:
            topic.leaders[partition.partition] = leader

    def topic_id(self, topic: str) -> bytes | None:
        known = self.topics.get(topic)
        return None if known is None else known.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    # Manager interface

    def poll(self, now: float) -> DueRequests:
        self._rebootstrap(now)
        if self._in_flight is not None:
            return DueRequests()
        due_at = now if self._update_due else self._fresh_until
        due_at = max(due_at, self._backoff.ready_at, self._not_before)
        if not self._update_due and not self._needs_topics():
            return DueRequests()
        if due_at > now:
            return DueRequests(wake_at=due_at)
        self._in_flight = UnsentRequest(
            sender=self,
            api="Metadata",
            message=self._message(),
            versions=VERSIONS,
            timeout_s=self._options.request_timeout_s,
        )
        self._update_due = False
        return DueRequests((self._in_flight,))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if request is not self._in_flight:
            return []
        self._in_flight = None
        if isinstance(outcome, RequestFailure):
            return self._failed(outcome, now)
        response: Any = outcome
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._forget_nodes()
            return []
        self._failing_since = None
        self.nodes = {each.node_id: NodeAddress(each.host, each.port, each.rack) for each in response.brokers}
        self._fresh_until = now + self._options.metadata_max_age_s
        self._not_before = now + self._options.retry_backoff_s
        return self._update_topics(response, now)

    def _needs_topics(self) -> bool:
        return bool(self._watched or self._unwatched or self._pattern)

    def _message(self) -> Any:
        message = messages.MetadataRequest
        names = None if self._pattern else sorted(self._watched | self._unwatched)
        topics = None if names is None else [message.MetadataRequestTopic(name=name) for name in names]
        return message(topics=topics, allow_auto_topic_creation=self._creates_topics, unknown_tags=self._tags)

    def _update_topics(self, response: Any, now: float) -> list[BackgroundEvent]:
        requested = self._watched | self._unwatched
        self._missing = set(requested)
        known: dict[str, KnownTopic] = {}
        events: list[BackgroundEvent] = []
        codes: dict[str, ErrorCode] = {}
        is_transient = False
        for each in response.topics:
            code = ErrorCode.of(each.error_code)
            if each.name is not None:
                codes[each.name] = code
            if code in TRANSIENT_CODES and each.name is not None:
                is_transient = True
                if each.name in self.topics:
                    known[each.name] = self.topics[each.name]
            elif code and code not in ABSENT_CODES:
                events.append(BackgroundError(error=BrokerRefused("Metadata", code, f"topic {each.name}")))
            elif not code and each.name is not None:
                known[each.name] = self._merged(each)
                is_transient |= any(leader.node_id == NO_LEADER for leader in known[each.name].leaders.values())
        self.topics = known
        self._missing -= known.keys()
        for name in known:
            self._troubles.end(TroubleKind.TOPIC, name)
        for name in self._missing:
            self._report_missing(name, codes.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self._names = {topic.topic_id: name for name, topic in known.items()}
        if is_transient or self._missing & self._watched:
            self._backoff.failed(now)
            self._update_due = self._update_due or is_transient
            self._fresh_until = min(self._fresh_until, max(self._backoff.ready_at, now))
        else:
            self._backoff.succeeded()
        return events

    def _report_missing(self, name: str, code: ErrorCode) -> None:
        if code in ABSENT_CODES:
            text = f"topic {name!r} does not exist: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}"
            self._troubles.report(TroubleKind.TOPIC, name, text, UNKNOWN_TOPIC_ADVICE)
        else:
            self._troubles.report(TroubleKind.TOPIC, name, f"topic {name!r}: {code.name}")

    def _merged(self, topic: Any) -> KnownTopic:
        """Return a topic of a response. A leader with an older epoch than known counts only for a recreated topic."""
        before = self.topics.get(topic.name)
        leaders = {each.partition_index: LeaderAndEpoch(each.leader_id, each.leader_epoch) for each in topic.partitions}
        if before is not None and before.topic_id == topic.topic_id:
            for number, leader in leaders.items():
                known = before.leaders.get(number, LeaderAndEpoch())
                if known.epoch > leader.epoch:
                    leaders[number] = known
        replicas = {each.partition_index: tuple(each.replica_nodes) for each in topic.partitions}
        weights = slot_weights.weights_in(topic.unknown_tags)
        return KnownTopic(bytes(topic.topic_id), leaders, topic.is_internal, replicas, weights)

    def _failed(self, failure: RequestFailure, now: float) -> list[BackgroundEvent]:
        self._update_due = True
        self._backoff.failed(now)
        if self._failing_since is None:
            self._failing_since = now
        if failure.is_retriable:
            return []
        return [BackgroundError(error=ConsumerError(f"Metadata: {failure.reason}"))]

    def _rebootstrap(self, now: float) -> None:
        """Return to the bootstrap servers: all known nodes may have moved."""
        if self._failing_since is not None and now - self._failing_since >= self._options.rebootstrap_after_s:
            self._forget_nodes()
            self._failing_since = now

    def _forget_nodes(self) -> None:
        self.nodes = {}
        self._update_due = True
