"""Effect of a commit on one partition of a group: committed offset, stored ranges, and obsolete ranges.

The caller commits the offset, stores the change, and then applies it (`OffsetRanges.apply`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafka_share_proxy.offsets.ranges import OffsetRanges, RangeChange


class CommitOutcome(NamedTuple):
    """Offset and ranges that result from a commit."""

    offset: int | None
    """Offset to commit. None if nothing was committed and the commit has no offset to begin at."""
    change: RangeChange
    """Ranges to put and tombstones to write, in one append, after the offset is committed."""


def after_individual_commit(
    committed: int | None, ranges: OffsetRanges, offset: int | None, done: Iterable[tuple[int, int]]
) -> CommitOutcome:
    """Return the result of a commit in which a member reports done ranges.

    `committed`: None if nothing is committed; it never decreases (offsets/README.md rule 5). `offset`: what the member
    commits, or None. `done`: half-open ranges, in any order. Raises ValueError for a negative offset or an invalid
    range.
    """
    merged = ranges.merging(done)
    _check(offset)
    begin = offset if committed is None or (offset is not None and offset > committed) else committed
    if begin is None:
        return CommitOutcome(None, merged)
    moved, below = ranges.absorbing(begin)
    for put in merged.put:  # ascending, and only one of them can touch the committed offset
        if put.start > begin:
            break
        moved = max(moved, put.end) if put.end >= begin else moved
    if moved == begin and not below and (not merged.put or merged.put[0].start > begin):
        return CommitOutcome(moved, merged)  # all ranges are above the committed offset, as in most commits
    below = ranges.absorbing(moved)[1]
    above = [put for put in merged.put if put.start > moved]
    obsolete = [span for span in merged.removed if span.start > moved]
    return CommitOutcome(moved, RangeChange(tuple(above), (*below, *obsolete)))


def after_plain_commit(committed: int | None, ranges: OffsetRanges, offset: int) -> CommitOutcome:
    """Return the result of a commit of an offset without ranges by a member, or of a reset by a tool.

    Source: offsets/README.md rule 6. Raises ValueError for a negative offset.
    """
    _check(offset)
    if committed is not None and offset < committed:
        return CommitOutcome(offset, RangeChange((), tuple(ranges)))
    moved, below = ranges.absorbing(offset)
    return CommitOutcome(moved, RangeChange((), below))


def _check(offset: int | None) -> None:
    if offset is not None and offset < 0:
        raise ValueError(f"{offset} cannot be committed: offsets begin at 0")
