"""A clock and timers that are moved by hand."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

WALL_MS = 1_700_000_000_000
"""Wall-clock time at the start of a clock."""


class ManualTimers:
    """Timers that ring when the test moves the clock."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._planned: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return WALL_MS + round((self._now - 1000.0) * 1000)

    def call_at(self, deadline: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._planned, (deadline, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Move the clock; what is due on the way rings at its own time."""
        until = self._now + seconds
        for _ in range(100_000):
            if not self._planned or self._planned[0][0] > until:
                break
            deadline, _, timer = heapq.heappop(self._planned)
            self._now = max(self._now, deadline)
            timer.ring()
        else:
            raise AssertionError("timers ring without end")
        self._now = until

    def ring(self) -> None:
        """Move the clock to the next timer."""
        deadlines = [deadline for deadline, _, timer in self._planned if timer.callback is not None]
        assert deadlines, "it waits for what never comes"
        self.advance(max(0.0, min(deadlines) - self._now))

    @property
    def planned(self) -> int:
        """Return how many timers have neither rung nor been cancelled."""
        return sum(timer.callback is not None for _, _, timer in self._planned)


class ManualTimer:
    """One timer. Its callback is None once it has rung or was cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def ring(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()
