"""Partitions to be revoked, their stage, and lost partitions (KIP-983, consumer/README.md rules 11-14).

A partition passes these stages:

    requested -> reported to the application (next) -> completed at the start of the following poll
                                       ^      | delay
                                       +-- thereafter

It is removed at any stage if it is lost or regained.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kafka_share_proxy.consumer.partitions import NOTHING, Partitions, shown
from kafka_share_proxy.wire.values import TopicPartition


class RevokeStage(Enum):
    """Stage of the revocation of a partition."""

    UNREPORTED = "unreported"
    """The application does not know yet."""
    NEXT = "next"
    THEREAFTER = "thereafter"
    """Completed one poll later, unless delayed again."""


class RevokeLedger:
    """Partitions to be revoked and lost, as the proposal (KIP-983) lists them."""

    def __init__(self) -> None:
        self.rebalance_id = 0
        self._entries: dict[TopicPartition, tuple[RevokeStage, int]] = {}
        self._lost_now: Partitions = NOTHING
        self._lost_pending: set[TopicPartition] = set()

    @property
    def next(self) -> Partitions:
        return self._at(RevokeStage.NEXT)

    @property
    def thereafter(self) -> Partitions:
        return self._at(RevokeStage.THEREAFTER)

    @property
    def unreported(self) -> Partitions:
        return self._at(RevokeStage.UNREPORTED)

    @property
    def lost_now(self) -> Partitions:
        """Partitions that the last poll reported as lost."""
        return self._lost_now

    @property
    def lost_pending(self) -> Partitions:
        """Lost partitions that the next poll reports."""
        return frozenset(self._lost_pending)

    @property
    def outstanding(self) -> Partitions:
        """Partitions to be revoked, in any stage."""
        return frozenset(self._entries)

    def begin_poll(self) -> Partitions:
        """Return the partitions to give up now. Those of an older rebalance are dropped."""
        due = self.next
        completed = frozenset(each for each in due if self._entries[each][1] == self.rebalance_id)
        for each in due:
            del self._entries[each]
        self._lost_now = NOTHING
        self._move(self.thereafter, RevokeStage.NEXT)
        return completed

    def end_poll(self) -> tuple[Partitions, Partitions]:
        """Return partitions as (to be revoked, lost)."""
        self._move(self.unreported, RevokeStage.NEXT)
        self._lost_now |= self._lost_pending
        self._lost_pending.clear()
        return self.next, self._lost_now

    def request(self, partitions: Iterable[TopicPartition], rebalance_id: int) -> Partitions:
        """Add revocations. Partitions that are listed already keep their stage.

        Returns the partitions that are lost already: the application has nothing to release there.

        Raises ValueError if a later rebalance has requested a revocation already.
        """
        if rebalance_id < self.rebalance_id:
            raise ValueError(f"rebalance {rebalance_id} is over: {self.rebalance_id} has begun")
        self.rebalance_id = rebalance_id
        revoked = frozenset(partitions)
        not_owned = revoked & (self._lost_now | self._lost_pending)
        for each in revoked - not_owned:
            stage, _ = self._entries.get(each, (RevokeStage.UNREPORTED, 0))
            self._entries[each] = (stage, rebalance_id)
        return not_owned

    def cancel(self, partitions: Iterable[TopicPartition]) -> None:
        """Cancel revocations. A loss is still reported."""
        for each in partitions:
            self._entries.pop(each, None)

    def add_lost(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._entries.pop(each, None)
            if each not in self._lost_now:
                self._lost_pending.add(each)

    def delay(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return False if any partition is lost; the others are delayed.

        Raises ValueError if one of the partitions is neither to be revoked nor lost. None is delayed then.
        """
        requested = frozenset(partitions)
        lost = requested & (self._lost_now | self._lost_pending)
        known = self.next | self.thereafter
        if unknown := requested - lost - known:
            raise ValueError(f"not to be revoked: {shown(unknown)}; delay what poll returned as to_be_revoked")
        self._move(requested - lost, RevokeStage.THEREAFTER)
        return not lost

    def release_all(self) -> Partitions:
        """Remove all revocations, and return their partitions."""
        released = self.outstanding
        self._entries.clear()
        return released

    def _at(self, stage: RevokeStage) -> Partitions:
        return frozenset(each for each, (at, _) in self._entries.items() if at is stage)

    def _move(self, partitions: Partitions, stage: RevokeStage) -> None:
        for each in partitions:
            self._entries[each] = (stage, self._entries[each][1])
