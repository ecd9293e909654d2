"""Which partitions are to be revoked, when it is completed, which were lost (KIP-983, consumer/README.md rules 11-14).

Theory of operation. The network side reports what happened at any time: `requested`, `regained`, `lost`. The
application's poll has a begin and an end: `begin_poll` completes what the application let pass, `end_poll` gives it
what was reported meanwhile. So a partition goes

    requested -> reported to the application (next) -> completed at the start of the following poll
                                       ^      | delay
                                       +-- thereafter

and leaves from anywhere when it is lost or given back. Each entry remembers the rebalance that asked for it: of an
older one nothing is completed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from proxy.consumer.partitions import NOTHING, Partitions, shown
from proxy.wire.values import TopicPartition


class RevokeStage(Enum):
    """Where a partition that is to be revoked stands."""

    UNREPORTED = "unreported"
    """Asked for since the last poll ended: the application does not know."""
    NEXT = "next"
    """Completed at the start of the next poll, unless delayed."""
    THEREAFTER = "thereafter"
    """Delayed: completed at the start of the poll after the next, unless delayed again."""


class RevokeLedger:
    """The lists of the proposal, for one consumer."""

    def __init__(self) -> None:
        self.rebalance_id = 0
        """Of the last rebalance that asked for anything."""
        self._entries: dict[TopicPartition, tuple[RevokeStage, int]] = {}
        self._lost_now: Partitions = NOTHING
        self._lost_pending: set[TopicPartition] = set()

    @property
    def next(self) -> Partitions:
        """To be revoked at the start of the next poll; what the application sees."""
        return self._at(RevokeStage.NEXT)

    @property
    def thereafter(self) -> Partitions:
        """Delayed by one more poll."""
        return self._at(RevokeStage.THEREAFTER)

    @property
    def unreported(self) -> Partitions:
        """Asked for, and not yet told to the application."""
        return self._at(RevokeStage.UNREPORTED)

    @property
    def lost_now(self) -> Partitions:
        """Lost in the last poll, or before it and after the one before."""
        return self._lost_now

    @property
    def lost_pending(self) -> Partitions:
        """Lost since the last poll ended."""
        return frozenset(self._lost_pending)

    @property
    def outstanding(self) -> Partitions:
        """All that is asked for and neither completed nor lost."""
        return frozenset(self._entries)

    def begin_poll(self) -> Partitions:
        """Complete what the application did not delay.

        Returns: the partitions that are given up now; those of an older rebalance are dropped without a word.
        """
        due = self.next
        completed = frozenset(each for each in due if self._entries[each][1] == self.rebalance_id)
        for each in due:
            del self._entries[each]
        self._lost_now = NOTHING
        self._move(self.thereafter, RevokeStage.NEXT)
        return completed

    def end_poll(self) -> tuple[Partitions, Partitions]:
        """What this poll tells the application: (to be revoked, lost)."""
        self._move(self.unreported, RevokeStage.NEXT)
        self._lost_now |= self._lost_pending
        self._lost_pending.clear()
        return self.next, self._lost_now

    def requested(self, partitions: Iterable[TopicPartition], rebalance_id: int) -> Partitions:
        """A rebalance wants these back. What is listed already keeps its place, and belongs to this rebalance now.

        Returns: those that are complete at once: they were lost, and the application has had nothing of them since.

        Raises:
            ValueError: a later rebalance has asked already.
        """
        if rebalance_id < self.rebalance_id:
            raise ValueError(f"rebalance {rebalance_id} is over: {self.rebalance_id} has begun")
        self.rebalance_id = rebalance_id
        wanted = frozenset(partitions)
        free = wanted & (self._lost_now | self._lost_pending)
        for each in wanted - free:
            stage, _ = self._entries.get(each, (RevokeStage.UNREPORTED, 0))
            self._entries[each] = (stage, rebalance_id)
        return free

    def regained(self, partitions: Iterable[TopicPartition]) -> None:
        """A rebalance leaves these, or gives them back: nothing of them completes later. A loss is still reported."""
        for each in partitions:
            self._entries.pop(each, None)

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """The broker has, or may have, given these to others."""
        for each in partitions:
            self._entries.pop(each, None)
            if each not in self._lost_now:
                self._lost_pending.add(each)

    def delay(self, partitions: Iterable[TopicPartition]) -> bool:
        """Put the completion off by one poll.

        Returns: False if any of them is lost; the others are delayed all the same.

        Raises:
            ValueError: one of them is neither to be revoked nor lost; nothing is delayed.
        """
        asked = frozenset(partitions)
        gone = asked & (self._lost_now | self._lost_pending)
        known = self.next | self.thereafter
        if unknown := asked - gone - known:
            raise ValueError(f"not to be revoked: {shown(unknown)}; delay what poll returned as to_be_revoked")
        self._move(asked - gone, RevokeStage.THEREAFTER)
        return not gone

    def release_all(self) -> Partitions:
        """The member leaves: everything outstanding is completed now, reported or not."""
        released = self.outstanding
        self._entries.clear()
        return released

    def _at(self, stage: RevokeStage) -> Partitions:
        return frozenset(each for each, (at, _) in self._entries.items() if at is stage)

    def _move(self, partitions: Partitions, stage: RevokeStage) -> None:
        for each in partitions:
            self._entries[each] = (stage, self._entries[each][1])
