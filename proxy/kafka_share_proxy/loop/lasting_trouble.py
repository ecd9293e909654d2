"""Log lines for a repeated error: a first line, reminders with a count, and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kafka_share_proxy.loop.interfaces import Notes

REMIND_S = 60.0


class LastingTrouble:
    """Error that repeats until the operation succeeds."""

    def __init__(
        self,
        notes: Notes,
        event: str,
        over: str,
        *,
        patience_s: float = 0.0,
        remind_s: float = REMIND_S,
        clock: Callable[[], float] = trio.current_time,
        **context: Any,
    ) -> None:
        """`over`: the event at its end. `context`: added to each line. Errors within `patience_s` are not logged."""
        self._notes = notes
        self._event, self._over = event, over
        self._patience_s = patience_s
        self._remind_s = remind_s
        self._clock = clock
        self._context = context
        self._since = self._logged_at = 0.0
        self._times = 0
        self._logged_reason = ""
        """Reason logged last. Empty if none was logged."""

    def happened(self, reason: str, *, patient: bool = True) -> None:
        """Record a failure. Only a new reason is logged immediately (without `patient` also within `patience_s`)."""
        now = self._clock()
        if not self._times:
            self._since = now
        self._times += 1
        if patient and not self._logged_reason and now - self._since < self._patience_s:
            return
        if reason == self._logged_reason and now - self._logged_at < self._remind_s:
            return
        again = {"times": self._times, "for_s": round(now - self._since)} if self._times > 1 else {}
        self._logged_reason, self._logged_at = reason, now
        self._notes(self._event, reason=reason, **again, **self._context)

    def ended(self) -> None:
        """Record a success. Logged only if a failure was."""
        if self._logged_reason:
            lasted = round(self._clock() - self._since, 1)
            self._notes(self._over, times=self._times, lasted_s=lasted, **self._context)
        self._times, self._logged_reason = 0, ""
