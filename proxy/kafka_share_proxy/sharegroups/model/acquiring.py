"""Choice of the offsets that a fetch acquires (Kafka 4.3 SharePartition.acquire; sharegroups/README.md rules 28-38).

How it works: the records read are processed from their first offset on. Tracked free offsets are acquired again, one
in-flight batch after the other. Offsets that a reload left unread, and those beyond the window, are acquired for the
first time, in whole log batches. MaxRecords is checked between in-flight batches only (batch_optimized) or exactly
(record_limit). Near the delivery limit an in-flight batch is delivered in ever smaller parts, so that the one record
that crashes its consumers is isolated (sharegroups/README.md rule 38).

It deliberately does less than Kafka 4.3 in one case: a log batch that is wider than the maximum window
(`Window.offsets_max`) is acquired in parts, so that any resulting state of its records can be stored.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

from kafka_share_proxy.sharegroups.model.offset_runs import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    UNREAD,
    ExplodedBatch,
    LockIndex,
    OffsetRun,
    Window,
)
from kafka_share_proxy.wire.records.batches import BatchOffsets, first_from
from kafka_share_proxy.wire.records.order_keys import RecordKeys

FEWEST_DELIVERIES_BEFORE_THROTTLING = 2
"""A delivery limit of 2 isolates no record (sharegroups/README.md rule 38)."""

CUTS_MAX = 2000
"""Approximate maximum number of in-flight batches that one acquire creates of new records, each of which costs time,
regardless of BatchSize. It equals the number of records that a share partition locks by default.
"""

AcquiredRange = tuple[int, int, int]
"""First offset, last offset, delivery count (AcquiredRecords). A plain tuple: a fetch may acquire a thousand."""


class PartitionSettings(Protocol):
    """The part of settings.GroupSettings that this module needs, in force at the call."""

    @property
    def lock_duration_s(self) -> float: ...

    @property
    def delivery_count_limit(self) -> int: ...

    @property
    def max_record_locks(self) -> int: ...

    @property
    def renew_enabled(self) -> bool: ...


class ReadRecords(NamedTuple):
    """Records of one upstream Fetch (or the cache) for this partition, bounded by the group's isolation level.

    They must include all records of the log from fetch_offset to the end of the last batch: other offsets in that range
    are taken to have no records.
    """

    fetch_offset: int
    """Offset requested: next_fetch_offset() at that time."""
    batches: Sequence[BatchOffsets]
    """Whole log batches, ascending. The first may begin before fetch_offset. Empty: nothing new."""
    aborted: Sequence[tuple[int, int]] = ()
    """Offsets (first, last) that are archived, ascending: records of aborted transactions under read_committed, and
    control batches in a group with queue settings.
    """
    keys: RecordKeys | None = None
    """Keys of the records, for a group with key order."""


class Acquisition(NamedTuple):
    """Result of an acquire, effective immediately. Nothing is stored for it."""

    ranges: tuple[AcquiredRange, ...]
    """Ascending, not overlapping."""
    acquired: int
    """Number of offsets acquired, which counts against the request's MaxRecords."""
    first_batch: int
    """Index into read.batches of the first log batch to send. 0 if nothing was acquired."""
    last_batch: int
    """Index of the last log batch to send, included. -1 if nothing was acquired."""
    lock_deadline: float


NOTHING = Acquisition((), 0, 0, -1, 0.0)


