"""Announced appends, so that an append that could go now waits for them and is sent together with them.

How it works: a caller that is about to append calls `begin` (an individual commit: when it is forwarded to the
coordinator), and `end` when its append is requested or will not be. The usual time between the two is learned from
those that ended: a 4.3 coordinator responds in less than 1 ms. An append waits only for one that began before it was
requested and is expected by now or within `SHARE_MAX_S`. A single caller therefore does not wait, and a stuck one
delays no other. Appends do not wait if the coordinator gathers commits itself, as 3.9 does, for 10 ms from the first
one on. It responds to all of them together, and gathers again as soon as one client receives its response and commits
again. The sooner the first append is stored the sooner that is, and all others are still in time. The journal bounds
the wait itself.
"""

from __future__ import annotations

from collections.abc import Callable

SHARE_MAX_S = 0.001
"""Maximum seconds that an append waits for others that are coming. The loop's clock wakes it up to a millisecond later.
"""
LATE_S = 0.005
"""Seconds. An append that is late by more than twice the usual time plus this is no longer waited for."""
GATHERS_S = 0.005
"""Seconds. A coordinator that usually takes longer gathers commits itself, and appends do not wait."""
LEARNT = 1 / 8
"""Weight of the last sample in the moving average."""


class ComingAppends:
    """Coming appends of one journal. All times are `now`, in monotonic seconds."""

    def __init__(self) -> None:
        self.usual_s = 0.0
        """Average seconds from `begin` to `end`."""
        self.on_end: Callable[[], None] | None = None
        """Called at each `end`. Set by the journal while an append waits."""
        self._since: dict[object, float] = {}
        """Caller -> time of its `begin`, in the order of these times."""

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, who: object, now: float) -> None:
        """Announce an append."""
        self._since[who] = now

    def end(self, who: object, now: float) -> None:
        """Withdraw the announcement: the append was requested, or will not be. A second call has no effect."""
        began = self._since.pop(who, None)
        if began is None:
            return
        self._learn(now - began)
        if self.on_end is not None:
            self.on_end()

    def is_one_due(self, asked_at: float, now: float) -> bool:
        """Return True if an append that was requested at `asked_at` should wait for a coming one."""
        since = self._since
        while since:
            who, began = next(iter(since.items()))
            if now - began <= 2 * self.usual_s + LATE_S:
                is_expected = began + self.usual_s <= now + SHARE_MAX_S
                return is_expected and began <= asked_at and self.usual_s <= GATHERS_S
            del since[who]
            self._learn(now - began)
        return False

    def _learn(self, took_s: float) -> None:
        self.usual_s += (took_s - self.usual_s) * LEARNT
