"""Interface of assignors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.groups.group_protocol import GroupSubscription
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition

Members = Mapping[str, GroupSubscription]
"""Subscriptions in the order of the JoinGroup response."""
PartitionCounts = Mapping[str, int]
SlotWeights = Mapping[str, Sequence[float]]
"""Share of the load for each slot, by view. Partition n belongs to slot n modulo the number of slots."""
Assigned = dict[str, list[TopicPartition]]
"""Contains every member."""


class Assignor(Protocol):
    """Assignment strategy (ConsumerPartitionAssignor)."""

    name: str
    """Name in `partition.assignment.strategy` and in JoinGroup."""
    protocol: RebalanceProtocol

    def assign(
        self,
        counts: PartitionCounts,
        members: Members,
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
        weights: SlotWeights | None = None,
    ) -> Assigned:
        """Assign like the Java class of the same name if there is one.

        `racks` are those of each partition's replicas, if known. `weights` are slot weights of views that have a plan
        with weights. Java's assignors count partitions.
        """
        ...

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:
        """Return user data for this assignor at the leader."""
        ...


def static_members_first(member_ids: Iterable[str], members: Members) -> list[str]:
    """Sort members as Java (MemberInfo): static ones by instance id, then the others by member id."""

    def key(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(member_ids, key=key)
