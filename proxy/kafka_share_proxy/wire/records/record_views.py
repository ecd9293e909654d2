"""Records of one batch as a sequence that builds each record on access."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.records.record_positions import KERNEL, Built, RecordPositions
from kafka_share_proxy.wire.records.records import CREATE_TIME, Record

BUILT_AT_ONCE = 256
"""Number of records that the Python fallback builds ahead, and of one piece of `async for`."""


class LazyRecords(Sequence[Record]):
    """Records of one batch, built anew on each access. A slice is a LazyRecords too.

    The bytes in which the positions were found must not change while it is in use.
    """

    __slots__ = ("area", "positions", "timestamp_type")

    def __init__(
        self, area: Buffer = b"", positions: RecordPositions | None = None, timestamp_type: int = CREATE_TIME
    ) -> None:
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
        """Iterate over the records as another type."""
        if KERNEL == "c" or len(self) <= BUILT_AT_ONCE:
            return self.positions.iterate(self.area, record_type, self.timestamp_type, origin)
        return chain.from_iterable(
            self.positions[first : first + BUILT_AT_ONCE].build(self.area, record_type, self.timestamp_type, origin)
            for first in range(0, len(self), BUILT_AT_ONCE)
        )

    def built(self) -> list[Record]:
        """Build all records in one call."""
        return self.positions.build(self.area, Record, self.timestamp_type)

    def extra_bytes(self, source: object) -> int:
        """Return the bytes that these records hold in addition to `source`: the decompressed area, and the columns of
        all positions.
        """
        area = self.area
        owner = area.obj if isinstance(area, memoryview) else area
        return len(self.positions.columns) + (0 if owner is source else len(area))

    def from_offset(self, offset: int) -> LazyRecords:
        if not len(self) or self.positions.offsets[0] >= offset:
            return self
        return self[bisect_left(self.positions.offsets, offset) :]

    def before_offset(self, offset: int) -> LazyRecords:
        """Return the records below an offset."""
        return self[: bisect_left(self.positions.offsets, offset)]

    def outside(self, ranges: Iterable[tuple[int, int]]) -> list[LazyRecords]:
        """Return runs of records. A range without records does not split a run.

        `ranges` are (first, last) offsets, ascending by first.
        """
        runs, offsets, begin = [], self.positions.offsets, 0
        for first, last in ranges:
            end = bisect_left(offsets, first, begin)
            after = bisect_right(offsets, last, end)
            if after > end > begin:
                runs.append(self[begin:end])
            begin = after if after > end else begin
        return [*runs, self[begin:]] if begin < len(self) else runs
