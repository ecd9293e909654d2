"""Assignor `range`: each member gets a contiguous range of partitions of each topic (RangeAssignor).

Where racks matter (KIP-881), members first get partitions with a replica in their rack, up to their share. In this
step, topics with the same partition count and the same subscribers are divided together, one partition number after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafka_share_proxy.consumer.assignors.hash_order import string_order
from kafka_share_proxy.consumer.assignors.interface import (
    Assigned,
    Members,
    PartitionCounts,
    SlotWeights,
    static_members_first,
)
from kafka_share_proxy.consumer.assignors.racks import NOWHERE, Racks, racks_matter, racks_of_members
from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition


class RangeAssignor:
    """Divides each topic into ranges."""

    name = "range"
    protocol = RebalanceProtocol.EAGER

    def assign(
        self,
        counts: PartitionCounts,
        members: Members,
        racks: Racks | None = None,
        weights: SlotWeights | None = None,  # noqa: ARG002 - interface
    ) -> Assigned:
        assigned: Assigned = {member_id: [] for member_id in members}
        of_members = racks_of_members(members)
        divisions = []
        for topic in string_order(topic for topic in _topics(members) if counts.get(topic)):
            subscribers = static_members_first(
                (name for name, each in members.items() if topic in each.topics), members
            )
            divisions.append(_Division(topic, counts[topic], subscribers, of_members, racks or {}, assigned))
        uses_racks = any(each.uses_racks for each in divisions)
        if uses_racks:
            _give_within_racks(divisions)
        for each in divisions:
            each.give_runs(lambda member_id, partition: True)  # noqa: ARG005 - no restriction
        if uses_racks:
            for partitions in assigned.values():
                partitions.sort()
        return assigned

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:  # noqa: ARG002 - interface
        return None


class _Division:
    """Division of one topic (TopicAssignmentState)."""

    def __init__(
        self, topic: str, count: int, subscribers: list[str], of_members: Mapping[str, str], racks: Racks,
        assigned: Assigned,
    ) -> None:  # fmt: skip
        self.subscribers = subscribers
        self.partitions = [TopicPartition(topic, number) for number in range(count)]
        self._racks = racks
        self._of_members = {member_id: of_members.get(member_id) for member_id in subscribers}
        standing = [rack for rack in self._of_members.values() if rack is not None]
        self.uses_racks = racks_matter(standing, self.partitions, racks)
        self._each, self._extra = divmod(count, len(subscribers))
        self._unassigned = dict.fromkeys(self.partitions)
        self._assigned_count = dict.fromkeys(subscribers, 0)
        self._assigned = assigned

    def room(self, member_id: str) -> int:
        return max(0, self._each + (self._extra > 0) - self._assigned_count[member_id])

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        """True if a replica is in the member's rack, or the member has no rack."""
        rack = self._of_members[member_id]
        return rack is None or rack in self._racks.get(partition, NOWHERE)

    def give(self, member_id: str, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._assigned[member_id].append(each)
            self._assigned_count[member_id] += 1
            del self._unassigned[each]
        self._extra -= self._assigned_count[member_id] > self._each

    def give_runs(self, may_have: Callable[[str, TopicPartition], bool]) -> None:
        """Assign each member the first remaining partitions that it may have."""
        for member_id in self.subscribers:
            near = [each for each in self._unassigned if may_have(member_id, each)]
            if mine := near[: self.room(member_id)]:
                self.give(member_id, mine)


def _give_within_racks(divisions: list[_Division]) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_Division]] = {}
    for each in divisions:
        alike.setdefault((tuple(each.subscribers), len(each.partitions)), []).append(each)
    for together in alike.values():
        if len(together) > 1:
            _give_alike(together)
        elif together[0].uses_racks:
            together[0].give_runs(together[0].is_near)


def _give_alike(divisions: list[_Division]) -> None:
    remaining = list(divisions[0].subscribers)
    for number in range(len(divisions[0].partitions)):
        for member_id in remaining:
            if all(each.room(member_id) and each.is_near(member_id, each.partitions[number]) for each in divisions):
                for each in divisions:
                    each.give(member_id, each.partitions[number : number + 1])
                if not any(each.room(member_id) for each in divisions):
                    remaining.remove(member_id)
                break


def _topics(members: Members) -> list[str]:
    """Return the subscribed topics in Java's order: from a map of members, into a set."""
    return string_order(topic for member_id in string_order(members) for topic in members[member_id].topics)
