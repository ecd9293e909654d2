"""Sticky assignment where all members subscribe to the same topics (AbstractStickyAssignor, constrained case).

With P partitions and M members, each member gets the minimum of P // M partitions, and P % M members get one more. Each
member keeps its previous partitions up to that number. The remaining partitions are distributed round-robin, first to
members below the minimum and then to those at it. Where racks matter (KIP-881), no member keeps a partition without a
replica in its rack, and the remaining partitions go first to members in a replica's rack, as far as possible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kafka_share_proxy.consumer.assignors.interface import Assigned, PartitionCounts
from kafka_share_proxy.consumer.assignors.previous_owners import PreviousOwners
from kafka_share_proxy.consumer.assignors.racks import ANYWHERE, Nearness
from kafka_share_proxy.wire.values import TopicPartition


class EqualSubscriptions:
    """One assignment to members that all subscribe to the same topics."""

    def __init__(self, counts: PartitionCounts, previous: PreviousOwners, near: Nearness = ANYWHERE) -> None:
        self._counts = counts
        self._near = near
        self._previous = previous
        total = sum(counts.values())
        self._minimum, self._above_minimum_max = divmod(total, len(previous.owned))
        self._maximum = self._minimum + (self._above_minimum_max > 0)
        self._above_minimum = 0
        self._below: list[str] = []
        """Members below the minimum."""
        self._at_minimum: list[str] = []
        self._given_up: dict[TopicPartition, str] = {}
        self.assigned: Assigned = {}
        self.moving: dict[TopicPartition, str] = {}
        """Partition -> its new owner."""

    def assign(self) -> Assigned:
        for member_id, owned in self._previous.owned.items():
            mine = [each for each in owned if each not in self._previous.claimed_twice]
            mine.sort(key=lambda each: (each.partition, each.topic))
            self._keep(member_id, [each for each in mine if not self._near.is_far(member_id, each)])
            self._given_up.update((each, member_id) for each in mine if self._near.is_far(member_id, each))
        self._below.sort()
        self._at_minimum.sort()
        self._distribute()
        return self.assigned

    def _keep(self, member_id: str, owned: list[TopicPartition]) -> None:
        room_above = self._above_minimum < self._above_minimum_max
        if len(owned) < self._minimum:
            quota = len(owned)
            self._below.append(member_id)
        elif len(owned) >= self._maximum and room_above:
            quota = self._maximum
            self._above_minimum += 1
            if self._above_minimum == self._above_minimum_max:
                self._at_minimum.clear()
        else:
            quota = self._minimum
            if room_above:
                self._at_minimum.append(member_id)
        self.assigned[member_id] = owned[:quota]
        self._given_up.update(dict.fromkeys(owned[quota:], member_id))

    def _distribute(self) -> None:
        assigned_partitions = {each for partitions in self.assigned.values() for each in partitions}
        unassigned = self._near.rarest_first(
            [each for each in self._all_partitions() if each not in assigned_partitions]
        )
        if self._near.matters:
            unassigned = self._distribute_within_racks(unassigned)
        for partition, member_id in zip(unassigned, self._next_members(), strict=False):
            self._give(partition, member_id)

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self.assigned[member_id].append(partition)
        if partition in self._previous.claimed_twice or self._given_up.get(partition, member_id) != member_id:
            self.moving[partition] = member_id

    def _distribute_within_racks(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the unassigned rest."""
        unassigned, position = [], 0
        for partition in partitions:
            at = self._near.next_near(partition, self._below, position)
            if at is not None:
                member_id = self._below[at]
                position = at + 1
                self._give(partition, member_id)
                if len(self.assigned[member_id]) >= self._minimum:
                    position = at
                    del self._below[at]
                    if self._above_minimum < self._above_minimum_max:
                        self._at_minimum.append(member_id)
            elif (at := self._near.next_near(partition, self._at_minimum, 0)) is not None:
                self._give(partition, self._at_minimum.pop(at))
                self._above_minimum += 1
                if self._above_minimum == self._above_minimum_max:
                    self._at_minimum.clear()
            else:
                unassigned.append(partition)
        return unassigned

    def _next_members(self) -> Iterator[str]:
        """Yield members round-robin until all have the minimum, then each member at the minimum once."""
        below, at_minimum = list(self._below), deque(self._at_minimum)
        while below:
            for member_id in tuple(below):
                yield member_id
                if len(self.assigned[member_id]) == self._minimum:
                    below.remove(member_id)
                    at_minimum.append(member_id)
        yield from at_minimum

    def _all_partitions(self) -> Iterator[TopicPartition]:
        for topic in sorted(self._counts):
            yield from (TopicPartition(topic, number) for number in range(self._counts[topic]))
