"""Announced appends, so that an append that could go now waits for them and is sent together with them.

Rule: durable/README.md 34. `begin` announces an append (an individual commit: when it is forwarded to the coordinator),
`end` withdraws it. The usual time between the two is learned. A coordinator of 3.9 gathers commits for 10 ms from the
first one on: it gathers again as soon as one client commits again, and all others are still in time.
"""

from __future__ import annotations

from collections.abc import Callable

SHARE_MAX_S = 0.001
"""Maximum seconds that an append waits for others."""
LATE_S = 0.005
"""Seconds beyond twice the usual time after which an append is no longer waited for."""
GATHERS_S = 0.005
"""Seconds. A coordinator that takes longer gathers commits itself, and appends do not wait."""
LEARNT = 1 / 8
"""Weight of the last sample in the moving average."""


class ComingAppends:
    """Coming appends of one journal. All times are `now`, in monotonic seconds."""

    def __init__(self) -> None:
        self.usual_s = 0.0
        """Average seconds from `begin` to `end`."""
        self.on_end: Callable[[], None] | None = None
        """Function to call at the next end, set by the journal while an append waits."""
        self._since: dict[object, float] = {}
        """Caller -> time of its `begin`, ascending."""

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, caller: object, now: float) -> None:
        self._since[caller] = now

    def end(self, caller: object, now: float) -> None:
        began = self._since.pop(caller, None)
        if began is None:
            return
        self._learn(now - began)
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def is_one_due(self, requested_at: float, now: float) -> bool:
        """True if an append requested at `requested_at` should wait for a coming one."""
        since = self._since
        while since:
            caller, began = next(iter(since.items()))
            if now - began <= 2 * self.usual_s + LATE_S:
                is_expected = began + self.usual_s <= now + SHARE_MAX_S
                return is_expected and began <= requested_at and self.usual_s <= GATHERS_S
            del since[caller]
            self._learn(now - began)
        return False

    def _learn(self, took_s: float) -> None:
        self.usual_s += (took_s - self.usual_s) * LEARNT
