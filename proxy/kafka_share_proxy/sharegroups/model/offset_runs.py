"""The window of a share partition as runs of offsets, instead of an object per record.

How it works: an `OffsetRun` is a range of neighbouring offsets with one state, delivery count and owner, in a sorted
list with a parallel list of first offsets for bisect. Kafka keeps one *in-flight batch* per AcquiredRecords entry of a
first delivery, and explodes it to an entry per offset when its offsets begin to differ. Redelivery depends on that
batch (sharegroups/README.md rules 30-32, 38): a run that is a whole in-flight batch has `unit` None, and the runs of an
exploded one share a `Unit` with its bounds.

States: AVAILABLE -> ACQUIRED -> AVAILABLE | ACKNOWLEDGED | ARCHIVED, AVAILABLE -> ARCHIVED. A run whose change is being
stored stays ACQUIRED, with `pending` and `target` set. UNREAD is a hole left by a reload, which is read again as if it
were new (sharegroups/README.md rule 29). Any other hole contains no records. A queue (`queue_partition`) has further
states, which are neither free nor settled.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafka_share_proxy.sharegroups.model import locks
from kafka_share_proxy.sharegroups.model.snapshot import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    BATCH_BYTES,
    SNAPSHOT_BYTES_MAX,
    offsets_in,
)

OFFSETS_MAX = offsets_in(SNAPSHOT_BYTES_MAX)
"""Default maximum number of offsets in a window."""
UNREAD = -8
ACQUIRED = 1
"""ACQUIRED is the id of RecordState. Neither is stored."""
BLOCKED, DELAYED = 8, 9
"""Free, but an earlier unsettled record has the same key, or it is not yet due again. Stored as AVAILABLE."""
REJECTED, EXHAUSTED = 16, 17
"""To be written as dead letters: rejected by a member, or the deliveries are used up. Stored as ARCHIVING."""
SETTLED = ACKNOWLEDGED | ARCHIVED
"""Bits that only the settled states have, so that one operation tests for both. States up to AVAILABLE can be acquired.
"""

__all__ = [
    "ACKNOWLEDGED",
    "ACQUIRED",
    "ARCHIVED",
    "AVAILABLE",
    "BLOCKED",
    "DELAYED",
    "EXHAUSTED",
    "OFFSETS_MAX",
    "REJECTED",
    "SETTLED",
    "UNREAD",
    "OffsetRun",
    "Transition",
    "Unit",
    "Window",
]


class Unit:
    """Bounds of an in-flight batch that was exploded."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last


class OffsetRun(locks.Lockable):
    """Offsets first..last in one state."""

    __slots__ = ("acquired_at", "count", "first", "last", "owner", "pending", "renewals", "state", "target", "unit")

    def __init__(self, partition: object, first: int, last: int, state: int, count: int) -> None:
        self.partition = partition
        self.lock = None
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """Number of deliveries, including the present one."""
        self.owner: str | None = None
        """Member id of the owner while ACQUIRED."""
        self.unit: Unit | None = None
        self.pending: Transition | None = None
        self.target = state
        """State after `pending` is applied."""
        self.renewals = 0
        self.acquired_at = 0.0
        """Time at which the present delivery began, while ACQUIRED."""

    def __repr__(self) -> str:
        waiting = f"->{self.target}" if self.pending is not None else ""
        return f"<{self.first}-{self.last} {self.state}{waiting} count {self.count} {self.owner or ''}>"


@dataclass(slots=True)
class GivenBack:
    """A delivery that has ended, for the audit. `Window.free` clears these fields of the run."""

    first: int
    last: int
    count: int
    owner: str | None
    acquired_at: float
    renewals: int

    @classmethod
    def of(cls, run: OffsetRun) -> GivenBack:
        return cls(run.first, run.last, run.count, run.owner, run.acquired_at, run.renewals)


class Transition:
    """A decided change to be stored: pass it to snapshot(), then once to apply() or revert()."""

    __slots__ = ("changes", "given_back", "is_forced", "kinds", "runs", "settled")

    def __init__(
        self, runs: Sequence[OffsetRun] = (), changes: tuple[tuple[int, int, int, int], ...] | None = None
    ) -> None:
        self.runs = runs
        if changes is None:
            changes = tuple([(run.first, run.last, run.target, run.count) for run in runs])
        self.changes = changes
        """(first, last, state, delivery count), ascending. Empty: nothing to store, the response is immediate."""
        self.settled = False
        self.kinds: Sequence[int] = ()
        """Acknowledge type of each of `runs`. Empty if a session ended or the leader moved."""
        self.is_forced = False
        """True if an administrator released the records."""
        self.given_back: Sequence[GivenBack] = ()
        """Deliveries that have ended in memory already because their locks expired."""

    def __repr__(self) -> str:
        return f"Transition{self.changes}"


