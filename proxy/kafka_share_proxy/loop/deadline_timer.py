"""One timer for many deadlines."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kafka_share_proxy.loop.interfaces import Timer, Timers


class DeadlineTimer:
    """Calls `due(now)` at the next deadline. `due` returns the one after it."""

    def __init__(self, timers: Timers, due: Callable[[float], float]) -> None:
        self._timers = timers
        self._due = due
        self._timer: Timer | None = None
        self._deadline = inf

    def not_later_than(self, deadline: float) -> None:
        """Move the timer to this deadline unless it is set to an earlier one."""
        if deadline >= self._deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline
        self._timer = self._timers.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer, self._deadline = None, inf
        self.not_later_than(self._due(self._timers.now()))
