"""Loads of members while partitions of different weights are balanced between them.

All steps are deterministic: ties are broken by the number of partitions, then by the order of members and partitions.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence

from kafka_share_proxy.consumer.assignors.interface import Assigned, Members
from kafka_share_proxy.wire.values import TopicPartition

WeightedPartition = tuple[float, TopicPartition]
"""Weight first, so that lists are sorted by weight."""
Exchange = tuple[WeightedPartition, WeightedPartition | None]
"""Partition that the heavier member gives up, and the one it receives in return."""
STEPS_PER_MEMBER = 4
"""Limit on moves and swaps, for the time: each one lowers the sum of squared loads."""
PARTNERS_MAX = 8
"""Maximum number of members with which one member tries an exchange in a step."""
NEGLIGIBLE = 0.001
"""Differences of load that are ignored, as a fraction of the mean load."""


class MemberLoads:
    """Loads of the members during one assignment."""

    def __init__(self, order: Sequence[str], members: Members, weights: Mapping[TopicPartition, float]) -> None:
        """`order` breaks ties between members with equal loads."""
        self._order = {member_id: rank for rank, member_id in enumerate(order)}
        self._weights = weights
        self._topics = {member_id: frozenset(members[member_id].topics) for member_id in order}
        self._subscribers: dict[str, list[str]] = {}
        for member_id in order:
            for topic in self._topics[member_id]:
                self._subscribers.setdefault(topic, []).append(member_id)
        self._owned: dict[str, list[WeightedPartition]] = {member_id: [] for member_id in order}
        self._loads = dict.fromkeys(order, 0.0)
        self._free = dict.fromkeys(weights)
        self._negligible = NEGLIGIBLE * sum(weights.values()) / max(1, len(order))

    @property
    def heaviest(self) -> float:
        return max(self._loads.values(), default=0.0)

    @property
    def lightest(self) -> float:
        return min(self._loads.values(), default=0.0)

    def assigned(self) -> Assigned:
        return {member_id: sorted(partition for _, partition in owned) for member_id, owned in self._owned.items()}

    def give(self, member_id: str, partition: TopicPartition) -> None:
        del self._free[partition]
        self._add(member_id, (self._weights[partition], partition))

    def shed(self, limit: float, floor: float = math.inf) -> None:
        """Free partitions of members above the limit.

        Each step frees the heaviest partition that leaves the member at least `floor`. If there is none, it frees the
        lightest partition that suffices, or else the heaviest one. With the default floor few partitions become free.
        """
        for member_id, owned in self._owned.items():
            while owned and (excess := self._loads[member_id] - limit - self._negligible) > 0:
                room = self._loads[member_id] - floor + self._negligible
                fitting = bisect_right(owned, room, key=_weight)
                sufficing = min(bisect_left(owned, excess, key=_weight), len(owned) - 1)
                each = owned[fitting - 1 if fitting else sufficing]
                self._remove(member_id, each)
                self._free[each[1]] = None

    def distribute(self) -> None:
        """Assign the free partitions, heaviest first, each to the subscriber with the lowest load."""
        heaps: dict[tuple[str, ...], list[tuple[float, int, int, str]]] = {}
        by_topic = {topic: tuple(subscribers) for topic, subscribers in self._subscribers.items()}
        for partition in sorted(self._free, key=lambda each: (-self._weights[each], each)):
            subscribers = by_topic[partition.topic]
            if subscribers not in heaps:
                heaps[subscribers] = [self._rank(member_id) for member_id in subscribers]
                heapq.heapify(heaps[subscribers])
            heap = heaps[subscribers]
            # Ranks only grow here, so an outdated entry is never after its correct position.
            while heap[0] != (rank := self._rank(heap[0][-1])):
                heapq.heapreplace(heap, rank)
            self.give(heap[0][-1], partition)

    def balance(self, heaviest: float, lightest: float) -> bool:
        """Exchange partitions until no load is above `heaviest` or below `lightest`. Return True if that succeeds."""
        for _ in range(STEPS_PER_MEMBER * len(self._owned)):
            ranked = sorted(self._owned, key=self._rank)
            too_heavy = self._loads[ranked[-1]] > heaviest + self._negligible
            too_light = self._loads[ranked[0]] < lightest - self._negligible
            if not too_heavy and not too_light:
                return True
            pairs = self._pairs(ranked, too_heavy=too_heavy, too_light=too_light)
            if not any(self._level(giver, taker) for giver, taker in pairs):
                return False
        return False

    def _pairs(self, ranked: Sequence[str], *, too_heavy: bool, too_light: bool) -> Iterator[tuple[str, str]]:
        if too_heavy:
            yield from ((ranked[-1], taker) for taker in ranked[:-1][:PARTNERS_MAX])
        if too_light:
            yield from ((giver, ranked[0]) for giver in ranked[:0:-1][:PARTNERS_MAX])

    def _level(self, giver: str, taker: str) -> bool:
        """Make the best exchange between two members. Return False if none brings their loads closer together."""
        gap = self._loads[giver] - self._loads[taker]
        best = min(self._exchanges(giver, taker), key=lambda each: (abs(gap / 2 - _gain(each)), each[1] is not None,
                   each[0][1]), default=None)  # fmt: skip
        if best is None or not self._negligible < _gain(best) < gap - self._negligible:
            return False
        giver_partition, taker_partition = best
        self._remove(giver, giver_partition)
        self._add(taker, giver_partition)
        if taker_partition is not None:
            self._remove(taker, taker_partition)
            self._add(giver, taker_partition)
        return True

    def _exchanges(self, giver: str, taker: str) -> Iterator[Exchange]:
        """Yield moves, and the swaps whose gain is nearest to half the gap."""
        half = (self._loads[giver] - self._loads[taker]) / 2
        back = [each for each in self._owned[taker] if each[1].topic in self._topics[giver]]
        for giver_partition in self._owned[giver]:
            if giver_partition[1].topic in self._topics[taker]:
                yield giver_partition, None
                position = bisect_left(back, (giver_partition[0] - half,))
                yield from ((giver_partition, each) for each in back[max(0, position - 1) : position + 1])

    def _add(self, member_id: str, each: WeightedPartition) -> None:
        insort(self._owned[member_id], each)
        self._loads[member_id] += each[0]

    def _remove(self, member_id: str, each: WeightedPartition) -> None:
        owned = self._owned[member_id]
        del owned[bisect_left(owned, each)]
        self._loads[member_id] -= each[0]

    def _rank(self, member_id: str) -> tuple[float, int, int, str]:
        return self._loads[member_id], len(self._owned[member_id]), self._order[member_id], member_id


def _gain(exchange: Exchange) -> float:
    giver_partition, taker_partition = exchange
    return giver_partition[0] - (0.0 if taker_partition is None else taker_partition[0])


def _weight(each: WeightedPartition) -> float:
    return each[0]
