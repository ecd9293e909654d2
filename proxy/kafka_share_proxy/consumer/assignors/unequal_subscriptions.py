"""Sticky assignment where members subscribe to different topics (AbstractStickyAssignor, general case).

Each partition without an owner goes to the member with the fewest. Then partitions move one by one from members with
more to members with fewer, until no move helps. If the result is not more balanced than before the moves, they are
undone. Racks apply to the partitions that members keep and to those without an owner, but not to the moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_share_proxy.consumer.assignors.hash_order import PartitionHashSet
from kafka_share_proxy.consumer.assignors.interface import Assigned, Members, PartitionCounts
from kafka_share_proxy.consumer.assignors.previous_owners import PreviousOwners, earlier_claims
from kafka_share_proxy.consumer.assignors.racks import ANYWHERE, Nearness
from kafka_share_proxy.wire.values import TopicPartition

Pair = tuple[str, str]


class PartitionMovements:
    """Partitions that one assignment moves, by previous and new owner."""

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, Pair] = {}
        self._moved: dict[tuple[str, Pair], PartitionHashSet] = {}
        """Moved partitions by topic and pair of members. No set is empty."""

    def better_choice(self, partition: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """Return the partition to move instead: one that moves back, else the given partition."""
        giver = self._pair_of.get(partition, (giver, taker))[0]
        back = self._moved.get((partition.topic, (taker, giver)))
        return partition if back is None else back.first()

    def moved(self, partition: TopicPartition, giver: str, taker: str) -> None:
        """Note a move. Several moves of a partition count as one from its first owner."""
        before = self._pair_of.pop(partition, None)
        if before is not None:
            self._forget(partition, before)
            if before[0] == taker:
                return
            giver = before[0]
        self._pair_of[partition] = (giver, taker)
        self._moved.setdefault((partition.topic, (giver, taker)), PartitionHashSet()).add(partition)

    def _forget(self, partition: TopicPartition, pair: Pair) -> None:
        moved = self._moved[partition.topic, pair]
        moved.remove(partition)
        if not len(moved):
            del self._moved[partition.topic, pair]


class UnequalSubscriptions:
    """One assignment to members that subscribe to different topics."""

    def __init__(
        self, counts: PartitionCounts, members: Members, previous: PreviousOwners, near: Nearness = ANYWHERE
    ) -> None:
        self._counts = counts
        self._near = near
        self._topics = {member_id: _existing(members[member_id].topics, counts) for member_id in previous.owned}
        self._subscribers: dict[str, list[str]] = {topic: [] for topic in counts}
        for member_id, topics in self._topics.items():
            for topic in topics:
                self._subscribers[topic].append(member_id)
        self._earlier = earlier_claims(previous)
        self._previous = previous
        self._movements = PartitionMovements()
        self.assigned: Assigned = {}
        self._owner: dict[TopicPartition, str] = {}
        self._participants: list[str] = []
        self._balanced: bool | None = None
        """None: to be computed again."""

    def assign(self) -> Assigned:
        lost_some = self._keep_valid()
        everything = self._all_partitions()
        unassigned = [each for each in everything if each not in self._owner]
        began_empty = not self._owner
        self._distribute(unassigned)
        self._participants = [member_id for member_id in self.assigned if self._can_change(member_id)]
        everything, unassigned = self._movable(everything), self._movable(unassigned)
        before = {member_id: list(partitions) for member_id, partitions in self.assigned.items()}
        if not lost_some:
            self._improve(unassigned)
        if self._improve(everything) and not began_empty and not self._is_better_than(before):
            self.assigned = before
        return self.assigned

    def _keep_valid(self) -> bool:
        """Return True if a member lost a partition."""
        dropped = False
        for member_id, owned in self._previous.owned.items():
            valid_partitions = [
                each
                for each in owned
                if each.topic in self._topics[member_id] and not self._near.is_far(member_id, each)
            ]
            dropped |= len(valid_partitions) < len(owned)
            self.assigned[member_id] = valid_partitions
            self._owner.update(dict.fromkeys(valid_partitions, member_id))
        return dropped

    def _all_partitions(self) -> list[TopicPartition]:
        """Return partitions, those of topics with few subscribers first."""
        topics = sorted(self._counts, key=lambda topic: (len(self._subscribers[topic]), topic))
        return [TopicPartition(topic, number) for topic in topics for number in range(self._counts[topic])]

    def _movable(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [each for each in partitions if len(self._subscribers[each.topic]) > 1]

    def _least_loaded(self, subscribers: Iterable[str]) -> str:
        return min(subscribers, key=lambda member_id: (len(self.assigned[member_id]), member_id))

    def _distribute(self, partitions: list[TopicPartition]) -> None:
        far = []
        for partition in partitions:
            near = [each for each in self._subscribers[partition.topic] if not self._near.is_far(each, partition)]
            if near:
                self._give(partition, near)
            else:
                far.append(partition)
        for partition in far:
            self._give(partition, self._subscribers[partition.topic])

    def _give(self, partition: TopicPartition, subscribers: Iterable[str]) -> None:
        taker = self._least_loaded(subscribers)
        self.assigned[taker].append(partition)
        self._owner[partition] = taker

    def _improve(self, partitions: list[TopicPartition]) -> bool:
        anything = False
        while self._improve_once(partitions):
            anything = True
        return anything

    def _improve_once(self, partitions: list[TopicPartition]) -> bool:
        moved = False
        for partition in partitions:
            if self._is_balanced():
                break
            taker = self._better_owner(partition)
            if taker is not None:
                self._move(partition, taker)
                moved = True
        return moved

    def _better_owner(self, partition: TopicPartition) -> str | None:
        """Return the owner of an earlier generation, or else a subscriber with at least two partitions fewer than the
        owner.
        """
        load = len(self.assigned[self._owner[partition]])
        subscribers = self._subscribers[partition.topic]
        earlier = self._earlier.get(partition)
        # Java does not check that the earlier owner still subscribes, and may assign it an unsubscribed topic.
        if earlier in subscribers and load > len(self.assigned[earlier]) + 1:
            return earlier
        taker = self._least_loaded(subscribers)
        return taker if load > len(self.assigned[taker]) + 1 else None

    def _move(self, candidate: TopicPartition, taker: str) -> None:
        partition = self._movements.better_choice(candidate, self._owner[candidate], taker)
        giver = self._owner[partition]
        self._movements.moved(partition, giver, taker)
        self.assigned[giver].remove(partition)
        self.assigned[taker].append(partition)
        self._owner[partition] = taker
        self._balanced = None

    def _is_balanced(self) -> bool:
        if self._balanced is None:
            self._balanced = self._compute_is_balanced()
        return self._balanced

    def _compute_is_balanced(self) -> bool:
        loads = {member_id: len(self.assigned[member_id]) for member_id in self._participants}
        if not loads or min(loads.values()) >= max(loads.values()) - 1:
            return True
        fullest: dict[str, int] = {}
        for partition, owner in self._owner.items():
            fullest[partition.topic] = max(fullest.get(partition.topic, 0), loads.get(owner, 0))
        return all(
            fullest.get(topic, 0) <= load + 1 for member_id, load in loads.items() for topic in self._topics[member_id]
        )

    def _can_change(self, member_id: str) -> bool:
        available = sum(self._counts[topic] for topic in self._topics[member_id])
        assigned = self.assigned[member_id]
        return len(assigned) < available or any(len(self._subscribers[each.topic]) > 1 for each in assigned)

    def _is_better_than(self, before: Assigned) -> bool:
        return balance_score(map(len, self._of_participants(self.assigned))) < balance_score(
            map(len, self._of_participants(before))
        )

    def _of_participants(self, assigned: Assigned) -> Iterator[list[TopicPartition]]:
        return (assigned[member_id] for member_id in self._participants)


def balance_score(loads: Iterable[int]) -> int:
    """Return the sum of load differences over all pairs of members."""
    ascending = sorted(loads)
    return sum(load * (2 * rank - len(ascending) + 1) for rank, load in enumerate(ascending))


def _existing(topics: Iterable[str], counts: PartitionCounts) -> tuple[str, ...]:
    return tuple(dict.fromkeys(topic for topic in topics if topic in counts))
