"""Trouble that may last, told as one thing: a first line, a reminder with its count now and then, and an end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from proxy.loop.interfaces import Notes

REMIND_S = 60.0
"""Trouble that goes on is told again this often."""


class LastingTrouble:
    """One thing that goes wrong again and again until it works."""

    def __init__(
        self,
        notes: Notes,
        event: str,
        over: str,
        *,
        patience_s: float = 0.0,
        clock: Callable[[], float] = trio.current_time,
        **context: Any,
    ) -> None:
        """`over`: the event that ends it; `context` stands in each line. What ends within `patience_s` is not told."""
        self._notes = notes
        self._event, self._over = event, over
        self._patience_s = patience_s
        self._clock = clock
        self._context = context
        self._since = self._told_at = 0.0
        self._times = 0
        self._told = ""
        """The reason told last; empty while nothing was told."""

    def happened(self, reason: str, *, patient: bool = True) -> None:
        """It went wrong. A new reason is told at once, the same again as a reminder. `patient`: see `patience_s`."""
        now = self._clock()
        if not self._times:
            self._since = now
        self._times += 1
        if patient and not self._told and now - self._since < self._patience_s:
            return
        if reason == self._told and now - self._told_at < REMIND_S:
            return
        again = {"times": self._times, "for_s": round(now - self._since)} if self._times > 1 else {}
        self._told, self._told_at = reason, now
        self._notes(self._event, reason=reason, **again, **self._context)

    def ended(self) -> None:
        """It works, as it may have done all the time."""
        if self._told:
            lasted = round(self._clock() - self._since, 1)
            self._notes(self._over, times=self._times, lasted_s=lasted, **self._context)
        self._times, self._told = 0, ""
