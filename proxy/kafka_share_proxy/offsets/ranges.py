"""Set of offsets of one partition, stored as ranges: merging, gaps, absorption by the committed offset.

Ranges are half open in memory, `[start, end)`. No two ranges of a set overlap or touch, so both their starts and their
ends ascend. They are stored in two arrays of int64.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import lt
from typing import NamedTuple

OFFSET_MAX = 2**63 - 2
"""Largest offset that a range may contain: its end must be an int64 as well."""
REBUILD_FROM = 64
"""Number of changed ranges from which the arrays are rebuilt: each insertion moves all later elements."""


class OffsetSpan(NamedTuple):
    """Offsets from `start` to before `end`."""

    start: int
    end: int

    @property
    def last(self) -> int:
        return self.end - 1

    def __str__(self) -> str:
        return f"{self.start}-{self.end - 1}"


class RangeChange(NamedTuple):
    """Change of stored ranges: puts and tombstones."""

    put: tuple[OffsetSpan, ...] = ()
    """Ranges that only the new set contains, ascending."""
    removed: tuple[OffsetSpan, ...] = ()
    """Ranges that only the old set contained, ascending."""

    def __bool__(self) -> bool:
        return bool(self.put or self.removed)


NO_CHANGE = RangeChange()


def checked(start: int, end: int) -> None:
    """Raise ValueError unless `[start, end)` has at least one offset, and only valid ones."""
    if not 0 <= start < end:
        raise ValueError(f"[{start}, {end}) is no range of offsets: it must begin at 0 or later and hold an offset")
    if end > OFFSET_MAX + 1:
        raise ValueError(f"[{start}, {end}) is no range of offsets: the largest is {OFFSET_MAX}")


def ascending(ranges: Iterable[tuple[int, int]]) -> list[OffsetSpan]:
    """Return the same offsets as few ranges in order. Raises ValueError for an invalid range."""
    merged: list[OffsetSpan] = []
    start = end = -1
    for begin, stop in sorted(ranges):
        checked(begin, stop)
        if begin > end:
            if start >= 0:
                merged.append(OffsetSpan(start, end))
            start, end = begin, stop
        elif stop > end:
            end = stop
    if start >= 0:
        merged.append(OffsetSpan(start, end))
    return merged


class OffsetRanges:
    """Set of offsets as ranges. Not thread-safe. Kernels read its arrays, and change them only as `replace` does."""

    __slots__ = ("ends", "starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Build the set from half-open ranges in any order. Raises ValueError for an invalid range."""
        spans = ascending(ranges)
        self.starts = array("q", [start for start, _ in spans])
        self.ends = array("q", [end for _, end in spans])

    @classmethod
    def from_bounds(cls, starts: Sequence[int], ends: Sequence[int]) -> OffsetRanges:
        """Return the set of starts and their ends, in any order; fast if they ascend. Raises ValueError for an invalid
        range.
        """
        in_order = starts and starts[0] >= 0 and ends[-1] <= OFFSET_MAX + 1
        if not (in_order and all(map(lt, starts, ends)) and all(map(lt, ends, starts[1:]))):
            return cls(zip(starts, ends, strict=True))
        return _of_arrays(array("q", starts), array("q", ends))

    @classmethod
    def of_one(cls, start: int, end: int) -> OffsetRanges:
        """Return the set of one range. Raises ValueError if it is invalid."""
        checked(start, end)
        return _of_arrays(array("q", (start,)), array("q", (end,)))

    # Content

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.starts)

    def __iter__(self) -> Iterator[OffsetSpan]:
        """Iterate over the ranges, ascending."""
        return map(OffsetSpan, self.starts, self.ends)

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.range_at(offset) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetRanges) and self.starts == other.starts and self.ends == other.ends

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """Return inclusive ranges, as in `43-45,48-49`."""
        return ",".join([f"{start}-{end - 1}" for start, end in zip(self.starts, self.ends, strict=True)])

    def __repr__(self) -> str:
        shown = str(OffsetRanges(list(self)[:10]))
        return f"<OffsetRanges {shown}{',...' if len(self) > 10 else ''}>"

    @property
    def offsets(self) -> int:
        """Number of offsets in the set."""
        return sum(self.ends) - sum(self.starts)

    @property
    def start(self) -> int:
        """Start of the first range; beyond all offsets if the set is empty."""
        return self.starts[0] if self.starts else OFFSET_MAX + 1

    @property
    def end(self) -> int:
        """End of the last range; 0 if the set is empty."""
        return self.ends[-1] if self.ends else 0

    def copy(self) -> OffsetRanges:
        """Return ranges with the same offsets. Changes of one do not affect the other."""
        return _of_arrays(self.starts[:], self.ends[:])

    def range_at(self, offset: int) -> OffsetSpan | None:
        """Return the range that contains the offset, or None."""
        at = bisect_right(self.starts, offset) - 1
        return self._at(at) if at >= 0 and offset < self.ends[at] else None

    def covers(self, start: int, end: int) -> bool:
        """Return True if the set contains all of `[start, end)`."""
        at = bisect_right(self.starts, start) - 1
        return start >= end or (at >= 0 and end <= self.ends[at])

    def gaps(self, start: int, end: int) -> Iterator[OffsetSpan]:
        """Yield the parts of `[start, end)` that are not in the set, ascending."""
        for at in range(bisect_right(self.ends, start), len(self.starts)):
            if start >= end:
                return
            if start < self.starts[at]:
                yield OffsetSpan(start, min(end, self.starts[at]))
            start = self.ends[at]
        if start < end:
            yield OffsetSpan(start, end)

    def _at(self, at: int) -> OffsetSpan:
        return OffsetSpan(self.starts[at], self.ends[at])

    def _between(self, low: int, high: int) -> tuple[OffsetSpan, ...]:
        if high - low < 2:
            return (self._at(low),) if high > low else ()
        return tuple(map(OffsetSpan, self.starts[low:high], self.ends[low:high]))

    # Merging

    def merge(self, start: int, end: int) -> RangeChange:
        """Merge one range (offsets/README.md rule 3). Raises ValueError for an invalid range."""
        checked(start, end)
        low, high, change = self._merging_one(start, end)
        if not change.put:
            return change
        self.replace(low, high, *change.put[0])
        return change

    def replace(self, low: int, high: int, start: int, end: int) -> None:
        """Put one range in place of the ranges at the indices [low, high), all of which it contains."""
        starts, ends = self.starts, self.ends
        if low == high:
            starts.insert(low, start)
            ends.insert(low, end)
            return
        starts[low], ends[low] = start, end
        if high - low > 1:
            del starts[low + 1 : high], ends[low + 1 : high]

    def count_merged(self, start: int, end: int) -> int:
        """Return the number of ranges after merging one more."""
        low, high = self._touched(start, end)
        return len(self.starts) + 1 - (high - low)

    def _touched(self, start: int, end: int) -> tuple[int, int]:
        """Return the indices [low, high) of the stored ranges that `[start, end)` overlaps or touches."""
        low = bisect_left(self.ends, start)
        return low, bisect_right(self.starts, end, low)

    def _merging_one(self, start: int, end: int) -> tuple[int, int, RangeChange]:
        """Return the indices [low, high) of the stored ranges that one range replaces, and the change."""
        starts, ends = self.starts, self.ends
        low, high = self._touched(start, end)
        if low == high:
            return low, high, RangeChange((OffsetSpan(start, end),))
        first, last = starts[low], ends[high - 1]
        if high - low == 1 and first <= start and end <= last:
            return low, high, NO_CHANGE
        put = OffsetSpan(min(start, first), max(end, last))
        return low, high, RangeChange((put,), self._between(low, high))

    def merge_all(self, ranges: Iterable[tuple[int, int]]) -> RangeChange:
        """Merge ranges, and return the total change."""
        change = self.merging(ranges)
        self.apply(change)
        return change

    def merging(self, ranges: Iterable[tuple[int, int]]) -> RangeChange:
        """Return the change that `merge_all` would make, without making it."""
        if isinstance(ranges, OffsetRanges) and len(ranges.starts) == 1:  # as in nearly all commits
            return self._merging_one(ranges.starts[0], ranges.ends[0])[2]
        starts, ends, count = self.starts, self.ends, len(self.starts)
        spans: list[tuple[int, int, int, int]] = []
        low = high = 0  # the stored ranges from low to before high become part of [begin, stop)
        begin = stop = -1
        for start, end in ranges if isinstance(ranges, OffsetRanges) else ascending(ranges):
            if start > stop:
                spans.append((begin, stop, low, high))
                low = high if high < count and ends[high] >= start else bisect_left(ends, start, high)
                high = low
                begin = starts[low] if low < count and starts[low] < start else start
                stop = end
            elif end > stop:
                stop = end
            if high < count and starts[high] <= stop:
                high = bisect_right(starts, stop, high)
                stop = max(stop, ends[high - 1])
        spans.append((begin, stop, low, high))
        return self._changed(spans[1:])

    def _changed(self, spans: list[tuple[int, int, int, int]]) -> RangeChange:
        starts, ends = self.starts, self.ends
        added: list[OffsetSpan] = []
        removed: list[OffsetSpan] = []
        for begin, stop, low, high in spans:
            if low == high:
                added.append(OffsetSpan(begin, stop))
            elif high - low > 1 or starts[low] != begin or ends[low] != stop:
                added.append(OffsetSpan(begin, stop))
                removed += map(OffsetSpan, starts[low:high], ends[low:high])
        return RangeChange(tuple(added), tuple(removed))

    def union(self, other: OffsetRanges) -> OffsetRanges:
        """Return a new set with the offsets of both."""
        both = self.copy()
        both.merge_all(other)
        return both

    def apply(self, change: RangeChange) -> None:
        """Apply a change that was computed for this set. Raises ValueError if it does not match any longer."""
        if len(change.put) + len(change.removed) >= REBUILD_FROM:
            self._rebuild(change)
            return
        if len(change.put) == len(change.removed) == 1 and _holds(change.put[0], change.removed[0]):
            at = self._index_of(change.removed[0])  # one range became longer, as most do
            self.starts[at], self.ends[at] = change.put[0]
            return
        for at in reversed([self._index_of(removed_span) for removed_span in change.removed]):
            del self.starts[at], self.ends[at]
        for put in change.put:
            at = bisect_left(self.starts, put.start)
            self.starts.insert(at, put.start)
            self.ends.insert(at, put.end)

    def _index_of(self, removed_span: OffsetSpan) -> int:
        at = bisect_left(self.starts, removed_span.start)
        if at == len(self.starts) or self.starts[at] != removed_span.start or self.ends[at] != removed_span.end:
            raise _does_not_fit(removed_span)
        return at

    def _rebuild(self, change: RangeChange) -> None:
        """Sort starts and ends separately, because ranges do not overlap."""
        starts, ends = set(self.starts), set(self.ends)
        for removed_span in change.removed:
            if removed_span.start not in starts or removed_span.end not in ends:
                raise _does_not_fit(removed_span)
        starts.difference_update([removed_span.start for removed_span in change.removed])
        ends.difference_update([removed_span.end for removed_span in change.removed])
        self.starts = array("q", sorted(starts.union([put.start for put in change.put])))
        self.ends = array("q", sorted(ends.union([put.end for put in change.put])))

    # The committed offset

    def absorbing(self, committed: int) -> tuple[int, tuple[OffsetSpan, ...]]:
        """Return the committed offset after it moves over the range that touches it, and the ranges below it then."""
        at = bisect_right(self.starts, committed)
        if at and self.ends[at - 1] >= committed:
            committed = self.ends[at - 1]
        return committed, self._between(0, at)

    def absorb(self, committed: int) -> tuple[int, tuple[OffsetSpan, ...]]:
        """Return the result of `absorbing`, and remove the returned ranges."""
        committed, removed = self.absorbing(committed)
        self._drop_first(len(removed))
        return committed, removed

    def drop_below(self, committed: int) -> tuple[OffsetSpan, ...]:
        """Remove the ranges that end at the committed offset or before. One that extends beyond it stays whole."""
        removed = self._between(0, bisect_right(self.ends, committed))
        self._drop_first(len(removed))
        return removed

    def clear(self) -> tuple[OffsetSpan, ...]:
        """Remove all ranges and return them, ascending."""
        removed = tuple(self)
        self._drop_first(len(removed))
        return removed

    def _drop_first(self, count: int) -> None:
        del self.starts[:count], self.ends[:count]


def _holds(whole: OffsetSpan, part: OffsetSpan) -> bool:
    return whole.start <= part.start and part.end <= whole.end


def _does_not_fit(span: OffsetSpan) -> ValueError:
    return ValueError(f"{span} is not one of the ranges: the change was worked out for other ones")


def _of_arrays(starts: array[int], ends: array[int]) -> OffsetRanges:
    """Keep arrays that ascend and do not touch, without a copy."""
    ranges = OffsetRanges.__new__(OffsetRanges)
    ranges.starts, ranges.ends = starts, ends
    return ranges


def loaded(stored: Iterable[tuple[int, int]]) -> tuple[OffsetRanges, RangeChange]:
    """Return the set of stored ranges, in any order, and the change to write if it differs from them."""
    stored_spans = [OffsetSpan(*each) for each in stored]
    ranges = OffsetRanges(stored_spans)
    canonical, had = set(ranges), set(stored_spans)
    return ranges, RangeChange(tuple(sorted(canonical - had)), tuple(sorted(had - canonical)))
