"""Clock of a cluster: it runs with the machine's clock, or is stopped until it is advanced."""

from __future__ import annotations

import math

import trio


class Clock:
    """Time of one cluster. Every wait of the cluster uses it, so that a test can expire a lock without sleeping."""

    def __init__(self, start_ms: int) -> None:
        """Start a running clock. `start_ms`: wall time in milliseconds since the epoch."""
        self._start_ms = start_ms
        self._elapsed_s = 0.0
        self._resumed_at: float | None = trio.current_time()
        self._changed = trio.Event()

    def now(self) -> float:
        """Return the seconds since the start; they never decrease."""
        running = 0.0 if self._resumed_at is None else trio.current_time() - self._resumed_at
        return self._elapsed_s + running

    def wall_ms(self) -> int:
        """Return the wall time in milliseconds since the epoch."""
        return self._start_ms + int(self.now() * 1000)

    @property
    def runs(self) -> bool:
        """True if it runs with the machine's clock."""
        return self._resumed_at is not None

    def stop(self) -> None:
        """Stand still until `advance` or `resume`."""
        self._elapsed_s, self._resumed_at = self.now(), None
        self._notify()

    def resume(self) -> None:
        """Run with the machine's clock."""
        self._elapsed_s, self._resumed_at = self.now(), trio.current_time()
        self._notify()

    def advance(self, seconds: float) -> None:
        """Move the time forward and wake every wait that is due. Raises ValueError for a negative time."""
        if seconds < 0:
            raise ValueError(f"a clock cannot be advanced by {seconds} s")
        self._elapsed_s += seconds
        self._notify()

    async def wait_until(self, deadline: float) -> None:
        """Return when `now()` has reached the deadline."""
        while (remaining_s := deadline - self.now()) > 0:
            with trio.move_on_after(remaining_s if self.runs else math.inf):
                await self._changed.wait()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
        await self.wait_until(self.now() + seconds)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
