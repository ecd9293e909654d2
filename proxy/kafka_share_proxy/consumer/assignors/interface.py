"""Interface of assignors, used by the leader of a group and by every member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.groups.group_protocol import GroupSubscription
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition

Members = Mapping[str, GroupSubscription]
"""Subscription of each member, by member id, in the order of the JoinGroup response."""
PartitionCounts = Mapping[str, int]
"""Number of partitions of each existing topic."""
SlotWeights = Mapping[str, Sequence[float]]
"""Share of the load for each slot, by view. Partition n belongs to slot n modulo the number of slots."""
Assigned = dict[str, list[TopicPartition]]
"""Partitions of each member, by member id. Contains every member."""


class Assignor(Protocol):
    """One assignment strategy (ConsumerPartitionAssignor)."""

    name: str
    """Name in `partition.assignment.strategy` and in JoinGroup."""
    protocol: RebalanceProtocol
    """EAGER, or COOPERATIVE if a member may keep its partitions while it joins."""

    def assign(
        self,
        counts: PartitionCounts,
        members: Members,
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
        weights: SlotWeights | None = None,
    ) -> Assigned:
        """Assign the partitions of all subscribed topics, like the Java class of the same name if there is one.

        Args:
            counts: partition count of every existing topic.
            members: all members of the group.
            racks: racks of each partition's replicas. None: unknown.
            weights: slot weights of views that have a plan with weights. Java's assignors count partitions.
        """
        ...

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:
        """Return user data for the member's own subscription, which this assignor reads at the leader.

        Args:
            assigned: the member's last assignment, None before the first.
            generation: generation of that assignment.
        """
        ...
