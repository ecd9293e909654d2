"""Where members and replicas stand (KIP-881): partitions go to members of their racks where that matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from proxy.consumer.assignors.interface import Members, PartitionCounts
from proxy.consumer.partitions import Partitions
from proxy.wire.values import TopicPartition

Racks = Mapping[TopicPartition, frozenset[str]]
"""Partition -> the racks of its replicas, of those whose racks are known."""
NOWHERE: frozenset[str] = frozenset()


def racks_of_members(members: Members) -> dict[str, str]:
    """Member id -> its rack, of those that name one."""
    return {member_id: each.rack for member_id, each in members.items() if each.rack}


def racks_matter(of_members: Iterable[str], partitions: Collection[TopicPartition], racks: Racks) -> bool:
    """Whether some partition has no replica in a rack in which others have, and members stand in any of these
    (AbstractPartitionAssignor.useRackAwareAssignment).
    """
    places = [racks.get(each, NOWHERE) for each in partitions]
    everywhere = NOWHERE.union(*places)
    return not everywhere.isdisjoint(of_members) and any(each != everywhere for each in places)


def all_partitions(counts: Mapping[str, int]) -> Partitions:
    """Of so many partitions of each topic."""
    return frozenset(TopicPartition(topic, number) for topic, count in counts.items() for number in range(count))


class Nearness:
    """For a sticky assignment (AbstractStickyAssignor.RackInfo): who is near to which partition."""

    def __init__(self, counts: PartitionCounts, members: Members, racks: Racks) -> None:
        partitions = all_partitions(counts)
        self._rack_of = racks_of_members(members)
        self.matters = racks_matter(self._rack_of.values(), partitions, racks)
        """False: nobody is far from anything."""
        self._racks = racks if self.matters else {}
        self._standing = Counter(self._rack_of.values())

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the member stands in a rack in which the partition has no replica."""
        return self.matters and member_id in self._rack_of and not self._is_near(member_id, partition)

    def rarest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """In the order of how many members stand in their racks."""
        if not self.matters:
            return partitions
        return sorted(partitions, key=lambda each: sum(self._standing[rack] for rack in self._racks.get(each, NOWHERE)))

    def next_one(self, partition: TopicPartition, members: Sequence[str], begin: int) -> int | None:
        """The place of the next of these that is near, round from one of them on."""
        for step in range(len(members)):
            at = (begin + step) % len(members)
            if self._is_near(members[at], partition):
                return at
        return None

    def _is_near(self, member_id: str, partition: TopicPartition) -> bool:
        return self._rack_of.get(member_id) in self._racks.get(partition, NOWHERE)


ANYWHERE = Nearness({}, {}, {})
"""Racks are not known, or make no difference."""
