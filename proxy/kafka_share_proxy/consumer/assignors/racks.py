"""Racks of members and replicas (KIP-881)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_share_proxy.consumer.assignors.interface import Members, PartitionCounts
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition

Racks = Mapping[TopicPartition, frozenset[str]]
NOWHERE: frozenset[str] = frozenset()


def racks_of_members(members: Members) -> dict[str, str]:
    return {member_id: each.rack for member_id, each in members.items() if each.rack}


def racks_matter(of_members: Iterable[str], partitions: Collection[TopicPartition], racks: Racks) -> bool:
    """Return True if racks affect the assignment (AbstractPartitionAssignor.useRackAwareAssignment)."""
    replica_racks = [racks.get(each, NOWHERE) for each in partitions]
    everywhere = NOWHERE.union(*replica_racks)
    return not everywhere.isdisjoint(of_members) and any(each != everywhere for each in replica_racks)


def all_partitions(counts: Mapping[str, int]) -> Partitions:
    return frozenset(TopicPartition(topic, number) for topic, count in counts.items() for number in range(count))


class Nearness:
    """Nearness of members to partitions by rack (AbstractStickyAssignor.RackInfo)."""

    def __init__(self, counts: PartitionCounts, members: Members, racks: Racks) -> None:
        partitions = all_partitions(counts)
        self._rack_of = racks_of_members(members)
        self.matters = racks_matter(self._rack_of.values(), partitions, racks)
        self._racks = racks if self.matters else {}
        self._members_per_rack = Counter(self._rack_of.values())

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """True if the member is in a rack without a replica."""
        return self.matters and member_id in self._rack_of and not self._is_near(member_id, partition)

    def rarest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sort partitions by the number of members in racks of their replicas. Unchanged if racks do not matter."""
        if not self.matters:
            return partitions
        return sorted(
            partitions, key=lambda each: sum(self._members_per_rack[rack] for rack in self._racks.get(each, NOWHERE))
        )

    def next_near(self, partition: TopicPartition, members: Sequence[str], begin: int) -> int | None:
        """Return the index of the next member in a rack of the partition, from `begin` on and then from the start."""
        for step in range(len(members)):
            at = (begin + step) % len(members)
            if self._is_near(members[at], partition):
                return at
        return None

    def _is_near(self, member_id: str, partition: TopicPartition) -> bool:
        return self._rack_of.get(member_id) in self._racks.get(partition, NOWHERE)


ANYWHERE = Nearness({}, {}, {})
