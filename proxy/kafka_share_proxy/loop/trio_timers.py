"""Clock and alarms for handlers (interfaces.Timers) on Trio's own, for commands that run without the reactor."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio


class TrioTimers:
    """Timers whose alarms are tasks of one nursery."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, deadline: float, callback: Callable[[], None]) -> TrioTimer:
        alarm = TrioTimer()
        self._nursery.start_soon(self._ring, deadline, callback, alarm)
        return alarm

    async def _ring(self, deadline: float, callback: Callable[[], None], alarm: TrioTimer) -> None:
        with alarm.scope:
            await trio.sleep_until(deadline)
            callback()


class TrioTimer:
    """See interfaces.Timer."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()

    def cancel(self) -> None:
        self.scope.cancel()
