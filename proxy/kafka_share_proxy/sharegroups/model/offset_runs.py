"""The window of a share partition as runs of offsets, instead of an object per record, and the locks of the runs.

How it works: an `OffsetRun` is a range of neighbouring offsets with one state, delivery count and owner, in a sorted
list with a parallel list of first offsets for bisect. Kafka keeps one *in-flight batch* per AcquiredRecords entry of a
first delivery, and explodes it to an entry per offset when its offsets begin to differ. Redelivery depends on that
batch (sharegroups/README.md rules 30-32, 38): a run that is a whole in-flight batch has no `exploded_batch`, and the
runs of an exploded one share an `ExplodedBatch` with its bounds.

States: AVAILABLE -> ACQUIRED -> AVAILABLE | ACKNOWLEDGED | ARCHIVED, AVAILABLE -> ARCHIVED. A run whose change is being
stored stays ACQUIRED, with `pending` and `target` set. UNREAD is a hole left by a reload, which is read again as if it
were new (sharegroups/README.md rule 29). Any other hole contains no records. A queue (`queue_partition`) has further
states, which are neither free nor settled.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

from kafka_share_proxy.sharegroups.model.snapshot import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    BATCH_BYTES,
    SNAPSHOT_BYTES_MAX,
    StateBatch,
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
"""Records that become dead letters: rejected by a member, or their deliveries are used up. Stored as ARCHIVING."""
JOINED_SINGLY = 4
"""Number of runs below which each is merged by itself."""
SPREAD_MAX = 4
"""Maximum number of runs that are passed for each one when many are merged together."""
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
    "ExplodedBatch",
    "LockIndex",
    "OffsetRun",
    "Transition",
    "Window",
]


class ExplodedBatch:
    """Bounds of an in-flight batch that was exploded."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last


class OffsetRun:
    """Offsets first..last in one state."""

    __slots__ = (
        "acquired_at",
        "count",
        "exploded_batch",
        "first",
        "last",
        "lock",
        "owner",
        "partition",
        "pending",
        "renewals",
        "state",
        "target",
    )

    def __init__(self, partition: object, first: int, last: int, state: int, count: int) -> None:
        self.partition = partition
        """Share partition that it belongs to, by which `LockIndex.expired` groups."""
        self.lock: dict[OffsetRun, float | SharedLock] | SharedLock | None = None
        """Queue or shared lock that contains its lock. None: no lock."""
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """Number of deliveries, including the present one."""
        self.owner: str | None = None
        """Member id of the owner while ACQUIRED."""
        self.exploded_batch: ExplodedBatch | None = None
        self.pending: Transition | None = None
        self.target = state
        """State after `pending` is applied."""
        self.renewals = 0
        self.acquired_at = 0.0
        """Time at which the present delivery began, while ACQUIRED."""

    def deadline(self) -> float:
        """Return the deadline of its lock (monotonic seconds). -inf if it has none."""
        lock = self.lock
        if lock is None:
            return -inf
        value = lock if isinstance(lock, SharedLock) else lock[self]
        return value.deadline if isinstance(value, SharedLock) else value

    def unlock(self) -> None:
        """End its lock before the deadline, if it has one."""
        lock = self.lock
        if lock is None:
            return
        self.lock = None
        if not isinstance(lock, SharedLock):
            del lock[self]
            return
        lock.parts.discard(self)
        if not lock.parts:
            del lock.queue[lock.token]

    def split_lock(self, parts: Iterable[OffsetRun]) -> None:
        """Transfer its lock to `parts`, which replace it. This run must not be used afterwards."""
        lock = self.lock
        if lock is None:
            return
        if isinstance(lock, SharedLock):
            lock.parts.discard(self)
            shared = lock
        else:
            shared = lock[self] = SharedLock(lock, self, self.deadline())
        for part in parts:
            part.lock = shared
            shared.parts.add(part)
        self.lock = None

    def __repr__(self) -> str:
        waiting = f"->{self.target}" if self.pending is not None else ""
        return f"<{self.first}-{self.last} {self.state}{waiting} count {self.count} {self.owner or ''}>"


class SharedLock:
    """Lock of a run that was split. It ends when its last part is released, or at its deadline for all of them."""

    __slots__ = ("deadline", "parts", "queue", "token")

    def __init__(self, queue: dict[OffsetRun, float | SharedLock], token: OffsetRun, deadline: float) -> None:
        self.queue = queue
        self.token = token
        """The run that was split. Only its position in the queue still matters."""
        self.deadline = deadline
        self.parts: set[OffsetRun] = set()


