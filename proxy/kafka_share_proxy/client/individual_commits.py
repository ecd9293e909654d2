"""Records finished in any order: an offset ledger for each partition, and what to commit (client/README.md rule 18).

A ledger begins at the committed offset, whose metadata contain the ranges done above it. A position that is moved in
any other way begins a new ledger; `moves` of the position detects this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka_share_proxy.client.polled_records import ConsumerRecord, PartitionRecords
from kafka_share_proxy.consumer.events import PositionFound
from kafka_share_proxy.consumer.fetch.positions import Positions
from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata
from kafka_share_proxy.offsets.commit_text import CommitTextError
from kafka_share_proxy.offsets.ledger import OUTSTANDING_MAX, LedgerFlow, OffsetLedger
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.values import TopicPartition

LeftOut = Mapping[TopicPartition, Sequence[OffsetSpan]]
"""Done records that a commit could not store, ascending."""


class _PartitionProgress(NamedTuple):
    ledger: OffsetLedger
    moves: int
    child_flows: tuple[LedgerFlow, ...] = ()
    """Ranges that a second flow reads."""

    def flow(self, part: PartitionRecords) -> OffsetLedger | LedgerFlow:
        """Return the ledger of the flow that delivered a part. A part of the second flow is within one range."""
        if part.flow is Flow.MAIN:
            return self.ledger
        return next(each for each in self.child_flows if part.next_offset <= (each.end or 0))

    @property
    def remaining(self) -> tuple[OffsetSpan, ...]:
        ends = ((each.position or 0, each.end or 0) for each in self.child_flows)
        return tuple(OffsetSpan(position, end) for position, end in ends if position < end)


class IndividualCommits:
    """Records done and delivered, for one consumer."""

    def __init__(self, positions: Positions, outstanding_max: int = OUTSTANDING_MAX) -> None:
        self._positions = positions
        self._outstanding_max = outstanding_max
        self._progress: dict[TopicPartition, _PartitionProgress] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def on_position(self, event: PositionFound) -> None:
        """Raises CommitTextError if the metadata with ranges cannot be parsed."""
        position = self._positions.get(event.partition)
        if position is None:
            return
        offset, metadata, _ = event.committed
        try:
            ledger = OffsetLedger.from_committed(offset, metadata, outstanding_max=self._outstanding_max)
        except CommitTextError:
            self._progress[event.partition] = _PartitionProgress(self._new(offset), position.moves)
            raise
        child_flows = () if event.main_from is None else tuple(map(ledger.flow, ledger.jump(event.main_from)))
        self._progress[event.partition] = _PartitionProgress(ledger, position.moves, child_flows)

    def room(self, partition: TopicPartition) -> int:
        progress = self._progress.get(partition)
        return self._outstanding_max - (progress.ledger.outstanding if progress else 0)

    def delivered(self, parts: Iterable[PartitionRecords]) -> list[PartitionRecords]:
        """Return the parts without records that are done already."""
        self._forget_lost()
        remaining: list[PartitionRecords] = []
        for part in parts:
            flow = self._progress_of(part).flow(part)
            done = [(each, each) for each in part.records.positions.offsets if not flow.delivered(each)]
            runs = part.records.outside(done) if done else [part.records]
            remaining += [part._replace(records=run) for run in runs or [part.records[:0]]]
            flow.position_moved(part.next_offset)
        return remaining

    def done(self, partition: TopicPartition, offset: int) -> bool:
        """Return False if the partition no longer belongs to this member.

        Raises ValueError if the record was not returned by poll, or is done already.
        """
        self._forget_lost()
        if partition not in self._progress:
            return False
        self._progress[partition].ledger.done(offset)
        return True

    def left_out(self, parts: Iterable[PartitionRecords], returned: Iterable[ConsumerRecord]) -> None:
        """Mark records as done that interceptors withheld."""
        returned_offsets = {(each.topic, each.partition, each.offset) for each in returned}
        for part in parts:
            for offset in part.records.positions.offsets:
                if (*part.partition, offset) not in returned_offsets:
                    self.done(part.partition, offset)

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return offsets with ranges, for partitions that changed since `committed`."""
        self._forget_lost()
        for progress in self._progress.values():
            progress.ledger.catch_up = progress.remaining
        offsets = {
            partition: OffsetAndMetadata(progress.ledger.offset, progress.ledger.text())
            for partition, progress in self._progress.items()
            if progress.ledger.offset is not None
        }
        return {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed |= offsets

    def _progress_of(self, part: PartitionRecords) -> _PartitionProgress:
        moves = self._positions[part.partition].moves if part.partition in self._positions else -1
        progress = self._progress.get(part.partition)
        if progress is None or progress.moves != moves:
            progress = self._progress[part.partition] = self._moved(progress, moves, part)
        return progress

    def _moved(self, progress: _PartitionProgress | None, moves: int, part: PartitionRecords) -> _PartitionProgress:
        """Start a new ledger for the main flow after a move."""
        if progress is None or not progress.remaining:
            return _PartitionProgress(self._new(None), moves)
        begin = part.records.positions.offsets[0] if part.records else part.next_offset
        if begin >= (progress.ledger.position or 0):
            return progress._replace(moves=moves)
        committed = progress.ledger.offset
        if committed is None or begin <= committed:
            return _PartitionProgress(self._new(None), moves)
        before = [(start, min(end, begin)) for start, end in progress.ledger.snapshot().ranges if start < begin]
        ledger = OffsetLedger(committed, before, outstanding_max=self._outstanding_max)
        ledger.jump(begin)
        remaining = [OffsetSpan(start, min(end, begin)) for start, end in progress.remaining if start < begin]
        return _PartitionProgress(ledger, moves, tuple(map(ledger.flow, remaining)))

    def _new(self, committed: int | None) -> OffsetLedger:
        return OffsetLedger(committed, outstanding_max=self._outstanding_max)

    def _forget_lost(self) -> None:
        for each in self._progress.keys() - self._positions.assigned:
            del self._progress[each]
            self._committed.pop(each, None)


def count_offsets(left_out: LeftOut) -> int:
    return sum(span.end - span.start for ranges in left_out.values() for span in ranges)


def left_out_text(partition: TopicPartition, ranges: Sequence[OffsetSpan]) -> str:
    offsets = sum(span.end - span.start for span in ranges)
    return (
        f"OffsetCommit of {partition}: {offsets} done offsets in {len(ranges)} ranges above the committed offset are "
        "left out, and are delivered again after a restart: they do not fit into the metadata of an offset at this "
        "broker (offset.metadata.max.bytes), or exceed commits.ranges_max of the proxy. Finish the oldest records, or "
        "connect through the proxy"
    )
