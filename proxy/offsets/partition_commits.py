"""What a commit does to one partition of a group: the mark it moves, the ranges it puts, the ranges it makes obsolete.

The mark is Kafka's committed offset, the next one to be read: everything below it is done. The ranges are done as well,
above the mark (offsets/README.md rule 2). Nothing is changed here: the caller has the mark committed and the change
stored, and then applies it (`OffsetRanges.apply`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proxy.offsets.ranges import OffsetRanges, RangeChange


class CommitOutcome(NamedTuple):
    """What a commit comes to."""

    mark: int | None
    """The offset to be committed; None where nothing was committed yet and nothing says where to begin."""
    change: RangeChange
    """Records to be put and tombstones to be written, in one append, after the mark is committed."""

    @property
    def must_be_stored(self) -> bool:
        """Whether ranges change; the mark may move without, and a commit that says nothing new does neither."""
        return bool(self.change)


def after_individual_commit(
    mark: int | None, ranges: OffsetRanges, offset: int | None, done: Iterable[tuple[int, int]]
) -> CommitOutcome:
    """What becomes of a partition when a member says that some ranges are done.

    Args:
        mark: what is committed, None for nothing. It never goes back here (offsets/README.md rule 5).
        ranges: what is stored; it is not changed.
        offset: what the member commits as next to be read, or None.
        done: half-open ranges, in any order.

    Raises ValueError for a negative offset, or a range that is none.
    """
    merged = ranges.merging(done)
    _check(offset)
    begin = offset if mark is None or (offset is not None and offset > mark) else mark
    if begin is None:
        return CommitOutcome(None, merged)
    moved, below = ranges.absorbing(begin)
    for put in merged.put:  # ascending, and only one of them can touch the mark
        if put.start > begin:
            break
        moved = max(moved, put.end) if put.end >= begin else moved
    if moved == begin and not below and (not merged.put or merged.put[0].start > begin):
        return CommitOutcome(moved, merged)  # all of it is above the mark, as most commits are
    below = ranges.absorbing(moved)[1]
    above = [put for put in merged.put if put.start > moved]
    gone = [span for span in merged.removed if span.start > moved]
    return CommitOutcome(moved, RangeChange(tuple(above), (*below, *gone)))


def after_plain_commit(mark: int | None, ranges: OffsetRanges, offset: int) -> CommitOutcome:
    """What becomes of a partition when a member commits an offset and says nothing of ranges, or a tool resets it.

    Forward, the mark moves over the range that it touches. Backward, all ranges go: reading again was asked for
    (offsets/README.md rule 6). Raises ValueError for a negative offset.
    """
    _check(offset)
    if mark is not None and offset < mark:
        return CommitOutcome(offset, RangeChange((), tuple(ranges)))
    moved, below = ranges.absorbing(offset)
    return CommitOutcome(moved, RangeChange((), below))


def _check(offset: int | None) -> None:
    if offset is not None and offset < 0:
        raise ValueError(f"{offset} cannot be committed: offsets begin at 0")
