"""What an assignor is, for the member that leads a group and for those that are led."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from proxy.consumer.deadlines import RebalanceProtocol
from proxy.consumer.group_protocol import GroupSubscription
from proxy.consumer.partitions import Partitions
from proxy.wire.values import TopicPartition

Members = Mapping[str, GroupSubscription]
"""Member id -> its subscription, in the order of JoinGroup's answer."""
PartitionCounts = Mapping[str, int]
"""Topic -> number of partitions, of topics that exist."""
Assigned = dict[str, list[TopicPartition]]
"""Member id -> its partitions; every member is there."""


class Assignor(Protocol):
    """One strategy (ConsumerPartitionAssignor)."""

    name: str
    """In `partition.assignment.strategy` and in JoinGroup."""
    protocol: RebalanceProtocol
    """EAGER, or COOPERATIVE if a member may keep what it has while it joins."""

    def assign(
        self, counts: PartitionCounts, members: Members, racks: Mapping[TopicPartition, frozenset[str]] | None = None
    ) -> Assigned:
        """Divide the partitions of all subscribed topics; the same as the Java class of that name.

        Args:
            counts: of every topic that exists.
            members: all of the group.
            racks: partition -> the racks of its replicas; None: they are not known.
        """
        ...

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:
        """What our own subscription says to this assignor at the leader.

        Args:
            assigned: our last assignment, None before the first.
            generation: in which we got it.
        """
        ...
