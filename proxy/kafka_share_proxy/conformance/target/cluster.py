"""A Kafka cluster in one process: nodes, topics, coordinators, and what a test may do to them.

How it works: there is no I/O. The server calls the handler of an API (`served_apis.APIS`) with a request, at the node
that the client is connected to, and runs `run()` in a task. All nodes share one state in memory.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind, Coordinators
from kafka_share_proxy.conformance.target.fetch_sessions import FetchSessions
from kafka_share_proxy.conformance.target.partition_log import LogFull
from kafka_share_proxy.conformance.target.seeded import SeededBytes
from kafka_share_proxy.conformance.target.timers import ClusterTimers
from kafka_share_proxy.conformance.target.topic_configs import TopicConfigs, mistake_in
from kafka_share_proxy.conformance.target.topics import (
    PARTITIONS_MAX,
    TOPICS_MAX,
    HostedPartition,
    HostedTopic,
    TopicRegistry,
    place_replicas,
)
from kafka_share_proxy.wire.values import UNKNOWN_NODE

if TYPE_CHECKING:
    from kafka_share_proxy.conformance.target.group_configs import GroupConfigs
    from kafka_share_proxy.conformance.target.group_registry import GroupRegistry
    from kafka_share_proxy.conformance.target.share_state import ShareState
    from kafka_share_proxy.conformance.target.transactions import Transactions
    from kafka_share_proxy.views.model.plans import Plan

NODES_MAX = 100
"""Maximum number of nodes of a cluster."""


class TargetCluster:
    """State of all nodes. Methods for tests raise ValueError with a text that says what is wrong."""

    def __init__(self, nodes: int, clock: Clock, seed: int, settings: ClusterSettings | None = None) -> None:
        """Create nodes with the ids 1 to `nodes`, all up. Raises ValueError for less than 1 or more than NODES_MAX."""
        if not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"a cluster has 1 to {NODES_MAX} nodes, not {nodes}")
        self.clock = clock
        self.settings = settings or ClusterSettings()
        self.seeded = SeededBytes(seed)
        self.cluster_id = base64.urlsafe_b64encode(self.seeded.uuid()).decode().rstrip("=")
        self.timers = ClusterTimers(clock)
        self.node_ids = tuple(range(1, nodes + 1))
        self.addresses: dict[int, tuple[str, int]] = {}
        """Advertised host and port by node id, filled by the server."""
        self.offered: dict[int, tuple[int, int]] = {}
        """Lowest and highest offered version by API key. See served_apis.offer."""
        self.topics = TopicRegistry()
        self.view_plans: dict[str, Plan] = {}
        """Plans of views by id. See views.store_plan."""
        self.coordinators = Coordinators(nodes)
        slots = self.settings.fetch_session_slots
        self.fetch_sessions = {node_id: FetchSessions(slots, self.seeded) for node_id in self.node_ids}
        self._up = set(self.node_ids)

    @cached_property
    def groups(self) -> GroupRegistry:
        """Classic and KIP-848 groups, imported at the first use."""
        from kafka_share_proxy.conformance.target.group_registry import GroupRegistry

        groups = GroupRegistry(self.coordinators)
        self.coordinators.on_change(groups.follow_coordinators)
        return groups

    @cached_property
    def transactions(self) -> Transactions:
        """Transactional producers, imported at the first use."""
        from kafka_share_proxy.conformance.target.transactions import Transactions

        timeout_max_ms = self.settings.transaction_timeout_max_ms
        return Transactions(self.topics, self.groups, self.clock, self.timers, timeout_max_ms)

    @cached_property
    def share(self) -> ShareState:
        """Share groups. The model of `sharegroups/` is imported at the first use."""
        from kafka_share_proxy.conformance.target.share_state import ShareState

        return ShareState(self.topics, self.clock, self.timers)

    @cached_property
    def group_configs(self) -> GroupConfigs:
        """Settings of groups, imported at the first use."""
        from kafka_share_proxy.conformance.target.group_configs import GroupConfigs

        return GroupConfigs(self.share.coordinator, self.settings)

    async def run(self) -> None:
        """Call timers when they are due, until cancelled."""
        await self.timers.run()

    # Nodes

    @property
    def nodes_up(self) -> tuple[int, ...]:
        return tuple(sorted(self._up))

    def is_up(self, node_id: int) -> bool:
        return node_id in self._up

    @property
    def controller_id(self) -> int:
        """Id of the first node that is up, UNKNOWN_NODE without one."""
        return min(self._up, default=UNKNOWN_NODE)

    def address(self, node_id: int) -> tuple[str, int]:
        """Return the advertised host and port, ("", -1) if there is none."""
        return self.addresses.get(node_id, ("", -1))

    def take_node_down(self, node_id: int) -> None:
        """Elect other leaders and coordinators for those at a node, and lose its fetch sessions.

        The server closes its connections.
        """
        self._check_node(node_id)
        self.fetch_sessions[node_id] = FetchSessions(self.settings.fetch_session_slots, self.seeded)
        self._up.discard(node_id)
        self._reelect()

    def bring_node_up(self, node_id: int) -> None:
        """Let a node lead and coordinate again."""
        self._check_node(node_id)
        self._up.add(node_id)
        self._reelect()

    def _reelect(self) -> None:
        for topic in self.topics.by_name.values():
            for partition in topic.partitions:
                partition.elect(self._up)
        self.coordinators.set_up(self._up)

    def _check_node(self, node_id: int) -> None:
        if node_id not in self.node_ids:
            raise ValueError(f"there is no node {node_id}: the nodes are 1 to {len(self.node_ids)}")

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> HostedTopic:
        """Create a topic. `replication`: number of replicas, None for the cluster's default."""
        mistake = self.topics.name_error(name)
        mistake = mistake or mistake_in(configs or {})
        if mistake:
            raise ValueError(mistake)
        if self.topics.with_name(name) is not None:
            raise ValueError(f"Topic '{name}' already exists.")
        replicas = self.place(partitions, self.settings.default_replication if replication is None else replication)
        return self.add_topic(name, replicas, dict(configs or {}))

    def place(self, partitions: int, replication: int) -> list[list[int]]:
        """Return the replicas of new partitions. Raises ValueError."""
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise ValueError(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}")
        if not 1 <= replication <= len(self.node_ids):
            raise ValueError(f"a replication factor of {replication} with {len(self.node_ids)} nodes")
        start = self.seeded.number(len(self.node_ids))
        return place_replicas(self.node_ids, partitions, replication, start)

    def add_topic(self, name: str, replicas: list[list[int]], configs: dict[str, str]) -> HostedTopic:
        """Add a topic with checked name, replicas and settings. Raises ValueError beyond TOPICS_MAX."""
        if len(self.topics.by_name) >= TOPICS_MAX:
            raise ValueError(f"the cluster has {TOPICS_MAX} topics, its limit: delete one")
        hosted = [self.new_partition(index, nodes) for index, nodes in enumerate(replicas)]
        topic = HostedTopic(name, self.seeded.uuid(), TopicConfigs(configs), hosted)
        self.topics.add(topic)
        return topic

    def add_view(self, view: HostedTopic) -> HostedTopic | None:
        """Create a view with a topic id; return None beyond TOPICS_MAX."""
        if view.base is None or len(self.topics.by_name) >= TOPICS_MAX:
            return None
        view.topic_id = self.seeded.uuid()
        view.follow_base()
        view.base.views.append(view)
        self.topics.add(view)
        return view

    def add_partitions(self, topic: HostedTopic, replicas: list[list[int]]) -> None:
        """Add empty partitions with these replicas to a topic."""
        first = len(topic.partitions)
        topic.partitions += [self.new_partition(first + index, nodes) for index, nodes in enumerate(replicas)]
        for view in topic.views:
            view.add_slots()
            view.follow_base()
        self.topics.changed.notify()

    def new_partition(self, index: int, replicas: list[int]) -> HostedPartition:
        """Return an empty partition whose leader is its first replica that is up."""
        leader = next((node for node in replicas if node in self._up), UNKNOWN_NODE)
        partition = HostedPartition(index, replicas, leader)
        partition.log.begin_epoch(0)
        return partition

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records, the offsets committed for it, its share partitions and its views."""
        topic = self._topic(name)
        for view in tuple(topic.views):
            self.delete_topic(view.name)
        if topic.base is not None:
            topic.base.views.remove(topic)
            for slot in topic.partitions:
                if slot.base is not None:
                    slot.base.slots.remove(slot)
        self.topics.remove(topic)
        self.groups.delete_topic(name)
        self.share.delete_topic(topic.topic_id)

    def recreate_topic(self, name: str) -> HostedTopic:
        """Delete a topic and create it again, empty, with a new id."""
        old = self._topic(name)
        if old.base is not None:
            raise ValueError(f"{name!r} is a view: create its base {old.base.name!r} again")
        self.delete_topic(name)
        return self.add_topic(name, [list(each.replicas) for each in old.partitions], dict(old.configs.stored))

    # Partitions

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Let another node lead a partition, in a new leader epoch. It becomes a replica if it was none."""
        self._check_node(node_id)
        if node_id not in self._up:
            raise ValueError(f"node {node_id} is down: bring it up before it leads {topic}-{partition}")
        hosted = self.partition(topic, partition)
        if node_id not in hosted.replicas:
            hosted.replicas[hosted.replicas.index(hosted.leader) if hosted.leader in hosted.replicas else 0] = node_id
        hosted.set_leader(node_id)

    def bump_leader_epoch(self, topic: str, partition: int) -> None:
        """Begin a new leader epoch with the same leader."""
        hosted = self.partition(topic, partition)
        hosted.set_leader(hosted.leader)

    def truncate_log(self, topic: str, partition: int, offset: int) -> None:
        """Lose the records from `offset` on, as an unclean leader election does, in a new leader epoch."""
        hosted = self.partition(topic, partition)
        if not hosted.log.start <= offset <= hosted.log.end:
            raise ValueError(f"{topic}-{partition} has offsets {hosted.log.start} to {hosted.log.end}, not {offset}")
        hosted.log.truncate(offset)
        hosted.set_leader(hosted.leader)

    def append_records(self, topic: str, partition: int, values: Sequence[bytes], key: bytes | None = None) -> int:
        """Append a batch of records without a producer. Return its base offset."""
        hosted = self.partition(topic, partition)
        if not values or hosted.base is not None:
            raise ValueError(f"{topic!r} is a view: its base has the records" if values else "values has no record")
        try:
            now_ms = self.clock.wall_ms()
            offset = hosted.log.append_values(values, key, leader_epoch=hosted.leader_epoch, now_ms=now_ms)
        except LogFull as full:
            raise ValueError(str(full)) from None
        hosted.changed.notify()
        return offset

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the start of a log."""
        hosted = self.partition(topic, partition)
        if not hosted.log.start <= before <= hosted.log.end:
            raise ValueError(f"{topic}-{partition} has offsets {hosted.log.start} to {hosted.log.end}, not {before}")
        hosted.log.delete_before(before)
        hosted.changed.notify()

    def partition(self, topic: str, partition: int) -> HostedPartition:
        """Return a partition. Raises ValueError if there is none."""
        hosted = self._topic(topic).partition(partition)
        if hosted is None:
            raise ValueError(f"topic {topic!r} has no partition {partition}")
        return hosted

    def _topic(self, name: str) -> HostedTopic:
        topic = self.topics.with_name(name)
        if topic is None:
            raise ValueError(f"there is no topic {name!r}: create it first")
        return topic

    # Coordinators

    def move_coordinator(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        """Give a group or transactional id to another coordinator, which loads its state immediately."""
        self._check_node(node_id)
        if node_id not in self._up:
            raise ValueError(f"node {node_id} is down: bring it up before it coordinates {key!r}")
        self.coordinators.move(kind, key, node_id)
