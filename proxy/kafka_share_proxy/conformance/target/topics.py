"""Topics of a cluster: partitions, replicas and leaders."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from kafka_share_proxy.conformance.target.partition_log import PartitionLog
from kafka_share_proxy.conformance.target.timers import Signal
from kafka_share_proxy.conformance.target.topic_configs import TopicConfigs
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.model.slots import Cut
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE

NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
TOPICS_MAX = 10_000
"""Maximum number of topics of a cluster."""
PARTITIONS_MAX = 10_000
"""Maximum number of partitions of a topic."""


@dataclass(eq=False)
class HostedPartition:
    """One partition, with one log for all replicas."""

    index: int
    replicas: list[int]
    leader: int
    """Node id, UNKNOWN_NODE if no replica is up."""
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)
    changed: Signal = field(default_factory=Signal)
    """Notified when records are appended, and when the leader, the log start or the topic changes."""
    base: HostedPartition | None = None
    """Partition whose log a partition of a view shows."""
    slots: list[HostedPartition] = field(default_factory=list)
    """Partitions of views that show this one's log."""

    def set_leader(self, node_id: int) -> None:
        """Begin a new leader epoch, of the base if this is a partition of a view."""
        if self.base is not None:
            self.base.set_leader(node_id)
            return
        self.leader, self.leader_epoch = node_id, self.leader_epoch + 1
        if node_id != UNKNOWN_NODE:
            self.log.begin_epoch(self.leader_epoch)
        for slot in self.slots:
            slot.leader, slot.leader_epoch = self.leader, self.leader_epoch
        self.changed.notify()

    def elect(self, up: Set[int]) -> None:
        """Choose the first replica that is up, unless the leader is."""
        if self.leader not in up and self.base is None:
            chosen = next((node for node in self.replicas if node in up), UNKNOWN_NODE)
            if chosen != self.leader:
                self.set_leader(chosen)

    def epoch_error(self, current_leader_epoch: int) -> ErrorCode:
        """Compare the epoch that a client has with the leader's (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        is_old = current_leader_epoch < self.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH


@dataclass(eq=False)
class HostedTopic:
    """One topic."""

    name: str
    topic_id: bytes
    configs: TopicConfigs
    partitions: list[HostedPartition]
    base: HostedTopic | None = None
    """Topic whose records a view shows."""
    cut: Cut | None = None
    """Rule by which a view divides them into slots."""
    views: list[HostedTopic] = field(default_factory=list)
    """Views of this topic."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL

    def add_slots(self) -> None:
        """Give a view the partitions that it lacks of its base (views/README.md rules 3 and 13)."""
        if self.base is None or self.cut is None:
            return
        for base in self.base.partitions[len(self.partitions) // self.cut.slots :]:
            for _ in range(self.cut.slots):
                slot = HostedPartition(len(self.partitions), base.replicas, base.leader, base.leader_epoch, base=base)
                slot.log, slot.changed = base.log, base.changed
                self.partitions.append(slot)

    def follow_base(self) -> None:
        """Let the partitions of a view have the leaders of its base from now on."""
        for slot in self.partitions:
            if slot.base is not None and slot not in slot.base.slots:
                slot.base.slots.append(slot)

    def partition(self, index: int) -> HostedPartition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class TopicRegistry:
    """All topics, by name and by id."""

    def __init__(self) -> None:
        self._by_name: dict[str, HostedTopic] = {}
        self._by_id: dict[bytes, HostedTopic] = {}
        self.changed = Signal()
        """Notified when a topic is created or deleted, or gets partitions."""

    @property
    def by_name(self) -> Mapping[str, HostedTopic]:
        return self._by_name

    def with_name(self, name: str) -> HostedTopic | None:
        return self._by_name.get(name)

    def with_id(self, topic_id: bytes) -> HostedTopic | None:
        return self._by_id.get(topic_id)

    def add(self, topic: HostedTopic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self.changed.notify()

    def remove(self, topic: HostedTopic) -> None:
        """Delete a topic and wake every request that waits for it."""
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        for partition in topic.partitions:
            partition.changed.notify()
        self.changed.notify()

    def name_error(self, name: str) -> str | None:
        """Return why a new topic cannot have this name, or None (Topic.validate, ReplicationControlManager)."""
        if not NAME.fullmatch(name) or name in (".", ".."):
            return f"Topic name is invalid: {name!r} must be 1 to 249 letters, digits, '.', '_' or '-', not . or .."
        if is_view(name):
            return f"Topic name is invalid: {name!r} is a view's"
        folded = name.replace(".", "_")
        same = next((each for each in self._by_name if each != name and each.replace(".", "_") == folded), None)
        return None if same is None else f"Topic '{name}' collides with existing topic: {same}"


def place_replicas(nodes: Sequence[int], count: int, replication: int, start: int) -> list[list[int]]:
    """Return the replicas of `count` partitions, one after the other around the nodes."""
    size = len(nodes)
    return [[nodes[(start + index + each) % size] for each in range(replication)] for index in range(count)]
