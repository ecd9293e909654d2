"""Time until a record is delivered again (sharegroups/README.md rules 80-84).

How it works: a released record of a group with a delay is DELAYED until its due time. The due times of all share
partitions of a coordinator are in one heap. An entry is valid as long as its run is DELAYED with that due time;
outdated entries are dropped when they reach the front.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil, inf
from typing import Any, NamedTuple

from kafka_share_proxy.sharegroups.model.offset_runs import OffsetRun
from kafka_share_proxy.sharegroups.model.queue_settings import LONGEST_DELAY_MS, RedeliveryDelay
from kafka_share_proxy.wire.records.key_hash import SPACE, murmur2

JITTER = 0.1
"""Maximum deviation of a delay, as a fraction of it, so that records which failed together do not return together."""
LONGEST_DELAY_S = LONGEST_DELAY_MS / 1000
STORED_AGAIN_S = 0.05
"""Seconds until a run is checked again whose release is not stored yet when it is due."""
NAMED_MAX = 1000
"""Maximum number of batches with named delays in the acknowledgements of one partition in a request."""
OUTDATED_MAX = 1000
"""Maximum number of outdated entries in the heap, in addition to one for each valid entry."""


class NamedDelay(NamedTuple):
    """A delay in seconds that a member names for the records that it releases in first..last. Negative: invalid."""

    first: int
    last: int
    delay_s: float


NamedDelays = Sequence[NamedDelay]
"""Ascending, without overlap, as the batches of the acknowledgement."""


def named_delays_mistake(delays: NamedDelays) -> str | None:
    """Return the error text (INVALID_REQUEST) for invalid named delays. None if they are valid."""
    if len(delays) > NAMED_MAX:
        return f"{len(delays)} batches name a delay: at most {NAMED_MAX} may, so acknowledge in several requests"
    for each in delays:
        if not 0 <= each.delay_s <= LONGEST_DELAY_S:
            return f"batch {each.first}-{each.last} names an invalid delay: it must be 0 to {LONGEST_DELAY_MS} ms"
    return None


def named_for(delays: NamedDelays, offset: int) -> float | None:
    """Return the delay that is named for an offset, in seconds, or None. Two batches may meet in one offset."""
    index = bisect_left(delays, offset, key=lambda each: each.last)
    return delays[index].delay_s if index < len(delays) and delays[index].first <= offset else None


def delay_s(redelivery: RedeliveryDelay, delivery_count: int, chance: float) -> float:
    """Return the delay after this delivery, in seconds. `chance`: a number from 0 to 1."""
    grown: float = min(redelivery.max_s, redelivery.first_s * redelivery.multiplier ** (delivery_count - 1))
    return min(grown * (1 + JITTER * (2 * chance - 1)), LONGEST_DELAY_S)


def chance_of(run: OffsetRun) -> float:
    """Return a number from 0 to 1 that is as good as random, from the offset and the delivery count."""
    return murmur2(b"%d %d" % (run.first, run.count)) / SPACE


class DelayedRuns:
    """Runs that wait for their due time, of all share partitions of a coordinator. All times are monotonic seconds."""

    def __init__(
        self,
        now: Callable[[], float] = lambda: 0.0,
        wall_s: Callable[[], float] = lambda: 0.0,
        chance: Callable[[OffsetRun], float] = chance_of,
    ) -> None:
        """`now` and `wall_s` convert between due times in memory and stored ones, in seconds since 1970.

        `chance` returns a number from 0 to 1 for the delay of a run.
        """
        self.chance = chance
        self._now, self._wall_s = now, wall_s
        self._heap: list[tuple[float, int, OffsetRun]] = []
        self._due: dict[OffsetRun, float] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, run: OffsetRun, due: float) -> None:
        """Set the due time of a run, which may still be held while its release is being stored."""
        self._due[run] = due
        heappush(self._heap, (due, next(self._numbers), run))
        if len(self._heap) > 2 * len(self._due) + OUTDATED_MAX:
            self._heap = [(until, next(self._numbers), each) for each, until in self._due.items()]
            heapify(self._heap)

    def forget(self, run: OffsetRun) -> None:
        self._due.pop(run, None)

    def emptied(self) -> DelayedRuns:
        """Return another object without runs, with the same clocks."""
        return DelayedRuns(self._now, self._wall_s, self.chance)

    def due(self, run: OffsetRun) -> float:
        """Return the due time of a run. -inf if it does not wait."""
        return self._due.get(run, -inf)

    def next(self) -> float:
        """Return the earliest due time, or inf."""
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else inf

    def take(self, now: float) -> dict[Any, list[OffsetRun]]:
        """Remove the runs that are due, by share partition. Those whose release is not stored yet wait on."""
        due_runs: dict[Any, list[OffsetRun]] = {}
        early: list[OffsetRun] = []
        while self.next() <= now:
            run = heappop(self._heap)[2]
            if run.pending is not None:
                early.append(run)
            else:
                del self._due[run]
                due_runs.setdefault(run.partition, []).append(run)
        for run in early:
            self.add(run, now + STORED_AGAIN_S)
        return due_runs

    def stored_s(self, due: float) -> int:
        """Return a due time as it is stored: seconds since 1970, rounded up."""
        return ceil(self._wall_s() + due - self._now())

    def loaded(self, stored_s: int) -> float | None:
        """Return a stored due time as monotonic seconds. None if it is over.

        It is at most the longest delay from now, because the clock of another machine may have set it.
        """
        left_s = min(stored_s - self._wall_s(), LONGEST_DELAY_S)
        return self._now() + left_s if left_s > 0 else None
