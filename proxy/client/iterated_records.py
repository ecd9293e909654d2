"""What one poll of `async for` brought, handed out record by record (client/README.md rule 28).

Theory of operation. Records are made in pieces, and each piece knows the position that they came from: while that was
not moved or given up, the next record may be handed out, which is one comparison of numbers for each. The position goes
behind a piece when it ends, and behind the last record that was handed out when somebody asks (`settle`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import NamedTuple

from proxy.client.polled_records import ConsumerRecord, MadeRecords, PartitionRecords, PolledRecords
from proxy.consumer.core import ConsumerCore
from proxy.consumer.partitions import Flow
from proxy.consumer.positions import Position
from proxy.wire.values import TopicPartition


class _Piece(NamedTuple):
    """Records of one partition, and where they came from."""

    part: PartitionRecords
    records: Sequence[ConsumerRecord]
    position: Position
    moves: int
    """Of the position, when they came."""

    @property
    def is_stale(self) -> bool:
        """Whether it was sought, lost or given up since."""
        return self.position.moves != self.moves

    def split(self, count: int) -> tuple[_Piece, _Piece]:
        """The first so many records of more, and the others."""
        at, kept = self.records[count].offset, self.part.records
        first = self.part._replace(records=kept.before_offset(at), next_offset=at)
        return (
            self._replace(part=first, records=self.records[:count]),
            self._replace(part=self.part._replace(records=kept.from_offset(at)), records=self.records[count:]),
        )


class IteratedRecords:
    """The records of one poll that were not handed out yet."""

    __slots__ = ("_core", "_piece", "_pieces", "current", "moves", "position")

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._pieces: deque[_Piece] = deque()
        self._piece: _Piece | None = None
        """Out of which `current` comes; None where there is none."""
        self.current: Iterator[ConsumerRecord] = iter(())
        """The next ones, while `moves` is that of `position`."""
        self.position = Position()
        self.moves = self.position.moves

    @property
    def has_left(self) -> bool:
        """Whether there are any."""
        return bool(self._pieces or length_hint(self.current))

    def begin(self, polled: PolledRecords) -> None:
        """Hand these out next."""
        for part, records in polled.pieces():
            positions = self._core.positions if part.flow is Flow.MAIN else self._core.catch_up.positions
            position = positions.get(part.partition)
            if position is not None:
                self._pieces.append(_Piece(part, records, position, position.moves))

    def advance(self) -> bool:
        """Go on to the next piece that is not stale. Returns: whether there is one."""
        self.settle()
        self._piece, self.current = None, iter(())
        while self._pieces:
            piece = self._pieces.popleft()
            if not piece.is_stale:
                self._piece, self.current = piece, iter(piece.records)
                self.position, self.moves = piece.position, piece.moves
                return True
        return False

    def settle(self) -> None:
        """Have the position stand behind the last record that was handed out."""
        if self._piece is None or self._piece.is_stale:
            return
        part, records, left = self._piece.part, self._piece.records, length_hint(self.current)
        if left < len(records) or not left:
            next_offset = records[-left].offset if left else part.next_offset
            self._core.consumed(part.partition, next_offset, part.flow)

    def take(self, records_max: int) -> PolledRecords:
        """What is left, for a poll that is told so. Positions stay."""
        self._put_back()
        taken: list[_Piece] = []
        room = records_max
        while self._pieces and room > 0:
            piece = self._pieces.popleft()
            if piece.is_stale:
                continue
            if len(piece.records) > room:
                piece, rest = piece.split(room)
                self._pieces.appendleft(rest)
            taken.append(piece)
            room -= len(piece.records)
        return MadeRecords([each.part for each in taken], [record for each in taken for record in each.records])

    def forget(self, partition: TopicPartition) -> None:
        """It goes on elsewhere."""
        self._put_back()
        self._pieces = deque(each for each in self._pieces if each.part.partition != partition)

    def _put_back(self) -> None:
        """What was not handed out of the present piece is a piece again."""
        self.settle()
        if self._piece is not None and (left := length_hint(self.current)):
            handed_out = len(self._piece.records) - left
            self._pieces.appendleft(self._piece.split(handed_out)[1] if handed_out else self._piece)
        self._piece, self.current = None, iter(())
