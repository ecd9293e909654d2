"""Records finished in any order: one ledger for each partition, and what to commit of it (client/README.md rule 18).

Theory of operation. A ledger begins with what is committed, of which the metadata say what is done above the offset. A
position that moves in any other way begins a new one: `moves` of the position tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proxy.client.polled_records import PartitionRecords
from proxy.consumer.events import PositionFound
from proxy.consumer.partitions import OffsetAndMetadata
from proxy.consumer.positions import Positions
from proxy.offsets.commit_text import CommitTextError
from proxy.offsets.ledger import BROKER_METADATA_MAX, OUTSTANDING_MAX, OffsetLedger
from proxy.wire.values import TopicPartition


class _Kept(NamedTuple):
    ledger: OffsetLedger
    moves: int


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
        self._of[event.partition] = _Kept(ledger, position.moves)

    def room(self, partition: TopicPartition) -> int:
        """How many records may be returned before some are done."""
        kept = self._of.get(partition)
        return self._outstanding_max - (kept.ledger.outstanding if kept else 0)

    def delivered(self, parts: Iterable[PartitionRecords]) -> list[PartitionRecords]:
        """Note what is returned, and leave out what was done before."""
        self._forget_lost()
        wanted: list[PartitionRecords] = []
        for part in parts:
            ledger = self._ledger(part.partition)
            done = [(each, each) for each in part.records.positions.offsets if not ledger.delivered(each)]
            runs = part.records.outside(done) if done else [part.records]
            wanted += [part._replace(records=run) for run in runs or [part.records[:0]]]
            ledger.position_moved(part.next_offset)
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

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of each partition the mark and the ranges above it, where they have changed since `committed`."""
        self._forget_lost()
        found = {
            partition: OffsetAndMetadata(kept.ledger.mark, kept.ledger.text(BROKER_METADATA_MAX))
            for partition, kept in self._of.items()
            if kept.ledger.mark is not None
        }
        return {each: offset for each, offset in found.items() if self._committed.get(each) != offset}

    def committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Take note that the group has these offsets."""
        self._committed |= offsets

    def _ledger(self, partition: TopicPartition) -> OffsetLedger:
        moves = self._positions[partition].moves if partition in self._positions else -1
        kept = self._of.get(partition)
        if kept is None or kept.moves != moves:
            kept = self._of[partition] = _Kept(self._new(None), moves)
        return kept.ledger

    def _new(self, mark: int | None) -> OffsetLedger:
        return OffsetLedger(mark, outstanding_max=self._outstanding_max)

    def _forget_lost(self) -> None:
        for each in self._of.keys() - self._positions.assigned:
            del self._of[each]
            self._committed.pop(each, None)
