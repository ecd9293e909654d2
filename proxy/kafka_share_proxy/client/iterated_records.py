"""Records of one poll of `async for`, returned one by one (client/README.md rule 28).

Records are returned in pieces (client/README.md rule 29). The extension checks each without a coroutine. The position
advances when a piece ends, or on request (`settle`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple

from kafka_share_proxy.client.deserializers import Deserializers, RecordDeserializationError
from kafka_share_proxy.client.polled_records import BuiltRecords, ConsumerRecord, PartitionRecords, PolledRecords
from kafka_share_proxy.consumer.core import ConsumerCore
from kafka_share_proxy.consumer.fetch.positions import Position
from kafka_share_proxy.consumer.partitions import Flow
from kafka_share_proxy.wire.records.record_positions import EXTENSION
from kafka_share_proxy.wire.values import TopicPartition

if TYPE_CHECKING:
    from kafka_share_proxy.wire.records._record_positions import HandedOut


class _Piece(NamedTuple):
    """Records of one partition, with their position."""

    parts: Sequence[PartitionRecords]
    """Parts of the poll that contain the records, ascending."""
    records: Sequence[ConsumerRecord]
    position: Position
    moves: int
    """Value of `position.moves` when the records were polled."""
    is_deserialized: bool = False
    """True if keys and values are deserialized."""

    @property
    def is_stale(self) -> bool:
        """True if the position was sought, lost or given up since the poll."""
        return self.position.moves != self.moves

    @property
    def may_be_returned(self) -> bool:
        """True if its position has not moved and its partition is not paused."""
        return not self.is_stale and not self.position.paused

    def split(self, count: int) -> tuple[_Piece, _Piece]:
        """Split the piece after `count` records, fewer than it has."""
        at = self.records[count].offset
        first: list[PartitionRecords] = []
        rest: list[PartitionRecords] = []
        for part in self.parts:
            if part.next_offset <= at:
                first.append(part)
                continue
            if not rest:
                first.append(part._replace(records=part.records.before_offset(at), next_offset=at))
            rest.append(part._replace(records=part.records.from_offset(at)))
        return (
            self._replace(parts=first, records=self.records[:count]),
            self._replace(parts=rest, records=self.records[count:]),
        )


class IteratedRecords:
    """Records of one poll that were not returned yet."""

    __slots__ = ("_core", "_deserializers", "_handed_out", "_piece", "_pieces", "current", "moves", "position")

    def __init__(self, core: ConsumerCore, deserializers: Deserializers | None = None) -> None:
        self._core = core
        self._deserializers = deserializers or Deserializers()
        self._pieces: deque[_Piece] = deque()
        self._piece: _Piece | None = None
        """Piece that `current` belongs to. None if there is none."""
        self.current: Iterator[ConsumerRecord] = iter(())
        """Next records. Valid while `moves` equals `position.moves`."""
        self.position = Position()
        self.moves = self.position.moves
        self._handed_out: HandedOut[ConsumerRecord] | None = None

    def async_iterator(self, fallback: AsyncIterator[ConsumerRecord]) -> AsyncIterator[ConsumerRecord]:
        """Return the iterator of `async for`. The extension returns `current`, and `fallback` gets further records."""
        if EXTENSION is None:
            return fallback
        if self._handed_out is None:
            self._handed_out = EXTENSION.handed_out(fallback.__anext__)
            self._set_current(self.current)
        return self._handed_out

    def _set_current(self, records: Iterator[ConsumerRecord]) -> None:
        self.current = records
        if self._handed_out is not None:
            self._handed_out.begin(records, self.position, self.moves)

    @property
    def has_remaining(self) -> bool:
        """True if records remain that may be returned now."""
        present = self._piece is not None and self._piece.may_be_returned and length_hint(self.current)
        return bool(present) or any(piece.may_be_returned for piece in self._pieces)

    def begin(self, polled: PolledRecords) -> None:
        """Append the records of a poll."""
        for parts, records in polled.pieces():
            positions = self._core.positions if parts[0].flow is Flow.MAIN else self._core.catch_up.positions
            position = positions.get(parts[0].partition)
            if position is not None:
                self._pieces.append(_Piece(parts, records, position, position.moves))

    def advance(self) -> bool:
        """Continue with the next piece that may be returned. Return False if there is none.

        Raises:
            RecordDeserializationError: its first record cannot be deserialized. The piece remains the next one.
        """
        self.settle()
        self._piece = None
        self._set_current(iter(()))
        piece = self._next_piece()
        if piece is None:
            return False
        piece = self._deserialized(piece)
        self._piece, self.position, self.moves = piece, piece.position, piece.moves
        self._set_current(iter(piece.records))
        return True

    def settle(self) -> None:
        """Advance the position to the end of the last record returned."""
        if self._piece is None or self._piece.is_stale:
            return
        part, records, remaining = self._piece.parts[-1], self._piece.records, length_hint(self.current)
        if remaining < len(records) or not remaining:
            next_offset = records[-remaining].offset if remaining else part.next_offset
            self._core.consumed(part.partition, next_offset, part.flow)

    def take(self, records_max: int) -> PolledRecords:
        """Remove and return up to `records_max` remaining records, for a poll. Positions are not changed.

        Raises:
            RecordDeserializationError: the first record cannot be deserialized. It remains the first.
        """
        self._put_back()
        pieces: list[_Piece] = []
        room = records_max
        while room > 0 and (piece := self._next_piece()) is not None:
            if len(piece.records) > room:
                piece, rest = piece.split(room)
                self._pieces.appendleft(rest)
            try:
                piece = self._deserialized(piece)
            except RecordDeserializationError:
                if not pieces:
                    raise
                break
            pieces.append(piece)
            room -= len(piece.records)
        return BuiltRecords(
            [part for each in pieces for part in each.parts], [record for each in pieces for record in each.records]
        )

    def forget(self, partition: TopicPartition) -> None:
        """Drop the remaining records of a partition."""
        self._put_back()
        self._pieces = deque(each for each in self._pieces if each.parts[0].partition != partition)

    def _deserialized(self, piece: _Piece) -> _Piece:
        """Deserialize a piece up to the first record that fails. The rest becomes the next piece."""
        if piece.is_deserialized or not self._deserializers:
            return piece
        records, error = self._deserializers.deserialized(piece.records)
        if error is None:
            return piece._replace(records=records, is_deserialized=True)
        if not records:
            self._pieces.appendleft(piece)
            raise error
        first, rest = piece.split(len(records))
        self._pieces.appendleft(rest)
        return first._replace(records=records, is_deserialized=True)

    def _next_piece(self) -> _Piece | None:
        """Remove and return the next piece that may be returned. Stale pieces are dropped, paused ones stay."""
        paused: list[_Piece] = []
        following = None
        while following is None and self._pieces:
            piece = self._pieces.popleft()
            if piece.may_be_returned:
                following = piece
            elif not piece.is_stale:
                paused.append(piece)
        self._pieces.extendleft(reversed(paused))
        return following

    def _put_back(self) -> None:
        """Make the rest of the current piece the next piece again."""
        self.settle()
        if self._piece is not None and (remaining := length_hint(self.current)):
            handed_out = len(self._piece.records) - remaining
            self._pieces.appendleft(self._piece.split(handed_out)[1] if handed_out else self._piece)
        self._piece = None
        self._set_current(iter(()))