@dataclass(slots=True)
class EndedDelivery:
    """A delivery that has ended, for the audit. `Window.free` clears these fields of the run."""

    first: int
    last: int
    count: int
    owner: str | None
    acquired_at: float
    renewals: int

    @classmethod
    def of(cls, run: OffsetRun) -> EndedDelivery:
        return cls(run.first, run.last, run.count, run.owner, run.acquired_at, run.renewals)


class Transition:
    """A decided change to be stored: pass it to snapshot(), then once to apply() or revert()."""

    __slots__ = ("acknowledge_types", "changes", "ended_deliveries", "is_forced", "runs", "settled")

    def __init__(self, runs: Sequence[OffsetRun] = (), changes: tuple[StateBatch, ...] | None = None) -> None:
        self.runs = runs
        if changes is None:
            changes = tuple([(run.first, run.last, run.target, run.count) for run in runs])
        self.changes = changes
        """New states, ascending. Empty: nothing to store, the response is immediate."""
        self.settled = False
        self.acknowledge_types: Sequence[int] = ()
        """Acknowledge type of each of `runs`. Empty if a session ended or the leader moved."""
        self.is_forced = False
        """True if an administrator released the records."""
        self.ended_deliveries: Sequence[EndedDelivery] = ()
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

    def run_at(self, first: int) -> OffsetRun | None:
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
        run.unlock()

    def explode(self, run: OffsetRun) -> ExplodedBatch:
        """Mark this in-flight batch as exploded, so that its offsets may differ."""
        if run.exploded_batch is None:
            run.exploded_batch = ExplodedBatch(run.first, run.last)
        return run.exploded_batch

    def cut(self, index: int, offsets: Sequence[int]) -> None:
        """Split the run at `index` so that a run starts at each of `offsets` (ascending, all inside the run)."""
        whole = self.runs[index]
        bounds = [whole.first, *offsets, whole.last + 1]
        exploded_batch = self.explode(whole)
        parts = []
        for first, after in pairwise(bounds):
            last = first if after == first + 1 else after - 1  # share one int object: there may be very many
            part = OffsetRun(whole.partition, first, last, whole.state, whole.count)
            part.owner, part.exploded_batch, part.renewals = whole.owner, exploded_batch, whole.renewals
            part.acquired_at = whole.acquired_at
            parts.append(part)
        whole.split_lock(parts)
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
        if index + 1 < len(self.runs) and _can_merge(self.runs[index], self.runs[index + 1]):
            self._merge_next(index)
        if index and _can_merge(self.runs[index - 1], self.runs[index]):
            self._merge_next(index - 1)

    def join_all(self, offsets: Sequence[int]) -> None:
        """Merge the runs at these offsets, which ascend, with those neighbours that do not differ from them."""
        if len(offsets) < JOINED_SINGLY:
            for offset in offsets:
                self.join(offset)
            return
        begin = max(0, self.index_from(offsets[0]) - 1)
        end = self.index_from(offsets[-1]) + 2
        if end - begin > SPREAD_MAX * len(offsets):
            middle = len(offsets) // 2
            self.join_all(offsets[:middle])
            self.join_all(offsets[middle:])
            return
        merged_runs: list[OffsetRun] = []
        for run in self.runs[begin:end]:
            if merged_runs and _can_merge(merged_runs[-1], run):
                merged_runs[-1].last = run.last
            else:
                merged_runs.append(run)
        self.runs[begin:end] = merged_runs
        self.firsts[begin:end] = [run.first for run in merged_runs]

    def _merge_next(self, index: int) -> None:
        self.runs[index].last = self.runs[index + 1].last
        del self.runs[index + 1]
        del self.firsts[index + 1]

    def free(self, run: OffsetRun, state: int) -> None:
        """Set the state of `run`, and clear its owner and lock."""
        if run.lock is not None:
            run.unlock()
        run.pending = None
        run.owner = None
        run.renewals = 0
        run.state = state
        if state == AVAILABLE and run.first < self.free_from:
            self.free_from = run.first

    def free_to_targets(self, runs: Iterable[OffsetRun]) -> None:
        """Free runs whose change is stored."""
        for run in runs:
            self.free(run, run.target)

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

    def next_fetch_offset(self) -> int:
        """Return the offset of the next read: the first in the window that can be acquired, else end_offset + 1."""
        if self.free_from > self.end_offset:
            return self.end_offset + 1
        runs = self.runs
        for index in range(bisect_left(self.firsts, self.free_from), len(runs)):
            if runs[index].state <= AVAILABLE:
                self.free_from = runs[index].first
                return self.free_from
        self.free_from = self.end_offset + 1
        return self.free_from


