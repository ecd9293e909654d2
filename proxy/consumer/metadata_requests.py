"""What is known of the cluster: nodes, topics, leaders and their epochs (Metadata.java, KIP-320, KIP-899, KIP-1102)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proxy.consumer.client_options import ClientOptions
from proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from proxy.consumer.requests import Outcome, RequestFailure, RetryBackoff, UnsentRequest, Wanted
from proxy.wire import messages
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicPartition

VERSIONS = (12, 13)
NO_LEADER = -1
NO_EPOCH = -1

MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""The topic does not exist, now."""
PASSING = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})


class NodeAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int
    rack: str | None = None


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition (Metadata.LeaderAndEpoch)."""

    node_id: int = NO_LEADER
    epoch: int = NO_EPOCH


@dataclass(slots=True)
class KnownTopic:
    """A topic that exists."""

    topic_id: bytes
    leaders: dict[int, LeaderAndEpoch] = field(default_factory=dict)
    """Partition -> its leader."""
    internal: bool = False
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Partition -> the nodes that have it."""


class MetadataRequests:
    """One Metadata request at a time, for everybody who needs to know something."""

    def __init__(self, options: ClientOptions, backoff: RetryBackoff, *, makes_topics: bool = False) -> None:
        """Nothing is asked until something is watched; makes_topics: allow.auto.create.topics."""
        self._options = options
        self._makes_topics = makes_topics
        self._backoff = backoff
        self.nodes: Mapping[int, NodeAddress] = {}
        """Empty: only the bootstrap servers are known."""
        self.topics: dict[str, KnownTopic] = {}
        self.version = 0
        """Grows with every answer."""
        self._names: dict[bytes, str] = {}
        self._missing: set[str] = set()
        self._watched: frozenset[str] = frozenset()
        self._others: set[str] = set()
        """Topics that somebody asked about and that are not subscribed to: those of the group we lead."""
        self._pattern: re.Pattern[str] | None = None
        self._update_due = False
        self._fresh_until = self._not_before = -math.inf
        self._in_flight: UnsentRequest | None = None
        self._failing_since: float | None = None

    # What others ask

    def watch(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Keep these known; with a pattern all topics are asked for.

        Raises:
            ValueError: the pattern is no regular expression.
        """
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from error
        self._watched = frozenset(topics)
        if pattern is not None or self._watched - self.topics.keys():
            self._update_due = True

    def matching(self) -> frozenset[str]:
        """Topics that match the pattern; internal ones are left out."""
        if self._pattern is None:
            return frozenset()
        return frozenset(
            name for name, topic in self.topics.items() if not topic.internal and self._pattern.fullmatch(name)
        )

    def request_update(self) -> None:
        """What is known is not true any more, or not enough."""
        self._update_due = True

    def partition_counts(self, topics: Iterable[str], _: float) -> dict[str, int] | None:
        """Topic -> partitions, of those that exist; None while some have not been asked about."""
        asked = set(topics)
        if self._pattern is None and (unknown := asked - self.topics.keys() - self._missing):
            self._others |= unknown
            self._update_due = True
            return None
        return {name: len(self.topics[name].leaders) for name in asked if name in self.topics}

    def replica_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        """Partition -> the racks of its replicas, of topics that exist; brokers that are away have none."""
        rack_of = {node_id: node.rack for node_id, node in self.nodes.items() if node.rack}
        return {
            TopicPartition(name, number): frozenset(rack_of[each] for each in nodes if each in rack_of)
            for name in topics
            if name in self.topics
            for number, nodes in self.topics[name].replicas.items()
        }

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch:
        """Who leads; LeaderAndEpoch() where nobody does, and then an update is asked for."""
        topic = self.topics.get(partition.topic)
        found = LeaderAndEpoch() if topic is None else topic.leaders.get(partition.partition, LeaderAndEpoch())
        if found.node_id == NO_LEADER or found.node_id not in self.nodes:
            if partition.topic not in self._watched:
                self._others.add(partition.topic)
            self._update_due = True
            return LeaderAndEpoch()
        return found

    def note_leader(self, partition: TopicPartition, leader: LeaderAndEpoch) -> None:
        """A broker said who leads now (KIP-951); an older epoch than the known one means nothing."""
        topic = self.topics.get(partition.topic)
        if topic is not None and leader.epoch > topic.leaders.get(partition.partition, LeaderAndEpoch()).epoch:
            topic.leaders[partition.partition] = leader

    def topic_id(self, topic: str) -> bytes | None:
        """None while it is not known."""
        known = self.topics.get(topic)
        return None if known is None else known.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """None while it is not known."""
        return self._names.get(topic_id)

    # The manager

    def poll(self, now: float) -> Wanted:
        """Metadata, if something is not known or is old."""
        self._rebootstrap(now)
        if self._in_flight is not None:
            return Wanted()
        due_at = now if self._update_due else self._fresh_until
        due_at = max(due_at, self._backoff.ready_at, self._not_before)
        if not self._update_due and not self._wants_anything():
            return Wanted()
        if due_at > now:
            return Wanted(wake_at=due_at)
        self._in_flight = UnsentRequest(
            sender=self,
            api="Metadata",
            message=self._message(),
            versions=VERSIONS,
            timeout_s=self._options.request_timeout_s,
        )
        self._update_due = False
        return Wanted((self._in_flight,))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Take the answer to a Metadata request, or note why there is none."""
        if request is not self._in_flight:
            return []
        self._in_flight = None
        if isinstance(outcome, RequestFailure):
            return self._failed(outcome, now)
        answer: Any = outcome
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._forget_nodes()
            return []
        self._failing_since = None
        self.nodes = {each.node_id: NodeAddress(each.host, each.port, each.rack) for each in answer.brokers}
        self.version += 1
        self._fresh_until = now + self._options.metadata_max_age_s
        self._not_before = now + self._options.retry_backoff_s
        return self._take_topics(answer, now)

    def _wants_anything(self) -> bool:
        return bool(self._watched or self._others or self._pattern)

    def _message(self) -> Any:
        message = messages.MetadataRequest
        wanted = None if self._pattern else sorted(self._watched | self._others)
        topics = None if wanted is None else [message.MetadataRequestTopic(name=name) for name in wanted]
        return message(topics=topics, allow_auto_topic_creation=self._makes_topics)

    def _take_topics(self, answer: Any, now: float) -> list[BackgroundEvent]:
        asked = self._watched | self._others
        self._missing = set(asked)
        known: dict[str, KnownTopic] = {}
        events: list[BackgroundEvent] = []
        passing = False
        for each in answer.topics:
            code = ErrorCode.of(each.error_code)
            if code in PASSING and each.name is not None:
                passing = True
                known.update({each.name: before} if (before := self.topics.get(each.name)) else {})
            elif code and code not in MISSING:
                events.append(BackgroundError(error=BrokerRefused("Metadata", code, f"topic {each.name}")))
            if code or each.name is None:
                continue
            known[each.name] = self._merged(each)
            passing |= any(leader.node_id == NO_LEADER for leader in known[each.name].leaders.values())
        self.topics = known
        self._missing -= known.keys()
        self._names = {topic.topic_id: name for name, topic in known.items()}
        if passing or self._missing & self._watched:
            self._backoff.failed(now)
            self._update_due = self._update_due or passing
            self._fresh_until = min(self._fresh_until, max(self._backoff.ready_at, now))
        else:
            self._backoff.succeeded()
        return events

    def _merged(self, topic: Any) -> KnownTopic:
        """Leaders of an older epoch than the known one are not believed, unless the topic has been made anew."""
        before = self.topics.get(topic.name)
        leaders = {each.partition_index: LeaderAndEpoch(each.leader_id, each.leader_epoch) for each in topic.partitions}
        if before is not None and before.topic_id == topic.topic_id:
            for number, leader in leaders.items():
                known = before.leaders.get(number, LeaderAndEpoch())
                if known.epoch > leader.epoch:
                    leaders[number] = known
        replicas = {each.partition_index: tuple(each.replica_nodes) for each in topic.partitions}
        return KnownTopic(bytes(topic.topic_id), leaders, topic.is_internal, replicas)

    def _failed(self, failure: RequestFailure, now: float) -> list[BackgroundEvent]:
        self._update_due = True
        self._backoff.failed(now)
        if self._failing_since is None:
            self._failing_since = now
        if failure.is_retriable:
            return []
        return [BackgroundError(error=ConsumerError(f"Metadata: {failure.text or failure.kind.value}"))]

    def _rebootstrap(self, now: float) -> None:
        """No known node has answered for long: they may all have moved."""
        if self._failing_since is not None and now - self._failing_since >= self._options.rebootstrap_after_s:
            self._forget_nodes()
            self._failing_since = now

    def _forget_nodes(self) -> None:
        self.nodes = {}
        self._update_due = True
