"""Staggered attempts at several equivalent servers, of which the first success wins.

As in RFC 8305 for the addresses of one name: the next attempt begins when the previous one failed, or after a delay, so
that a server that drops packets costs that delay, not its time-out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

STAGGER_S = 0.5
"""Seconds after which the next attempt begins in parallel."""
IN_FLIGHT_MAX = 8
"""Maximum number of attempts in flight."""


@dataclass(slots=True)
class Race(Generic[T, E]):
    """Outcome of the attempts."""

    winner: tuple[int, T] | None = None
    """Index and result of the first success. None if all failed."""
    failures: dict[int, E] = field(default_factory=dict)
    """Errors of the attempts that failed before the winner, by index."""


async def race(
    attempts: Sequence[Callable[[], Awaitable[T]]],
    expected: type[E] | tuple[type[E], ...],
    discard: Callable[[T], Awaitable[None]],
    stagger_s: float = STAGGER_S,
) -> Race[T, E]:
    """Begin the attempts in order until one succeeds. Attempts still in flight are then cancelled.

    Exceptions in `expected` are failed attempts; any other is a fault and propagates. `discard` releases an unused
    result: a second one, or one that coincided with a fault.
    """
    succeeded: list[tuple[int, T]] = []
    failures: dict[int, E] = {}
    slots = trio.Semaphore(0)  # one for each failed attempt; the first IN_FLIGHT_MAX need none
    outcome = Race[T, E]()

    @trio.lowlevel.enable_ki_protection  # the owner of these attempts decides what Ctrl-C ends
    async def run(index: int, failed: trio.Event) -> None:
        try:
            succeeded.append((index, await attempts[index]()))
        except expected as error:
            failures[index] = error
            failed.set()
            slots.release()
            return
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for index in range(len(attempts)):
                if index >= IN_FLIGHT_MAX:
                    await slots.acquire()
                failed = trio.Event()
                nursery.start_soon(run, index, failed)
                with trio.move_on_after(stagger_s):
                    await failed.wait()
        outcome = Race(next(iter(succeeded), None), dict(sorted(failures.items())))
    finally:  # also if a fault propagates when there is already a result
        for _, unwanted in succeeded if outcome.winner is None else succeeded[1:]:
            await discard(unwanted)
    return outcome
