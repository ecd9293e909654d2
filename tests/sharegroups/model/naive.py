"""A share partition with one object per record: slow and plain (rules: sharegroups/README.md).

It shares no code with the engine; tests hold the engine equal to it after every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

FREE, HELD, ACCEPTED, ARCHIVED = 0, 1, 2, 4


@dataclass(eq=False)
class Delivery:
    """Result of one first delivery: Kafka's in-flight batch."""

    first: int
    last: int


@dataclass(eq=False)
class Record:
    delivery: Delivery
    state: int = FREE
    count: int = 0
    owner: str | None = None
    deadline: float = -math.inf
    renewals: int = 0
    change: Change | None = None


@dataclass(eq=False)
class Change:
    """Offsets that wait for the store, and what they become."""

    targets: dict[int, int] = field(default_factory=dict)


class Stop(Exception):
    """Nothing more is acquired in this fetch."""


class Naive:
    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start - 1
        self.records: dict[int, Record] = {}
        self.unread: set[int] = set()

    # Acquire.

    def acquire(
        self, member: str, fetch_offset: int, batches: Sequence[Any], aborted: Sequence[tuple[int, int]],
        max_records: int, batch_size: int, record_limit: bool, settings: Any, now: float,
    ) -> list[tuple[int, int, int]]:  # fmt: skip
        self.batches, self.batch_size, self.record_limit = batches, batch_size, record_limit
        self.settings, self.member, self.now = settings, member, now
        self.acquired_ranges: list[tuple[int, int, int]] = []
        if max_records <= 0 or not batches or batches[-1].last_offset < self.start:
            return []
        self.base = batches[0].base_offset
        self._archive_missing(fetch_offset, self.base)
        self.data_last = batches[-1].last_offset
        self.budget = min(max_records, settings.max_record_locks - (self.end - self.start + 1))
        if self.budget <= 0:
            if fetch_offset > self.end:
                return []
            self.budget = min(max_records, self.end - fetch_offset + 1)
            self.data_last = min(self.data_last, self.end)
        self.acquired = 0
        with suppress(Stop):
            self._walk(max(self.base, self.start))
        self._archive_aborted(aborted)
        self.advance()
        return self.acquired_ranges

    def _walk(self, offset: int) -> None:
        while offset <= self.data_last and self.acquired < self.budget:
            if offset in self.unread:
                last = offset
                while last + 1 in self.unread and last + 1 <= self.data_last:
                    last += 1
                self._fresh(offset, last)
                offset = last + 1
            elif offset in self.records:
                delivery = self.records[offset].delivery
                self._again(delivery)
                offset = delivery.last + 1
            elif offset > self.end:
                self._fresh(offset, self.data_last)
                return
            else:
                offset += 1

    def _archive_missing(self, first: int, after: int) -> None:
        for offset in range(first, after):
            self.unread.discard(offset)
            record = self.records.get(offset)
            if record is not None and record.state == FREE:
                record.state = ARCHIVED
        self.advance()

    def _again(self, delivery: Delivery) -> None:
        limit = self.settings.delivery_count_limit
        throttle = max(2, math.ceil(limit / 2))
        free = [
            offset
            for offset in range(max(delivery.first, self.base), min(delivery.last, self.data_last) + 1)
            if offset in self.records and self.records[offset].state == FREE
        ]
        if not free:
            return
        throttled = max(self.records[offset].count for offset in free) >= throttle
        if throttled and self.acquired > 0:
            raise Stop
        # A wholly free delivery needs no separate case: one by one gives the same.
        size = delivery.last - delivery.first + 1
        self._singly(free, size, throttle)
        if throttled:
            raise Stop

    def _singly(self, free: list[int], size: int, throttle: int) -> None:
        limit = self.settings.delivery_count_limit
        remaining = self.budget - self.acquired
        cap = -1
        here: list[tuple[int, int]] = []
        for offset in free:
            count = self.records[offset].count
            if limit > 2 and count == limit - 1 and here:
                break
            if count >= throttle and cap < 0:
                cap = max(1, size >> (count - throttle + 1))
            self._hold(offset)
            here.append((offset, count + 1))
            if count + 1 == limit and limit > 2:
                break
            if self.record_limit and len(here) == remaining:
                break
            if cap >= 0 and len(here) == cap:
                break
        self.acquired += len(here)
        entries: list[list[int]] = []
        for offset, count in here:
            if entries and entries[-1][1] == offset - 1 and entries[-1][2] == count:
                entries[-1][1] = offset
            else:
                entries.append([offset, offset, count])
        self.acquired_ranges += [(first, last, count) for first, last, count in entries]

    def _fresh(self, first: int, last: int) -> None:
        remaining = self.budget - self.acquired
        if remaining < last - first + 1:
            expected = first + remaining - 1
            covering = [
                batch.last_offset for batch in self.batches if batch.base_offset <= expected <= batch.last_offset
            ]
            last = min(last, covering[-1] if covering else expected)
        starts = [first]
        if not self.record_limit and last - first + 1 > self.batch_size:
            for batch in self.batches:
                if batch.base_offset <= last and batch.base_offset - starts[-1] >= self.batch_size:
                    starts.append(batch.base_offset)
        for one, after in zip(starts, [*starts[1:], last + 1], strict=True):
            delivery = Delivery(one, after - 1)
            upto = after - 1
            if self.record_limit and after - one > remaining:
                upto = one + remaining - 1
            for offset in range(one, after):
                self.unread.discard(offset)
                self.records[offset] = Record(delivery)
                if offset <= upto:
                    self._hold(offset)
            self.acquired_ranges.append((one, upto, 1))
        self.acquired += last - first + 1
        self.end = max(self.end, last)

    def _hold(self, offset: int) -> None:
        record = self.records[offset]
        assert record.state == FREE
        record.state, record.owner, record.renewals = HELD, self.member, 0
        record.count += 1
        record.deadline = self.now + self.settings.lock_duration_s

    def _archive_aborted(self, aborted: Sequence[tuple[int, int]]) -> None:
        lost = {offset for first, last in aborted for offset in range(first, last + 1)}
        visible_ranges: list[list[int]] = []
        for first, last, count in self.acquired_ranges:
            for offset in range(first, last + 1):
                if offset in lost:
                    self._release(offset, ARCHIVED)
            inside = [offset for offset in range(first, last + 1) if offset not in lost]
            for offset in inside:
                if visible_ranges and visible_ranges[-1][1] == offset - 1 and visible_ranges[-1][3] == first:
                    visible_ranges[-1][1] = offset
                else:
                    visible_ranges.append([offset, offset, count, first])
        self.acquired_ranges = [(first, last, count) for first, last, count, _ in visible_ranges]

    # Acknowledge.

    def acknowledge(
        self, member: str, batches: Sequence[tuple[int, int, Sequence[int]]], renew: bool, settings: Any, now: float
    ) -> Change | int:
        before = -1
        for first, last, types in batches:
            wrong_types = not types or any(not 0 <= one <= (4 if renew else 3) for one in types)
            if wrong_types or first > last or first < before or len(types) not in (1, last - first + 1):
                return 42
            before = last
        change = Change()
        for first, last, types in batches:
            if last < self.start:
                continue
            if not any(offset <= first for offset in self.records) and not first < self.start <= last:
                return 121
            if last not in self.records:
                return 42
            for offset in range(max(first, self.start), last + 1):
                if offset not in self.records:
                    continue
                one = types[0] if len(types) == 1 else types[offset - first]
                record = self.records[offset]
                if record.state != HELD or record.change or record.owner != member or offset in change.targets:
                    return 121
                if one == 4:
                    if not settings.renew_enabled:
                        return 121
                    record.deadline = now + settings.lock_duration_s
                    record.renewals += 1
                else:
                    change.targets[offset] = {0: ARCHIVED, 1: ACCEPTED, 3: ARCHIVED}.get(
                        one, self._freed(record, settings)
                    )
        return self._mark(change)

    def waits(self, offset: int, change: Change) -> bool:
        return offset in self.records and self.records[offset].change is change

    def _mark(self, change: Change) -> Change:
        for offset in change.targets:
            self.records[offset].change = change
        return change

    @staticmethod
    def _freed(record: Record, settings: Any) -> int:
        return ARCHIVED if record.count >= settings.delivery_count_limit else FREE

    def release(self, member: str | None, settings: Any) -> Change | None:
        change = Change()
        for offset, record in self.records.items():
            if record.state == HELD and not record.change and member in (None, record.owner):
                change.targets[offset] = self._freed(record, settings)
        return self._mark(change) if change.targets else None

    def expire(self, now: float, settings: Any) -> bool:
        """Free every lock that is due; whether there was one that is not being acknowledged."""
        due = [o for o, r in self.records.items() if r.state == HELD and r.deadline <= now and not r.change]
        for offset in due:
            self._release(offset, self._freed(self.records[offset], settings))
        return bool(due)

    def apply(self, change: Change) -> None:
        for offset, target in change.targets.items():
            if self.waits(offset, change):
                self._release(offset, target)
        self.advance()

    def revert(self, change: Change, now: float, settings: Any) -> None:
        for offset in change.targets:
            record = self.records.get(offset)
            if record is not None and record.change is change:
                record.change = None
                if record.deadline <= now:
                    self._release(offset, self._freed(record, settings))
        self.advance()

    def _release(self, offset: int, state: int) -> None:
        record = self.records[offset]
        record.state, record.owner, record.change, record.deadline = state, None, None, -math.inf
        record.renewals = 0

    # The rest.

    def advance(self) -> None:
        offset = self.start
        while offset <= self.end and offset not in self.unread:
            record = self.records.get(offset)
            if record is not None and record.state not in (ACCEPTED, ARCHIVED):
                break
            self.records.pop(offset, None)
            offset += 1
        self.start = offset

    def move_log_start(self, offset: int) -> None:
        if offset <= self.start:
            return
        for lost in [o for o in self.records if o < offset]:
            del self.records[lost]
        self.unread = {o for o in self.unread if o >= offset}
        self.start, self.end = offset, max(self.end, offset - 1)
        self.advance()

    def move_log_end(self, offset: int) -> None:
        if offset > self.end:
            return
        for lost in [o for o in self.records if o >= offset]:
            del self.records[lost]
        for record in self.records.values():
            record.delivery.last = min(record.delivery.last, offset - 1)
        self.start = min(self.start, offset)
        self.end = max(self.records, default=self.start - 1)
        self.unread = {o for o in self.unread if o < self.end}

    def next_fetch_offset(self) -> int:
        free = [offset for offset, record in self.records.items() if record.state == FREE]
        return min([*free, *self.unread, self.end + 1])

    def stored(self, *changes: Change) -> tuple[int, dict[int, tuple[int, int]]]:
        """Start offset and what is kept of each offset, as it will be when `changes` are applied."""
        states: dict[int, tuple[int, int]] = {}
        for offset, record in self.records.items():
            state, count = record.state, record.count
            if state == HELD:
                change = record.change if record.change in changes else None
                state, count = (FREE, count - 1) if change is None else (change.targets[offset], count)
            states[offset] = (state, count)
        start = self.start
        while start <= self.end and start not in self.unread and states.get(start, (ACCEPTED, 0))[0] != FREE:
            start += 1
        return start, {o: pair for o, pair in states.items() if o >= start and pair != (FREE, 0)}

    def reload(self) -> Naive:
        """Return what a restart makes of it."""
        start, states = self.stored()
        fresh = Naive(start)
        fresh.end = max(states, default=start - 1)
        delivery = None
        for offset in range(start, fresh.end + 1):
            if offset not in states:
                fresh.unread.add(offset)
                delivery = None
                continue
            if delivery is None or states[offset - 1] != states[offset]:
                delivery = Delivery(offset, offset)
            delivery.last = offset
            fresh.records[offset] = Record(delivery, *states[offset])
        fresh.advance()
        return fresh
