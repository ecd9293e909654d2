"""The records of one batch as a sequence that makes each of them when somebody asks for it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

from proxy.wire.primitives import Buffer
from proxy.wire.record_positions import Built, RecordPositions
from proxy.wire.records import CREATE_TIME, Record

BUILT_AT_ONCE = 256
"""Records that an iteration makes ahead: enough that the calls do not count, few enough to be wasted."""


class LazyRecords(Sequence[Record]):
    """Records of one batch, ascending by offset, made anew each time; a slice of it is one, too.

    It reads from the bytes in which the positions were found, which must not change while it is used. Records that it
    has given out hold copies of theirs.
    """

    __slots__ = ("area", "positions", "timestamp_type")

    def __init__(
        self, area: Buffer = b"", positions: RecordPositions | None = None, timestamp_type: int = CREATE_TIME
    ) -> None:
        """What `records.find_records` found, and the timestamp type of the batch."""
        self.area = area
        self.positions = RecordPositions() if positions is None else positions
        self.timestamp_type = timestamp_type

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> LazyRecords: ...
    def __getitem__(self, index: int | slice) -> Record | LazyRecords:
        if isinstance(index, slice):
            return LazyRecords(self.area, self.positions[index], self.timestamp_type)
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        return self[at : at + 1].built()[0]

    def __iter__(self) -> Iterator[Record]:
        return self.iterated(Record)

    def iterated(self, record_type: type[Built], origin: tuple[Hashable, ...] = ()) -> Iterator[Built]:
        """Each of them as another type, made of the origin and the fields of a record."""
        if len(self) <= BUILT_AT_ONCE:
            return iter(self.positions.build(self.area, record_type, self.timestamp_type, origin))
        return chain.from_iterable(
            self.positions[first : first + BUILT_AT_ONCE].build(self.area, record_type, self.timestamp_type, origin)
            for first in range(0, len(self), BUILT_AT_ONCE)
        )

    def built(self) -> list[Record]:
        """All of them, made at once."""
        return self.positions.build(self.area, Record, self.timestamp_type)

    def from_offset(self, offset: int) -> LazyRecords:
        """Those at that offset and behind it."""
        if not len(self) or self.positions.offsets[0] >= offset:
            return self
        return self[bisect_left(self.positions.offsets, offset) :]

    def before_offset(self, offset: int) -> LazyRecords:
        """Those below that offset."""
        return self[: bisect_left(self.positions.offsets, offset)]

    def outside(self, ranges: Iterable[tuple[int, int]]) -> list[LazyRecords]:
        """Those at offsets that are in none of the ranges, in runs: a range that has none of them does not end one.

        Args:
            ranges: (first, last) offset of each, ascending; none begins before the one in front of it.
        """
        found, offsets, begin = [], self.positions.offsets, 0
        for first, last in ranges:
            end = bisect_left(offsets, first, begin)
            behind = bisect_right(offsets, last, end)
            if behind > end > begin:
                found.append(self[begin:end])
            begin = behind if behind > end else begin
        return [*found, self[begin:]] if begin < len(self) else found
