"""Which partitions moved from whom to whom while an assignment was balanced (AbstractStickyAssignor).

Where a partition of a topic has moved from A to B, another of the same topic need not move from B to A: the first one
goes back instead.
"""

from __future__ import annotations

from proxy.consumer.assignors.hash_order import PartitionHashSet
from proxy.wire.values import TopicPartition

Pair = tuple[str, str]
"""(from whom, to whom)"""


class PartitionMovements:
    """Which partitions one assignment moves, and from whom to whom."""

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, Pair] = {}
        self._moved: dict[tuple[str, Pair], PartitionHashSet] = {}
        """By topic and pair; never empty."""

    def better_choice(self, partition: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """The partition to move instead, so that none goes to and fro; mostly the one asked about."""
        giver = self._pair_of.get(partition, (giver, taker))[0]
        back = self._moved.get((partition.topic, (taker, giver)))
        return partition if back is None else back.first()

    def moved(self, partition: TopicPartition, giver: str, taker: str) -> None:
        """A partition that moves on counts as moved from where it was first; one that is back as not moved at all."""
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
