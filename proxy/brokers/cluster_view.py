"""ClusterView: brokers, topics and leaders as Metadata answers told them, folded together.

Theory of operation. Whoever has decoded a Metadata answer (the proxy's own refresh, a handler that asked on a client's
connection) gives it to `fold`. The view holds what the last answer about each topic said; a leader epoch never goes
back for the same topic id, as in Kafka's own client (Metadata.java). Errors that are about the asker, not the topic
(29), change nothing. What somebody found wrong is marked stale; its age says how far an entry can be trusted.
The brokers' addresses here are upstream's own, never the proxy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from proxy.wire import messages
from proxy.wire.errors import ErrorCode
from proxy.wire.values import UNKNOWN_NODE, ZERO_UUID, Address


class Broker(NamedTuple):
    """A broker that upstream named."""

    node_id: int
    address: Address
    rack: str | None


class Leader(NamedTuple):
    """Who leads a partition; node_id UNKNOWN_NODE while nobody does."""

    node_id: int
    epoch: int
    """-1 where the answer had none (Metadata below v7)."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic at the time `seen`."""

    name: str
    topic_id: bytes
    """ZERO_UUID where the answer had none (Metadata below v10)."""
    leaders: tuple[Leader, ...]
    """The leader of each partition, in their order."""
    is_internal: bool
    seen: float

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.leaders)


_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_NOBODY = Leader(UNKNOWN_NODE, -1)


class ClusterView:
    """What the cluster looks like. All times are `now` of the caller, monotonic seconds."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.brokers_seen = -inf
        """When an answer last named the brokers."""
        self._brokers: dict[int, Broker] = {}
        self._nodes: dict[Address, int] = {}
        self._topics: dict[str, Topic] = {}
        self._names: dict[bytes, str] = {}
        self._stale: set[str] = set()

    def fold(self, metadata: messages.MetadataResponse, now: float, *, all_topics: bool = False) -> frozenset[str]:
        """Take in a decoded MetadataResponse, as the broker sent it; gives the names of topics that changed or went.

        With `all_topics` the answer lists every topic the asker may see, and what it lacks is forgotten: only for an
        asker who may see them all.
        """
        self._fold_brokers(metadata, now)
        changed = {name for topic in metadata.topics or () if (name := self._fold_topic(topic, now)) is not None}
        if all_topics:
            listed = {topic.name for topic in metadata.topics or ()}
            for name in [name for name in self._topics if name not in listed]:
                self._drop(name)
                changed.add(name)
        return frozenset(changed)

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers of the last answer that named any."""
        return self._brokers

    def node_at(self, address: Address | None) -> int:
        """The broker that advertises exactly this address; UNKNOWN_NODE where none does, or for no address."""
        return UNKNOWN_NODE if address is None else self._nodes.get(address, UNKNOWN_NODE)

    def topic(self, name: str) -> Topic | None:
        """A topic by name."""
        return self._topics.get(name)

    def topic_since(self, name: str, seen: float) -> Topic | None:
        """A topic that an answer has spoken of since then, and that nobody has found wrong."""
        topic = self._topics.get(name)
        return topic if topic is not None and topic.seen >= seen and name not in self._stale else None

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """A topic by its 16-byte id; None for an id nobody has told yet (ask, do not guess)."""
        name = self._names.get(topic_id)
        return None if name is None else self._topics.get(name)

    def topics(self) -> Iterable[Topic]:
        """All topics known, in no particular order."""
        return self._topics.values()

    def leader(self, topic_id: bytes, partition: int) -> Leader | None:
        """Who leads a partition; None when topic or partition is not known."""
        topic = self.topic_by_id(topic_id)
        if topic is None or not 0 <= partition < topic.partitions:
            return None
        return topic.leaders[partition]

    def mark_stale(self, *names: str) -> None:
        """These topics are no longer as we say (a broker answered 3, 6, 74, 75 or 100): without names, all of them."""
        self._stale.update(names or self._topics)
        self._stale.intersection_update(self._topics)

    def is_stale(self, name: str) -> bool:
        """Marked stale, or not known at all."""
        return name in self._stale or name not in self._topics

    def stale_topics(self) -> frozenset[str]:
        """What the next refresh should ask for."""
        return frozenset(self._stale)

    def age(self, name: str, now: float) -> float:
        """Seconds since an answer spoke of the topic; inf when unknown or stale."""
        topic = self._topics.get(name)
        return inf if topic is None or name in self._stale else now - topic.seen

    def forget_topic(self, name: str) -> None:
        """A topic is known to be gone; harmless when it is not known."""
        self._drop(name)

    def _fold_brokers(self, metadata: messages.MetadataResponse, now: float) -> None:
        """An empty list is a broker that has not caught up yet, or an error: nobody is forgotten for it."""
        if metadata.cluster_id is not None:
            self.cluster_id = metadata.cluster_id
        if not metadata.brokers:
            return
        self.brokers_seen = now
        self._brokers = {
            broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in metadata.brokers
        }
        self._nodes = {broker.address: broker.node_id for broker in self._brokers.values()}

    def _fold_topic(self, answer: messages.MetadataResponse.MetadataResponseTopic, now: float) -> str | None:
        """The name, if the topic changed or went."""
        if answer.error_code in _GONE:
            name = answer.name if answer.name is not None else self._names.get(answer.topic_id)
            return name if name is not None and self._drop(name) else None
        if answer.error_code != ErrorCode.NONE or answer.name is None:
            return None
        before = self._topics.get(answer.name)
        leaders = _leaders(answer.partitions or ())
        if before is not None and before.topic_id == answer.topic_id:
            leaders = _never_back(before.leaders, leaders)
        topic = Topic(answer.name, answer.topic_id, leaders, answer.is_internal, now)
        self._store(before, topic)
        same = before is not None and (before.topic_id, before.leaders) == (topic.topic_id, topic.leaders)
        return None if same else topic.name

    def _store(self, before: Topic | None, topic: Topic) -> None:
        if before is not None:
            self._names.pop(before.topic_id, None)
        self._topics[topic.name] = topic
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = topic.name
        self._stale.discard(topic.name)

    def _drop(self, name: str) -> bool:
        topic = self._topics.pop(name, None)
        self._stale.discard(name)
        if topic is not None:
            self._names.pop(topic.topic_id, None)
        return topic is not None


def _leaders(partitions: Iterable[messages.MetadataResponse.MetadataResponsePartition]) -> tuple[Leader, ...]:
    """By index; a gap in the answer (a partition it did not list) is a partition without leader."""
    known = {p.partition_index: Leader(p.leader_id, p.leader_epoch) for p in partitions if p.partition_index >= 0}
    if len(known) == max(known, default=-1) + 1:
        return tuple(known[index] for index in range(len(known)))
    return tuple(known.get(index, _NOBODY) for index in range(_count(known)))


def _count(known: Mapping[int, Leader]) -> int:
    """Partitions to speak of: an absurd index in a broken answer must not make us build as many entries."""
    return min(max(known, default=-1) + 1, 2 * len(known) + 1000)


def _never_back(before: tuple[Leader, ...], now: tuple[Leader, ...]) -> tuple[Leader, ...]:
    """An answer of a broker that lags behind does not undo a newer leader; -1 is no epoch and proves nothing."""
    kept = [old if 0 <= new.epoch < old.epoch else new for old, new in zip(before, now, strict=False)]
    return (*kept, *now[len(kept) :])
