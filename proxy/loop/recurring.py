"""Looks at what is held, now and then, some of it at a time (loop/README.md rule 17)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from proxy.loop.interfaces import Timers
from proxy.loop.promise import Task

K = TypeVar("K", str, bytes)
"""What is held goes by."""


class InTurn(Generic[K]):
    """Chooses what to look at: all of it in turn, and again what the last look suspected."""

    def __init__(self, upto: K) -> None:
        """`upto`: less than everything that can be held."""
        self.suspected: frozenset[K] = frozenset()
        """What the last look found to be gone, perhaps."""
        self._upto: K = upto

    def next(self, held: Iterable[K], at_once: int) -> list[K]:
        """At most `at_once` of what is held, those behind the last ones first, and what is suspected besides."""
        ordered = sorted(held)
        chosen = [each for each in ordered if each > self._upto][:at_once]
        chosen += [each for each in ordered if each <= self._upto][: at_once - len(chosen)]
        if chosen:
            self._upto = chosen[-1]
        return sorted(self.suspected.intersection(ordered).union(chosen))


def look_every(timers: Timers, period_s: float, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Look after each period from now on, for as long as the process lives; what a look raises ends only that look."""

    def begin() -> None:
        Task(look(), ended).start()

    def ended(task: Task[None]) -> None:
        look_every(timers, period_s, look)
        if task.error is not None:
            raise task.error

    timers.call_at(timers.now() + period_s, begin)