class Window:
    """Tracked offsets of one share partition, from the start offset to the end of the window."""

    batch_bytes = BATCH_BYTES
    """Maximum bytes of the state of one offset in a stored value."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset - 1
        """Last offset of the window. start_offset - 1 if it is empty."""
        self.runs: list[OffsetRun] = []
        self.firsts: list[int] = []
        self.offsets_max = OFFSETS_MAX
        """Maximum number of offsets in the window. Each may need a separate state, and one record stores them all."""
        self.free_from = start_offset
        """Lower bound of the first run that can be acquired (AVAILABLE, UNREAD). May be too low, never too high."""

    def index_from(self, offset: int) -> int:
        """Return the index of the first run that ends at or after `offset`."""
        index = bisect_right(self.firsts, offset)
        if index and self.runs[index - 1].last >= offset:
            return index - 1
        return index

    def at(self, first: int) -> OffsetRun | None:
        """Return the run that begins at `first`, or None."""
        index = bisect_left(self.firsts, first)
        if index < len(self.firsts) and self.firsts[index] == first:
            return self.runs[index]
        return None

    def between(self, first: int, last: int) -> Iterator[OffsetRun]:
        """Yield the runs that have an offset in first..last. The window must not change meanwhile."""
        runs = self.runs
        for index in range(self.index_from(first), len(runs)):
            if runs[index].first > last:
                return
            yield runs[index]

    def insert(self, run: OffsetRun) -> None:
        firsts = self.firsts
        if not firsts or run.first > firsts[-1]:
            firsts.append(run.first)
            self.runs.append(run)
        else:
            index = bisect_left(firsts, run.first)
            firsts.insert(index, run.first)
            self.runs.insert(index, run)

    def remove(self, index: int) -> None:
        run = self.runs.pop(index)
        del self.firsts[index]
        run.pending = None
        locks.cancel(run)

    def explode(self, run: OffsetRun) -> Unit:
        """Mark this in-flight batch as exploded, so that its offsets may differ."""
        if run.unit is None:
            run.unit = Unit(run.first, run.last)
        return run.unit

    def cut(self, index: int, offsets: Sequence[int]) -> None:
        """Split the run at `index` so that a run starts at each of `offsets` (ascending, all inside the run)."""
        whole = self.runs[index]
        bounds = [whole.first, *offsets, whole.last + 1]
        unit = self.explode(whole)
        parts = []
        for first, after in pairwise(bounds):
            last = first if after == first + 1 else after - 1  # share one int object: there may be very many
            part = OffsetRun(whole.partition, first, last, whole.state, whole.count)
            part.owner, part.unit, part.renewals = whole.owner, unit, whole.renewals
            part.acquired_at = whole.acquired_at
            parts.append(part)
        locks.split(whole, parts)
        self.runs[index : index + 1] = parts
        self.firsts[index : index + 1] = bounds[:-1]

    def isolate(self, first: int, last: int) -> OffsetRun:
        """Return a run of exactly first..last, splitting the run that contains it."""
        index = self.index_from(first)
        run = self.runs[index]
        if run.first == first and run.last == last:
            return run
        offsets = [first] if run.first < first else []
        if run.last > last:
            offsets.append(last + 1)
        self.cut(index, offsets)
        return self.runs[index + 1] if run.first < first else self.runs[index]

    def join(self, offset: int) -> None:
        """Merge the run at `offset` with those neighbours that do not differ from it."""
        index = self.index_from(offset)
        if index + 1 < len(self.runs) and _alike(self.runs[index], self.runs[index + 1]):
            self._swallow(index)
        if index and _alike(self.runs[index - 1], self.runs[index]):
            self._swallow(index - 1)

    def _swallow(self, index: int) -> None:
        self.runs[index].last = self.runs[index + 1].last
        del self.runs[index + 1]
        del self.firsts[index + 1]

    def free(self, run: OffsetRun, state: int) -> None:
        """Set the state of `run`, and clear its owner and lock."""
        if run.lock is not None:
            locks.cancel(run)
        run.pending = None
        run.owner = None
        run.renewals = 0
        run.state = state
        if state == AVAILABLE and run.first < self.free_from:
            self.free_from = run.first

    def freed_state(self, count: int, delivery_count_limit: int, *, is_failed: bool = True) -> int:  # noqa: ARG002 - a queue needs it
        """Return the state of a record that is freed. Its deliveries may be used up (sharegroups/README.md rule 37).

        `is_failed`: a member released it, or its lock expired. Otherwise the session ended, or the leader moved.
        """
        return AVAILABLE if count < delivery_count_limit else ARCHIVED

    def rejected_state(self) -> int:
        """Return the state of a record that a member rejects."""
        return ARCHIVED

    def advance(self) -> None:
        """Move the start offset over the leading settled runs, and over holes without records."""
        runs = self.runs
        settled = 0
        for run in runs:
            if not run.state & SETTLED:
                break
            settled += 1
        if settled:
            del runs[:settled]
            del self.firsts[:settled]
        start_offset = self.firsts[0] if runs else self.end_offset + 1
        if start_offset > self.start_offset:
            self.start_offset = start_offset

    def room(self, max_record_locks: int) -> int:
        """Return the number of offsets by which the window may grow. 0 or less if it is full."""
        return min(max_record_locks, self.offsets_max) - (self.end_offset - self.start_offset + 1)

    def last_allowed(self, first: int) -> int:
        """Return the last offset that may be tracked if a read begins at `first`."""
        return (self.start_offset if self.runs else first) + self.offsets_max - 1

    def next_free(self) -> int:
        """Return the first offset in the window that can be acquired, or end_offset + 1."""
        runs = self.runs
        for index in range(bisect_left(self.firsts, self.free_from), len(runs)):
            if runs[index].state <= AVAILABLE:
                self.free_from = runs[index].first
                return self.free_from
        self.free_from = self.end_offset + 1
        return self.free_from


def _alike(left: OffsetRun, right: OffsetRun) -> bool:
    """Return True if two neighbours may be merged: settled, or free parts of the same in-flight batch."""
    if left.state != right.state or left.count != right.count or left.last + 1 != right.first:
        return False
    if left.state == AVAILABLE:
        return left.unit is not None and left.unit is right.unit
    return bool(left.state & SETTLED)
