"""Deadlines of one cluster, by its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import inf

import trio

from kafka_share_proxy.conformance.target.clock import Clock


class ClusterTimer:
    """A callback with a deadline."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: float, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Drop the callback, if it was not called yet."""
        self.callback = None


class ClusterTimers:
    """All deadlines of a cluster. They are due in order, also when the clock is advanced by hours."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, ClusterTimer]] = []
        self._count = 0
        self._earlier = trio.Event()

    def call_at(self, deadline: float, callback: Callable[[], None]) -> ClusterTimer:
        """Call `callback` when `clock.now()` has reached the deadline."""
        timer = ClusterTimer(deadline, callback)
        self._count += 1
        heappush(self._heap, (deadline, self._count, timer))
        if self._heap[0][2] is timer:
            self._earlier.set()
        return timer

    def run_due(self) -> None:
        """Call the callbacks that are due."""
        while self._next() <= self._clock.now():
            timer = heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

    async def run(self) -> None:
        """Call each callback when it is due, until cancelled."""
        while True:
            self.run_due()
            self._earlier = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._wake_at, self._next(), nursery.cancel_scope)
                await self._earlier.wait()
                nursery.cancel_scope.cancel()

    async def _wake_at(self, deadline: float, scope: trio.CancelScope) -> None:
        await self._clock.wait_until(deadline)
        scope.cancel()

    def _next(self) -> float:
        while self._heap and self._heap[0][2].callback is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else inf


class Signal:
    """Wakes the requests that wait for a change."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[trio.Event, None] = {}

    def notify(self) -> None:
        for event in self._waiting:
            event.set()

    def add(self, event: trio.Event) -> None:
        self._waiting[event] = None

    def discard(self, event: trio.Event) -> None:
        self._waiting.pop(event, None)


async def wait_for_change(signals: Iterable[Signal], timers: ClusterTimers, deadline: float) -> None:
    """Return when one of the signals is notified, or at the deadline."""
    event = trio.Event()
    watched = list(signals)
    timer = timers.call_at(deadline, event.set) if deadline < inf else None
    for signal in watched:
        signal.add(event)
    try:
        await event.wait()
    finally:
        for signal in watched:
            signal.discard(event)
        if timer is not None:
            timer.cancel()
