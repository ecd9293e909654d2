"""Records finished in any order: one ledger for each partition, and what to commit of it (client/README.md rule 18).

Theory of operation. A ledger begins with what is committed, of which the metadata say what is done above the offset. A
position that moves in any other way begins a new one: `moves` of the position tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proxy.client.polled_records import ConsumerRecord, PartitionRecords
from proxy.consumer.events import PositionFound
from proxy.consumer.partitions import Flow, OffsetAndMetadata
from proxy.consumer.positions import Positions
from proxy.offsets.commit_text import CommitTextError
from proxy.offsets.ledger import BROKER_METADATA_MAX, OUTSTANDING_MAX, LedgerFlow, OffsetLedger
from proxy.offsets.ranges import OffsetSpan
from proxy.wire.values import TopicPartition


class _Kept(NamedTuple):
    ledger: OffsetLedger
    moves: int
    behind: tuple[LedgerFlow, ...] = ()
    """What a second flow reads, ascending."""

    def flow(self, part: PartitionRecords) -> OffsetLedger | LedgerFlow:
        """Which one a part belongs to; a part of the second flow ends where its range does, or before."""
        if part.flow is Flow.MAIN:
            return self.ledger
        return next(each for each in self.behind if part.next_offset <= (each.end or 0))

    @property
    def left(self) -> tuple[OffsetSpan, ...]:
        """What the second flow was not given yet."""
        ends = ((each.position or 0, each.end or 0) for each in self.behind)
        return tuple(OffsetSpan(position, end) for position, end in ends if position < end)


class IndividualCommits:
    """What one consumer's application has done of what it was given."""

    def __init__(self, positions: Positions, outstanding_max: int = OUTSTANDING_MAX) -> None:
        self._positions = positions
        self._outstanding_max = outstanding_max
        self._of: dict[TopicPartition, _Kept] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def found(self, event: PositionFound) -> None:
        """A partition goes on at what is committed. CommitTextError: metadata of ranges that cannot be read."""
        position = self._positions.get(event.partition)
        if position is None:
            return
        offset, metadata, _ = event.committed
        try:
            ledger = OffsetLedger.from_committed(offset, metadata, outstanding_max=self._outstanding_max)
        except CommitTextError:
            self._of[event.partition] = _Kept(self._new(offset), position.moves)
            raise
        behind = () if event.main_from is None else tuple(map(ledger.flow, ledger.jump(event.main_from)))
        self._of[event.partition] = _Kept(ledger, position.moves, behind)

    def room(self, partition: TopicPartition) -> int:
        """How many records may be returned before some are done."""
        kept = self._of.get(partition)
        return self._outstanding_max - (kept.ledger.outstanding if kept else 0)

    def delivered(self, parts: Iterable[PartitionRecords]) -> list[PartitionRecords]:
        """Note what is returned, and leave out what was done before."""
        self._forget_lost()
        wanted: list[PartitionRecords] = []
        for part in parts:
            flow = self._kept(part).flow(part)
            done = [(each, each) for each in part.records.positions.offsets if not flow.delivered(each)]
            runs = part.records.outside(done) if done else [part.records]
            wanted += [part._replace(records=run) for run in runs or [part.records[:0]]]
            flow.position_moved(part.next_offset)
        return wanted

    def done(self, partition: TopicPartition, offset: int) -> bool:
        """Note that a record is processed. Returns: False if its partition is not this member's any more.

        Raises:
            ValueError: it was not returned by poll, or is done already.
        """
        self._forget_lost()
        if partition not in self._of:
            return False
        self._of[partition].ledger.done(offset)
        return True

    def left_out(self, parts: Iterable[PartitionRecords], returned: Iterable[ConsumerRecord]) -> None:
        """The application gets only some of the records of a poll: the others count as done."""
        kept = {(each.topic, each.partition, each.offset) for each in returned}
        for part in parts:
            for offset in part.records.positions.offsets:
                if (*part.partition, offset) not in kept:
                    self.done(part.partition, offset)

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of each partition the mark and the ranges above it, where they have changed since `committed`."""
        self._forget_lost()
        for kept in self._of.values():
            kept.ledger.catch_up = kept.left
        found = {
            partition: OffsetAndMetadata(kept.ledger.mark, kept.ledger.text(BROKER_METADATA_MAX))
            for partition, kept in self._of.items()
            if kept.ledger.mark is not None
        }
        return {each: offset for each, offset in found.items() if self._committed.get(each) != offset}

    def committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Take note that the group has these offsets."""
        self._committed |= offsets

    def _kept(self, part: PartitionRecords) -> _Kept:
        moves = self._positions[part.partition].moves if part.partition in self._positions else -1
        kept = self._of.get(part.partition)
        if kept is None or kept.moves != moves:
            kept = self._of[part.partition] = self._moved(kept, moves, part)
        return kept

    def _moved(self, kept: _Kept | None, moves: int, part: PartitionRecords) -> _Kept:
        """The main flow goes on elsewhere; what a second flow reads before that stays as it is."""
        if kept is None or not kept.left:
            return _Kept(self._new(None), moves)
        begin = part.records.positions.offsets[0] if part.records else part.next_offset
        if begin >= (kept.ledger.position or 0):
            return kept._replace(moves=moves)
        mark = kept.ledger.mark
        if mark is None or begin <= mark:
            return _Kept(self._new(None), moves)
        before = [(start, min(end, begin)) for start, end in kept.ledger.snapshot().ranges if start < begin]
        ledger = OffsetLedger(mark, before, outstanding_max=self._outstanding_max)
        ledger.jump(begin)
        left = [OffsetSpan(start, min(end, begin)) for start, end in kept.left if start < begin]
        return _Kept(ledger, moves, tuple(map(ledger.flow, left)))

    def _new(self, mark: int | None) -> OffsetLedger:
        return OffsetLedger(mark, outstanding_max=self._outstanding_max)

    def _forget_lost(self) -> None:
        for each in self._of.keys() - self._positions.assigned:
            del self._of[each]
            self._committed.pop(each, None)