def _can_merge(lower: OffsetRun, upper: OffsetRun) -> bool:
    """Return True if two neighbours may be merged: settled, waiting for dead letters, or free in the same batch."""
    if lower.state != upper.state or lower.count != upper.count or lower.last + 1 != upper.first:
        return False
    if lower.state == AVAILABLE:
        return lower.exploded_batch is not None and lower.exploded_batch is upper.exploded_batch
    if lower.state >= REJECTED:
        return lower.pending is upper.pending is None
    return bool(lower.state & SETTLED)


class LockIndex:
    """Acquisition locks of all share partitions of a coordinator, with their deadlines (sharegroups/README.md rule 35).

    How it works: locks of one duration expire in the order in which they were acquired, and the duration is constant
    per group. One insertion-ordered dict per duration is therefore both queue and index, and expiry only checks the
    front. With a million locks a renewal takes 0.65 us and an end 0.19 us; with a heap they took 1.3 and 8.7.

    The key is the locked run. When it is split (a part of it is acknowledged or renewed), the parts keep the deadline
    and its position in the queue: the old run stays there as a token, and its value becomes a `SharedLock`.
    """

    __slots__ = ("_earliest", "_queues")

    def __init__(self) -> None:
        self._queues: dict[float, dict[OffsetRun, float | SharedLock]] = {}
        """Lock duration -> locks, in the order of their deadlines."""
        self._earliest = inf
        """No lock expires before this time. Not raised when locks are released: finding the new front requires a walk
        over the dict's deleted entries, which is postponed until this time.
        """

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def holders(self) -> Iterator[Iterable[OffsetRun]]:
        """Yield the runs of each lock: one, or the parts of one that was split."""
        for queue in self._queues.values():
            for run, value in queue.items():
                yield value.parts if isinstance(value, SharedLock) else (run,)

    def add(self, run: OffsetRun, duration_s: float, now: float) -> float:
        """Lock `run`, which has no lock, from now on. Return the deadline."""
        queue = self._queues.get(duration_s)
        if queue is None:
            queue = self._queues[duration_s] = {}
        deadline = now + duration_s
        queue[run] = deadline
        run.lock = queue
        if deadline < self._earliest:
            self._earliest = deadline
        return deadline

    def renew(self, run: OffsetRun, duration_s: float, now: float) -> float:
        """Restart the lock of `run` with the full duration (sharegroups/README.md rule 48). Return the new deadline."""
        run.unlock()
        return self.add(run, duration_s, now)

    def next_deadline(self) -> float:
        """Return a time not after the first deadline, or inf. Too early if that lock was released."""
        return self._earliest

    def expired(self, now: float) -> dict[Any, list[OffsetRun]]:
        """Remove the locks with deadline <= now. Return them by share partition. Call its `expire()` immediately."""
        expired: dict[Any, list[OffsetRun]] = {}
        if now < self._earliest:
            return expired
        earliest = inf
        for duration_s, queue in list(self._queues.items()):
            earliest = min(earliest, _pop_expired(queue, now, expired))
            if not queue:
                del self._queues[duration_s]
        self._earliest = earliest
        return expired


def _pop_expired(queue: dict[OffsetRun, float | SharedLock], now: float, expired: dict[Any, list[OffsetRun]]) -> float:
    """Move the expired locks at the front of `queue` into `expired`. Return the deadline of the new front."""
    due_runs: list[OffsetRun] = []
    front = inf
    for run, value in queue.items():
        deadline = value.deadline if isinstance(value, SharedLock) else value
        if deadline > now:
            front = deadline
            break
        due_runs.append(run)
    for run in due_runs:
        value = queue.pop(run)
        for part in value.parts if isinstance(value, SharedLock) else (run,):
            part.lock = None
            expired.setdefault(part.partition, []).append(part)
    return front
