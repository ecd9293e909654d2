"""Large work a little at a time: how a request with many elements leaves the loop to others.

Theory of operation. A handler runs until it awaits, and nobody else runs meanwhile. What takes time for each element of
a request therefore calls `Work.step` for each of them: once the slice of time is used up, it waits for its turn, and
`Slices` lets one of all those that wait go on in each turn of the loop. So a turn is as long as one slice, however many
clients send large requests at once, and small requests never wait here.

Between two steps anything may have changed: what has to be decided in one piece is decided between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from proxy.loop.promise import Promise

if TYPE_CHECKING:
    from proxy.loop.interfaces import Timers

E = TypeVar("E")
T = TypeVar("T")

SLICE_S = 0.003
"""How long a request may keep the loop in one turn."""
STEPS_UNLOOKED = 16
"""Steps between two looks at the clock."""
STEP_BYTES = 1024
"""A step over more takes as long as several."""


class Slices:
    """Those that wait for their turn. One per process."""

    __slots__ = ("_timers", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Promise[None]] = deque()

    def turn(self) -> Promise[None]:
        """Settled in a later turn of the loop, in which nobody else is let go on."""
        promise: Promise[None] = Promise()
        self._waiting.append(promise)
        if len(self._waiting) == 1:
            self._plan()
        return promise

    def now(self) -> float:
        """Monotonic seconds."""
        return self._timers.now()

    def _plan(self) -> None:
        self._timers.call_at(self._timers.now(), self._let_go_on)

    def _let_go_on(self) -> None:
        promise = self._waiting.popleft()
        if self._waiting:
            self._plan()
        promise.set(None)


class Work:
    """The work for one request; without `slices` it is never interrupted."""

    __slots__ = ("_slices", "_steps", "_until")

    def __init__(self, slices: Slices | None = None) -> None:
        self._slices = slices
        self._steps = 0
        self._until = 0.0 if slices is None else slices.now() + SLICE_S

    async def step(self, size: int = 0) -> None:
        """Between two elements, the last of `size` bytes: let others run if the slice of time is used up."""
        self._steps += 1 + size // STEP_BYTES
        if self._steps >= STEPS_UNLOOKED:
            self._steps = 0
            await self.pause()

    async def pause(self) -> None:
        """As `step`, for work that is done in larger pieces: the clock is looked at each time."""
        slices = self._slices
        if slices is not None and slices.now() >= self._until:
            await slices.turn()
            self._until = slices.now() + SLICE_S

    async def map(self, make: Callable[[E], T], elements: Iterable[E]) -> list[T]:
        """What `make` gives for each element, in order; each is a step."""
        made = []
        for element in elements:
            made.append(make(element))
            await self.step()
        return made

    async def in_order(self, asked: Iterable[E], found: Sequence[T], about: Callable[[T], E]) -> list[T]:
        """What was found, in the order of what was asked; `about` tells what an entry is about. Others come last."""
        order: dict[E, int] = {}
        for index, one in enumerate(asked):
            order.setdefault(one, index)
            await self.step()
        places = await self.map(lambda entry: order.get(about(entry), len(order)), found)
        return [found[index] for index in sorted(range(len(found)), key=places.__getitem__)]

    async def drive(self, pieces: Generator[None, None, T]) -> T:
        """Run a generator to its end; each of its pauses is one of ours. Gives what it returns."""
        while True:
            try:
                next(pieces)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # what such a generator returns
            await self.pause()


AT_ONCE = Work()
"""Of a request that is served in one go."""
