"""ClusterMetadata: brokers, topics and leaders, merged from Metadata responses.

Each component that has decoded a Metadata response passes it to `fold`. Rules: brokers/README.md 10 and 11. The
brokers' addresses are upstream's own, never the proxy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE, ZERO_UUID, Address


class Broker(NamedTuple):
    """Broker in a Metadata response."""

    node_id: int
    address: Address
    rack: str | None


class Leader(NamedTuple):
    """Leader of a partition. node_id is UNKNOWN_NODE while there is none."""

    node_id: int
    epoch: int
    """Leader epoch. -1 if the response had none (Metadata below v7)."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic at the time `described_at`."""

    name: str
    topic_id: bytes
    """ZERO_UUID if the response had none (Metadata below v10)."""
    leaders: tuple[Leader, ...]
    is_internal: bool
    described_at: float

    @property
    def partitions(self) -> int:
        return len(self.leaders)


_ABSENT_CODES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_NO_MEMBER = Leader(UNKNOWN_NODE, -1)


class ClusterMetadata:
    """View of the cluster. Times are monotonic seconds of the caller."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self._brokers: dict[int, Broker] = {}
        self._nodes: dict[Address, int] = {}
        self._topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        self._stale: set[str] = set()

    def fold(self, metadata: messages.MetadataResponse, now: float) -> None:
        """Merge a response. Topics that it does not list stay."""
        self._fold_brokers(metadata)
        for topic in metadata.topics or ():
            self._fold_topic(topic, now)

    @property
    def brokers(self) -> Mapping[int, Broker]:
        return self._brokers

    def node_at(self, address: Address | None) -> int:
        """Return the broker that advertises this address, else UNKNOWN_NODE."""
        return UNKNOWN_NODE if address is None else self._nodes.get(address, UNKNOWN_NODE)

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_since(self, name: str, since: float) -> Topic | None:
        """Return a topic that is not stale and was described since then."""
        topic = self._topics.get(name)
        return topic if topic is not None and topic.described_at >= since and name not in self._stale else None

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return a topic, or None if its id is unknown and must be queried."""
        return self._topics.get(self._names.get(topic_id, ""))

    def topic_by_id_since(self, topic_id: bytes, since: float) -> Topic | None:
        """Return the topic with this id as `topic_since` does."""
        return self.topic_since(self._names.get(topic_id, ""), since)

    def topics(self) -> Iterable[Topic]:
        return self._topics.values()

    def leader(self, topic_id: bytes, partition: int) -> Leader | None:
        topic = self.topic_by_id(topic_id)
        if topic is None or not 0 <= partition < topic.partitions:
            return None
        return topic.leaders[partition]

    def set_stale(self, *names: str) -> None:
        """Mark topics (without names: all) as outdated after error 3, 6, 74, 75 or 100."""
        self._stale.update(names or self._topics)
        self._stale.intersection_update(self._topics)

    def is_stale(self, name: str) -> bool:
        return name in self._stale or name not in self._topics

    def age(self, name: str, now: float) -> float:
        """Return seconds since the last response about the topic. inf if it is unknown or stale."""
        return inf if self.is_stale(name) else now - self._topics[name].described_at

    def _fold_brokers(self, metadata: messages.MetadataResponse) -> None:
        """Merge brokers. An empty list is an error or a broker that has not caught up, and removes no broker."""
        if metadata.cluster_id is not None:
            self.cluster_id = metadata.cluster_id
        if not metadata.brokers:
            return
        self._brokers = {
            broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in metadata.brokers
        }
        self._nodes = {broker.address: broker.node_id for broker in self._brokers.values()}

    def _fold_topic(self, response: messages.MetadataResponse.MetadataResponseTopic, now: float) -> None:
        if response.error_code in _ABSENT_CODES:
            self._drop(self._names.get(response.topic_id, "") if response.name is None else response.name)
        if response.error_code != ErrorCode.NONE or response.name is None:
            return
        before = self._topics.get(response.name)
        leaders = _leaders(response.partitions or ())
        if before is not None:
            self._names.pop(before.topic_id, None)
            if before.topic_id == response.topic_id:
                leaders = _never_back(before.leaders, leaders)
        self._stale.discard(response.name)
        self._topics[response.name] = Topic(response.name, response.topic_id, leaders, response.is_internal, now)
        if response.topic_id != ZERO_UUID:
            self._names[response.topic_id] = response.name

    def _drop(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        self._stale.discard(name)
        if topic is not None:
            self._names.pop(topic.topic_id, None)


def _leaders(partitions: Iterable[messages.MetadataResponse.MetadataResponsePartition]) -> tuple[Leader, ...]:
    """Return leaders by index. Partitions that the response did not list have none."""
    known = {p.partition_index: Leader(p.leader_id, p.leader_epoch) for p in partitions if p.partition_index >= 0}
    if len(known) == max(known, default=-1) + 1:
        return tuple(known[index] for index in range(len(known)))
    return tuple(known.get(index, _NO_MEMBER) for index in range(_count(known)))


def _count(known: Mapping[int, Leader]) -> int:
    """Limit the number of partitions: an absurd index in a broken response must not allocate as many."""
    return min(max(known, default=-1) + 1, 2 * len(known) + 1000)


def _never_back(before: tuple[Leader, ...], now: tuple[Leader, ...]) -> tuple[Leader, ...]:
    """Keep newer leaders against a broker that lags. Epoch -1 means unknown."""
    leaders = [old if 0 <= new.epoch < old.epoch else new for old, new in zip(before, now, strict=False)]
    return (*leaders, *now[len(leaders) :])
