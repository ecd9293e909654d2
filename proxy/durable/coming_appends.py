"""Appends that somebody will ask for in a moment, so that one that could go now waits for them and takes them along.

Theory of operation. Who is about to append says so when that begins (an individual commit: when it goes on to the
coordinator), and that it is over when its append is asked for, or none will be. How long that usually takes is learnt
from those that are over: a coordinator of 4.3 answers in less than 1 ms. An append waits only for one that began before
it was asked for and is expected by now or within `SHARE_MAX_S`. So a caller that is alone does not wait, and one that
is stuck holds up nobody. Nobody waits where the coordinator gathers commits itself, as 3.9 does, for 10 ms from the
first one on: it answers all of them together, and gathers again as soon as one client hears and commits again. The
sooner the first append is stored the sooner that is, and all others still come in time. The journal bounds the wait
itself.
"""

from __future__ import annotations

from collections.abc import Callable

SHARE_MAX_S = 0.001
"""An append that could go waits for others that are coming, but no longer than this; the loop's clock wakes it up to a
millisecond later."""
LATE_S = 0.005
"""What takes so much longer than twice the usual time may not come soon: nobody waits for it."""
GATHERS_S = 0.005
"""A coordinator that usually takes longer gathers commits: nobody waits for others of them."""
LEARNT = 1 / 8
"""Share of the last one in what is usual."""


class ComingAppends:
    """One per journal. All times are `now`, monotonic seconds."""

    def __init__(self) -> None:
        self.usual_s = 0.0
        """How long it takes from the beginning to the end, on average of the last ones."""
        self.on_end: Callable[[], None] | None = None
        """Called when one of them is over; the journal's, while an append waits for them."""
        self._since: dict[object, float] = {}
        """Who is about to append, in the order of these times."""

    def __len__(self) -> int:
        return len(self._since)

    def begin(self, who: object, now: float) -> None:
        """Somebody is about to append."""
        self._since[who] = now

    def end(self, who: object, now: float) -> None:
        """It has asked for its append, or will not; harmless twice."""
        began = self._since.pop(who, None)
        if began is None:
            return
        self._learn(now - began)
        if self.on_end is not None:
            self.on_end()

    def is_one_due(self, asked_at: float, now: float) -> bool:
        """Whether an append that was asked for then should wait for one of these."""
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
