"""Partitions moved between members while an assignment is balanced (AbstractStickyAssignor).

If a partition of a topic has moved from A to B, no other partition of the topic needs to move from B to A: the first
one moves back instead.
"""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.hash_order import PartitionHashSet
from kafka_share_proxy.wire.values import TopicPartition

Pair = tuple[str, str]


class PartitionMovements:
    """Partitions that one assignment moves, by previous and new owner."""

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, Pair] = {}
        self._moved: dict[tuple[str, Pair], PartitionHashSet] = {}
        """Moved partitions by topic and pair. No set is empty."""

    def better_choice(self, partition: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """Return the partition to move instead: one that moves back, if there is one, else the given partition."""
        giver = self._pair_of.get(partition, (giver, taker))[0]
        back = self._moved.get((partition.topic, (taker, giver)))
        return partition if back is None else back.first()

    def moved(self, partition: TopicPartition, giver: str, taker: str) -> None:
        """Several moves of a partition count as one from its first owner; a move back cancels it."""
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
