"""Clocks that count the time for which the machine was suspended; CLOCK_MONOTONIC, and with it Trio's clock, does not.

Source: clock_gettime(2). Without CLOCK_BOOTTIME, CLOCK_MONOTONIC is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import trio

BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
COUNTS_SUSPENSION = hasattr(time, "CLOCK_BOOTTIME")
SUSPENDED_MIN_S = 0.1
"""Seconds that count as a suspension: the two clocks are not read in the same instant."""


boot_time: Callable[[], float] = partial(time.clock_gettime, BOOT_CLOCK)
"""A partial because every request that is served here reads it."""


def time_suspended() -> float:
    """Return the seconds for which the machine was suspended since it started.

    An interruption between the two calls makes the result smaller, never larger, because BOOT_CLOCK is read first.
    """
    boot = time.clock_gettime(BOOT_CLOCK)
    return boot - time.clock_gettime(time.CLOCK_MONOTONIC)


class SuspensionClock:
    """Trio's time plus the time for which the machine was suspended since this clock was made."""

    def __init__(self, suspended: Callable[[], float] = time_suspended) -> None:
        self._suspended = suspended
        self._at_start = suspended()
        self._counted = 0.0

    def now(self) -> float:
        """Return the time in seconds."""
        suspended = self._suspended() - self._at_start
        if suspended - self._counted > SUSPENDED_MIN_S:
            self._counted = suspended
        return trio.current_time() + self._counted

    def in_trio_time(self, at: float) -> float:
        """Return the time of `trio.current_time` for a time of this clock."""
        return at - self._counted
