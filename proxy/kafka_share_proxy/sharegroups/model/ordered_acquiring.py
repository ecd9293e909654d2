"""Acquiring in key order (sharegroups/README.md rules 74-79): the keys of what was read are learned first.

How it works: offsets are tracked, as AVAILABLE or BLOCKED, until as many are free as may be acquired. Then these are
acquired by the rules of every other group, as if they were delivered again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from kafka_share_proxy.sharegroups.model.acquiring import Acquirer, PartitionSettings, ReadRecords
from kafka_share_proxy.sharegroups.model.key_order import KeyOrder
from kafka_share_proxy.sharegroups.model.offset_runs import (
    ARCHIVED,
    AVAILABLE,
    BLOCKED,
    SETTLED,
    UNREAD,
    LockIndex,
    OffsetRun,
    Window,
)
from kafka_share_proxy.wire.records.order_keys import RecordKeys

MISSING_PART = 16
"""A request for many records is served with fewer, by at most one in this number, rather than with records of one more
log batch: the more records are held together, the more wait for an earlier one of the same key.
"""


class OrderedAcquirer(Acquirer):
    """One acquire on the window of a group with key order."""

    __slots__ = ("keys", "order", "scan_to")

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
        order: KeyOrder,
        keys: RecordKeys,
        scan_to: int,
    ) -> None:
        """`keys`: those of `read`. `scan_to`: last offset that may be tracked."""
        super().__init__(window, index, member_id, read, batch_size, record_limit, settings, now)
        self.order = order
        self.keys = keys
        self.scan_to = scan_to

    def _set_bounds(self, first: int, last: int, max_records: int) -> bool:
        """Learn the keys, and set which offsets may be acquired and how many. False if none."""
        self.data_first = max(first, self.window.start_offset)
        self.budget = min(max_records, self.settings.max_record_locks - self.order.locked)
        last = min(last, self.scan_to)
        first = max(self.order.known_to, self.data_first)
        if self.read.fetch_offset <= self.order.known_to and first <= last:
            self._learn_enough(first, last, max_records)
        self.data_last = min(last, self.order.known_to - 1)
        return self.budget > 0 and self.data_first <= self.data_last

    def _learn_enough(self, first: int, last: int, max_records: int) -> None:
        """Track first..last until enough offsets are free. More would only split the window into more runs."""
        missing = self.budget - self._count_free(max(self.data_first, self.window.next_fetch_offset()), first - 1)
        missing_allowed = self.budget // MISSING_PART
        while first <= last and missing > missing_allowed:
            end = min(last, self._log_batch_end(first + missing - 1))
            self._learn(first, end, max_records)
            missing -= self._count_free(first, end)
            first = end + 1

    def _count_free(self, first: int, last: int) -> int:
        """Return how many offsets from `first` to `last` may be acquired. May be too low if they are enough."""
        count = 0
        for run in self.window.between(first, last):
            if run.state == AVAILABLE:
                count += run.last - run.first + 1
                if count >= self.budget:
                    break
        return count

    def _learn(self, first: int, last: int, max_records: int) -> None:
        """Track first..last, and block the records whose keys have earlier unsettled ones."""
        window, order = self.window, self.order
        tracked_to = window.end_offset
        for run in [run for run in window.between(first, last) if run.state == UNREAD]:
            begin, end = max(run.first, first), min(run.last, last)
            self._fill_unread(begin, end)
            self._track_free(begin, end, max_records)
        if last > tracked_to:
            self._track_free(max(first, tracked_to + 1), last, max_records)
            window.end_offset = last
        keys = self.keys.between(first, last)
        if self.read.aborted or first <= tracked_to:
            tracked_keys = [
                (offset, key_hash)
                for offset, key_hash in _without_aborted(zip(*keys, strict=True), self.read.aborted)
                if offset > tracked_to or self._is_unsettled(offset)
            ]
            keys = RecordKeys(
                array("q", [offset for offset, _ in tracked_keys]),
                array("Q", [key_hash for _, key_hash in tracked_keys]),
            )
        order.trim(window.start_offset)
        order.known_to = last + 1
        block(window, spans(order.add(keys)))

    def _track_free(self, first: int, last: int, max_records: int) -> None:
        """Add new in-flight batches, which begin where log batches begin."""
        batch_size, self.batch_size = self.batch_size, min(self.batch_size, max_records)
        for begin, end in self._cuts(first, last):
            self.window.insert(OffsetRun(self.window, begin, end, AVAILABLE, 0))
        self.batch_size = batch_size
        self.window.free_from = min(self.window.free_from, first)

    def _is_unsettled(self, offset: int) -> bool:
        run = next(self.window.between(offset, offset), None)
        return run is not None and not run.state & SETTLED

    def _acquire_fresh(self, first: int, last: int, *, unread: bool) -> None:
        """Acquire nothing: every offset up to `known_to` is tracked, and others contain no records."""

    def _walk(self) -> None:
        super()._walk()
        self.order.locked += sum([last - first + 1 for first, last, _ in self.acquired_ranges])

    def _forget_compacted(self, first: int, last: int) -> None:
        """See Acquirer. Blocked offsets may have been compacted too."""
        for run in [run for run in self.window.between(first, last) if run.state == BLOCKED]:
            self.window.free(self.window.isolate(max(run.first, first), min(run.last, last)), ARCHIVED)
        super()._forget_compacted(first, last)


def block(window: Window, spans: Sequence[tuple[int, int]]) -> None:
    """Mark the free offsets of these ranges, which ascend and are not adjacent, as blocked."""
    if not spans:
        return
    span_index = 0
    for run in [run for run in window.between(spans[0][0], spans[-1][1]) if run.state == AVAILABLE]:
        span_index = bisect_left(spans, run.first, lo=span_index, key=itemgetter(1))
        offsets, blocked = [], set()
        for first, last in spans[span_index : bisect_right(spans, run.last, lo=span_index, key=itemgetter(0))]:
            blocked.add(max(first, run.first))
            offsets += [bound for bound in (first, last + 1) if run.first < bound <= run.last]
        index = window.index_from(run.first)
        if offsets:
            window.cut(index, offsets)
        for part in window.runs[index : index + len(offsets) + 1]:
            if part.first in blocked:
                part.state = BLOCKED


def _without_aborted(keys: Iterator[tuple[int, int]], aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Leave out the records of aborted transactions, which are archived and block nothing."""
    aborted_index = 0
    for offset, key_hash in keys:
        while aborted_index < len(aborted) and aborted[aborted_index][1] < offset:
            aborted_index += 1
        if aborted_index == len(aborted) or offset < aborted[aborted_index][0]:
            yield offset, key_hash


def spans(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Join adjacent offsets, which ascend, to (first, last)."""
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] + 1 == offset:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return ranges
