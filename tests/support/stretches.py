"""How much a handler does between two pauses, counted in bytecode instructions: no clock decides.

Work in slices pauses after every few elements, so the longest stretch does not grow with the request. What C does
without a call of Python (sorting, joining, building a dictionary) is not counted.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.loop.slices import SLICE_S, Slices, Work


class Impatient:
    """A clock that advances by a slice at each reading: everything that may pause pauses."""

    def __init__(self) -> None:
        self.planned: deque[Callable[[], None]] = deque()
        self._now = 0.0

    def now(self) -> float:
        self._now += SLICE_S
        return self._now

    def call_at(self, _deadline: float, callback: Callable[[], None]) -> None:
        self.planned.append(callback)


@contextmanager
def uncounted() -> Iterator[None]:
    """Yield what a test plays on behalf of others, a broker for example."""
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)


def longest_stretch(make: Callable[[Work], Coroutine[Any, Any, Any]], ring: Callable[[], object]) -> int:
    """Run what `make` returns to its end; return the most instructions between two pauses.

    `ring` lets the next timer ring that other code waits for.
    """
    clock, longest, count = Impatient(), 0, 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    task = Task(make(Work(Slices(clock))), lambda _: None)  # type: ignore[arg-type]  # what Slices use of Timers
    before = sys.gettrace()
    step: Callable[[], object] = task.start
    while not task.finished:
        count = 0
        sys.settrace(trace)
        try:
            step()
        finally:
            sys.settrace(before)
        longest = max(longest, count)
        step = clock.planned.popleft() if clock.planned else ring
    if task.error is not None:
        raise task.error
    return longest
