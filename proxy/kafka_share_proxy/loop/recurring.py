"""Periodic checks of held items, a few at a time (loop/README.md rule 17)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.loop.promise import Task

K = TypeVar("K", str, bytes)


class RoundRobin(Generic[K]):
    """Selection of items to check: all in rotation, and again those suspected by the last check."""

    def __init__(self, upto: K) -> None:
        """`upto`: less than every possible key."""
        self.suspected: frozenset[K] = frozenset()
        self._upto: K = upto

    def next(self, keys: Iterable[K], at_once: int) -> list[K]:
        """Return at most `at_once` keys after the previous ones, and the suspected ones."""
        ordered = sorted(keys)
        chosen = [each for each in ordered if each > self._upto][:at_once]
        chosen += [each for each in ordered if each <= self._upto][: at_once - len(chosen)]
        if chosen:
            self._upto = chosen[-1]
        return sorted(self.suspected.intersection(ordered).union(chosen))


def check_every(timers: Timers, period_s: float, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Call `check` after each period, for ever. An exception ends only that call."""

    def begin() -> None:
        Task(check(), ended).start()

    def ended(task: Task[None]) -> None:
        check_every(timers, period_s, check)
        if task.error is not None:
            raise task.error

    timers.call_at(timers.now() + period_s, begin)
