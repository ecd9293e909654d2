"""Thread that reports a blocked loop, with the calls that block it (loop/README.md rule 21).

`Iterations` reports a long iteration when it has ended. This thread reports it before, because it may never end.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType

LIMIT_S = 2.0
"""Seconds without a reaction of the loop that are reported. Clients give up after 30 s (request.timeout.ms)."""
EVERY_S = 2.0
"""Seconds between two calls that the loop has to react to."""
FRAMES_MAX = 12
"""Maximum number of calls that are named, from the innermost one."""

Report = Callable[[float, str], None]
"""Function of seconds and calls."""


class Watchdog:
    """Watch over the loop of the thread that enters it."""

    def __init__(
        self,
        call_from_thread: Callable[[Callable[[], object]], None],
        blocked: Report,
        continues: Report,
        limit_s: float = LIMIT_S,
        every_s: float = EVERY_S,
    ) -> None:
        """`blocked` is called in another thread while the loop is blocked, `continues` in the loop afterwards."""
        self._call = call_from_thread
        self._blocked, self._continues = blocked, continues
        self._limit_s, self._every_s = limit_s, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._watched = 0

    def __enter__(self) -> None:
        self._watched = threading.get_ident()
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does not wait for the thread, which ends by itself."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            reacted, began = threading.Event(), monotonic()
            self._call(reacted.set)
            if reacted.wait(self._limit_s):
                continue
            calls = calls_of(self._watched)
            self._blocked(self._limit_s, calls)
            while not reacted.wait(self._every_s):
                if self._ended.is_set():
                    return
            self._call(partial(self._continues, monotonic() - began, calls))


def calls_of(thread: int) -> str:
    """Return the innermost calls of a thread, without values. Empty if the thread has ended."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    calls = traceback.extract_stack(frame)[-FRAMES_MAX:]
    return " > ".join(f"{Path(each.filename).stem}.{each.name}:{each.lineno}" for each in calls)
