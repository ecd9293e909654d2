"""Large work in slices (loop/README.md rule 10).

Work calls `Work.step` for each element of a request. Once its slice is used up it waits, and `Slices` lets one of all
waiting requests continue in each loop iteration. Anything may have changed between two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafka_share_proxy.loop.promise import Promise

if TYPE_CHECKING:
    from kafka_share_proxy.loop.interfaces import Timers

E = TypeVar("E")
T = TypeVar("T")

SLICE_S = 0.003
"""Seconds for which a request may block the loop in one iteration."""
STEPS_PER_CLOCK_READ = 16
"""Steps after which the clock is read: reading it at each would cost more than many steps."""
STEP_BYTES = 1024
"""Bytes that count as one step."""


class Slices:
    """Requests that wait for their next slice."""

    __slots__ = ("_timers", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Promise[None]] = deque()

    def wait(self) -> Promise[None]:
        """Return a promise that is settled in the iteration that has this slice."""
        promise: Promise[None] = Promise()
        self._waiting.append(promise)
        if len(self._waiting) == 1:
            self._plan()
        return promise

    def now(self) -> float:
        return self._timers.now()

    def _plan(self) -> None:
        self._timers.call_at(self._timers.now(), self._resume_first)

    def _resume_first(self) -> None:
        promise = self._waiting.popleft()
        if self._waiting:
            self._plan()
        promise.set(None)


class Work:
    """Work for one request. Without `slices` it never pauses."""

    __slots__ = ("_slices", "_steps", "_until")

    def __init__(self, slices: Slices | None = None) -> None:
        self._slices = slices
        self._steps = 0
        self._until = 0.0 if slices is None else slices.now() + SLICE_S

    async def step(self, size: int = 0) -> None:
        """Let other requests run if the slice is used up. Called between two elements, the last of `size` bytes."""
        self._steps += 1 + size // STEP_BYTES
        if self._steps >= STEPS_PER_CLOCK_READ:
            self._steps = 0
            await self.pause()

    async def pause(self) -> None:
        """Let other requests run if the slice is used up. Reads the clock each time: for work in larger pieces."""
        slices = self._slices
        if slices is not None and slices.now() >= self._until:
            await slices.wait()
            self._until = slices.now() + SLICE_S

    async def map(self, make: Callable[[E], T], elements: Iterable[E]) -> list[T]:
        """Return the results of a function for all elements, with a step for each."""
        results = []
        for element in elements:
            results.append(make(element))
            await self.step()
        return results

    async def select(self, suits: Callable[[E], object], elements: Iterable[E]) -> list[E]:
        """Return the elements for which a function returns a true value, with a step for each."""
        selected = []
        for element in elements:
            if suits(element):
                selected.append(element)
            await self.step()
        return selected

    async def in_order(self, requested: Iterable[E], entries: Sequence[T], about: Callable[[T], E]) -> list[T]:
        """Return the entries in the order of `requested`, by their elements (`about`). Entries without one are last."""
        order: dict[E, int] = {}
        for index, one in enumerate(requested):
            order.setdefault(one, index)
            await self.step()
        positions = await self.map(lambda entry: order.get(about(entry), len(order)), entries)
        return [entries[index] for index in sorted(range(len(entries)), key=positions.__getitem__)]

    async def drive(self, pieces: Generator[None, None, T]) -> T:
        """Run a generator with a pause at each of its yields. Returns its result."""
        while True:
            try:
                next(pieces)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # what such a generator returns
            await self.pause()


AT_ONCE = Work()
"""Work for a request that is served in one go."""