def throttle_from(delivery_count_limit: int) -> int:
    """Return the number of deliveries from which on an in-flight batch is delivered in parts."""
    return max(FEWEST_DELIVERIES_BEFORE_THROTTLING, (delivery_count_limit + 1) // 2)


class Acquirer:
    """One acquire on one window."""

    __slots__ = (
        "acquired_ranges",
        "batch_size",
        "budget",
        "data_first",
        "data_last",
        "index",
        "member_id",
        "now",
        "read",
        "record_limit",
        "settings",
        "window",
    )

    def __init__(
        self,
        window: Window,
        index: LockIndex,
        member_id: str,
        read: ReadRecords,
        batch_size: int,
        record_limit: bool,
        settings: PartitionSettings,
        now: float,
    ) -> None:
        self.window = window
        self.index = index
        self.member_id = member_id
        self.read = read
        self.batch_size = batch_size
        self.record_limit = record_limit
        self.settings = settings
        self.now = now
        self.budget = 0
        """Number of offsets that may still be acquired, a soft limit in batch_optimized."""
        self.data_first = 0
        self.data_last = 0
        """First and last offset that may be acquired."""
        self.acquired_ranges: list[AcquiredRange] = []

    def acquire(self, max_records: int) -> Acquisition:
        batches = self.read.batches
        if max_records <= 0 or not batches:
            return NOTHING
        first, last = batches[0].base_offset, batches[-1].last_offset
        if last < self.window.start_offset:
            return NOTHING
        if self.read.fetch_offset < first:
            self._forget_compacted(self.read.fetch_offset, first - 1)
        if not self._set_bounds(first, last, max_records):
            return NOTHING
        self._walk()
        if self.read.aborted and self.acquired_ranges:
            self._archive_aborted()
        self.window.advance()
        return self._response()

    def _set_bounds(self, first: int, last: int, max_records: int) -> bool:
        """Set which of the offsets read may be acquired and how many (sharegroups/README.md rule 28). False if none."""
        window = self.window
        self.data_first = max(first, window.start_offset)
        self.data_last = min(last, window.last_allowed(self.data_first))
        self.budget = min(max_records, window.room(self.settings.max_record_locks))
        if self.budget <= 0:
            # The window is full: free offsets inside it may be delivered again, but it must not grow.
            self.budget = min(max_records, window.end_offset - self.read.fetch_offset + 1)
            self.data_last = min(self.data_last, window.end_offset)
        return self.budget > 0

    def _walk(self) -> None:
        window = self.window
        runs = window.runs
        position = self.data_first
        while self.budget > 0 and position <= window.end_offset:
            index = window.index_from(position)
            while index < len(runs) and runs[index].state > AVAILABLE and runs[index].first <= self.data_last:
                position = runs[index].last + 1
                index += 1
            if index == len(runs) or runs[index].first > self.data_last:
                break
            run = runs[index]
            if run.state == UNREAD:
                position = run.last + 1
                self._acquire_fresh(max(run.first, self.data_first), min(run.last, self.data_last), unread=True)
            else:
                position = (run.exploded_batch or run).last + 1
                self._acquire_again(index)
        if self.budget > 0 and position <= self.data_last:
            last = self.data_last
            if position <= window.end_offset:
                index = bisect_right(window.firsts, position)
                if index < len(runs):
                    last = min(last, runs[index].first - 1)
            self._acquire_fresh(position, last, unread=False)

    # Tracked offsets that are free again.

    def _acquire_again(self, index: int) -> None:
        """Acquire the free offsets of the in-flight batch that contains the run at `index`."""
        window = self.window
        run = window.runs[index]
        base_offset = self.read.batches[0].base_offset
        throttled = throttle_from(self.settings.delivery_count_limit)
        free: list[OffsetRun] = []
        if run.exploded_batch is None:
            count_max = run.count
            may_acquire_whole = run.first >= base_offset and run.last <= self.data_last
            if self.record_limit and run.last - run.first + 1 > self.budget:
                may_acquire_whole = False
        else:
            free = self._free_parts(index)
            if not free:
                return
            count_max = max([part.count for part in free])
            may_acquire_whole = False
        if count_max >= throttled and self.acquired_ranges:
            self.budget = 0
            return
        if may_acquire_whole and count_max < throttled:
            self.budget -= run.last - run.first + 1
            self._lock(run)
            self.acquired_ranges.append((run.first, run.last, run.count))
            return
        exploded_batch = window.explode(run)
        self._acquire_parts(exploded_batch, free or self._free_parts(index))
        if count_max >= throttled:
            self.budget = 0

    def _free_parts(self, index: int) -> list[OffsetRun]:
        """Return the AVAILABLE runs of one in-flight batch that overlap the data."""
        runs = self.window.runs
        exploded_batch = runs[index].exploded_batch
        last = min(self.data_last, (exploded_batch or runs[index]).last)
        parts = []
        for position in range(index, len(runs)):
            run = runs[position]
            if run.first > last:
                break
            if run.state == AVAILABLE and run.exploded_batch is exploded_batch and run.last >= self.data_first:
                parts.append(run)
        return parts

    def _acquire_parts(self, exploded_batch: ExplodedBatch, free: list[OffsetRun]) -> None:
        """Acquire offsets run by run, as delivery limit and budget allow (sharegroups/README.md rule 38)."""
        limit = self.settings.delivery_count_limit
        throttled = throttle_from(limit)
        # Runs that were delivered less often than this, if whole, need none of the rules below.
        unrestricted_below = 0 if self.record_limit else min(throttled, limit - 1)
        acquired = 0
        offsets_max = -1  # set by the first throttled run
        ranges: list[AcquiredRange] = []
        for part in free:
            first, last = max(part.first, self.data_first), min(part.last, self.data_last)
            size = last - first + 1
            if offsets_max < 0 and part.count < unrestricted_below and size == part.last - part.first + 1:
                self._lock(part)
                _extend(ranges, part)
                acquired += size
                continue
            if limit > FEWEST_DELIVERIES_BEFORE_THROTTLING and part.count == limit - 1:
                if acquired:
                    break
                size = 1
            if part.count >= throttled and offsets_max < 0:
                offsets_max = max(1, (exploded_batch.last - exploded_batch.first + 1) >> (part.count - throttled + 1))
            if self.record_limit:
                size = min(size, self.budget - acquired)
            if offsets_max > acquired:
                size = min(size, offsets_max - acquired)
            # This maximum ends the loop only if it is met exactly, as in Kafka: offsets delivered less often, acquired
            # before the first throttled one, may already exceed it.
            is_whole = first == part.first and size == part.last - first + 1
            run = part if is_whole else self.window.isolate(first, first + size - 1)
            self._lock(run)
            _extend(ranges, run)
            acquired += size
            if size < last - first + 1 or acquired == offsets_max or (self.record_limit and acquired == self.budget):
                break
            if limit > FEWEST_DELIVERIES_BEFORE_THROTTLING and run.count == limit:
                break
        self.acquired_ranges += ranges
        self.budget -= acquired

    # Offsets that are not tracked yet.

    def _acquire_fresh(self, first: int, last: int, *, unread: bool) -> None:
        """Acquire first..last, or whole log batches of it. `unread`: they are in a hole that a reload left."""
        if self.budget < last - first + 1:
            last = min(last, self._log_batch_end(first + self.budget - 1))
        if unread:
            self._fill_unread(first, last)
        count = last - first + 1
        if self.record_limit:
            self._track(first, last, min(count, self.budget))
        elif count <= self.batch_size:
            self._track(first, last, count)
        else:
            for cut_first, cut_last in self._cuts(first, last):
                self._track(cut_first, cut_last, cut_last - cut_first + 1)
        self.budget -= count
        if last > self.window.end_offset:
            self.window.end_offset = last

    def _log_batch_end(self, offset: int) -> int:
        """Return the last offset of the log batch that contains `offset`, or `offset` if none does."""
        batches = self.read.batches
        index = first_from(batches, offset + 1) - 1
        return max(batches[index].last_offset, offset) if index >= 0 else offset

    def _cuts(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return parts of at least BatchSize offsets, cut only where a log batch begins."""
        parts = []
        batches, index = self.read.batches, 0
        size_min = max(self.batch_size, (last - first) // CUTS_MAX, 1)
        while (index := first_from(batches, first + size_min, index)) < len(batches):
            base_offset = batches[index].base_offset
            if base_offset > last:
                break
            parts.append((first, base_offset - 1))
            first = base_offset
        parts.append((first, last))
        return parts

    def _track(self, first: int, last: int, count: int) -> None:
        """Add a new in-flight batch first..last, and acquire its first `count` offsets."""
        window = self.window
        # One int object for both ends of a single record: there may be a million of them.
        run = OffsetRun(window, first, first if count == 1 else first + count - 1, ACQUIRED, 0)
        self._lock(run)
        window.insert(run)
        self.acquired_ranges.append((first, run.last, 1))
        if run.last < last:
            remainder = OffsetRun(window, run.last + 1, last, AVAILABLE, 0)
            run.exploded_batch = remainder.exploded_batch = ExplodedBatch(first, last)
            window.insert(remainder)
            window.free_from = min(window.free_from, remainder.first)

    def _fill_unread(self, first: int, last: int) -> None:
        """Remove first..last from an unread hole before they are tracked."""
        window = self.window
        window.isolate(first, last)
        window.remove(window.index_from(first))

    def _lock(self, run: OffsetRun) -> None:
        run.state = ACQUIRED
        run.count += 1
        run.owner = self.member_id
        run.acquired_at = self.now
        self.index.add(run, self.settings.lock_duration_s, self.now)

    # Offsets without deliverable records.

    def _forget_compacted(self, first: int, last: int) -> None:
        """Archive or drop offsets that the log no longer contains (sharegroups/README.md rule 33)."""
        window = self.window
        for run in [run for run in window.between(first, last) if run.state <= AVAILABLE]:
            part = window.isolate(max(run.first, first), min(run.last, last))
            if part.state == UNREAD:
                window.remove(window.index_from(part.first))
            else:
                window.free(part, ARCHIVED)
                window.join(part.first)
        window.advance()

    def _archive_aborted(self) -> None:
        """Archive acquired records of aborted transactions, and cut them out (sharegroups/README.md rule 34)."""
        remaining_ranges: list[AcquiredRange] = []
        aborted = self.read.aborted
        aborted_index = bisect_left(aborted, self.acquired_ranges[0][0], key=itemgetter(1))
        for first, last, count in self.acquired_ranges:
            while aborted_index < len(aborted) and aborted[aborted_index][0] <= last:
                aborted_first, aborted_last = (
                    max(first, aborted[aborted_index][0]),
                    min(last, aborted[aborted_index][1]),
                )
                if aborted_first <= aborted_last:
                    self._archive(aborted_first, aborted_last)
                    if first < aborted_first:
                        remaining_ranges.append((first, aborted_first - 1, count))
                    first = aborted_last + 1
                if aborted[aborted_index][1] > last:
                    break  # it extends into the next range
                aborted_index += 1
            if first <= last:
                remaining_ranges.append((first, last, count))
        self.acquired_ranges = remaining_ranges

    def _archive(self, first: int, last: int) -> None:
        window = self.window
        for run in list(window.between(first, last)):
            window.free(window.isolate(max(run.first, first), min(run.last, last)), ARCHIVED)
        window.join(first)

    def _response(self) -> Acquisition:
        ranges = self.acquired_ranges
        if not ranges:
            return NOTHING
        batches = self.read.batches
        first_offset, last_offset = ranges[0][0], ranges[-1][1]
        first_batch = max(first_from(batches, first_offset + 1) - 1, 0)
        last_batch = max(first_from(batches, last_offset + 1, first_batch) - 1, first_batch)
        count = len(ranges)
        for first, last, _ in ranges:
            count += last - first
        return Acquisition(tuple(ranges), count, first_batch, last_batch, self.now + self.settings.lock_duration_s)


def _extend(ranges: list[AcquiredRange], run: OffsetRun) -> None:
    """Add a run to the ranges of one in-flight batch. Adjacent runs with equal counts make one entry."""
    if ranges and ranges[-1][1] + 1 == run.first and ranges[-1][2] == run.count:
        ranges[-1] = (ranges[-1][0], run.last, run.count)
    else:
        ranges.append((run.first, run.last, run.count))
