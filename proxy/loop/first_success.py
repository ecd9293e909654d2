"""Several servers would do: they are tried one beside the other, and the first that succeeds is taken.

As RFC 8305 does for the addresses of one name: the next attempt begins when the one before failed, or after a moment.
So a server that swallows packets costs that moment, not its time-out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

STAGGER_S = 0.5
"""How long an attempt is waited for before the next begins beside it."""
AT_ONCE_MAX = 8
"""Attempts under way; one more begins when one of them ends."""


@dataclass(slots=True)
class Race(Generic[T, E]):
    """What became of the attempts."""

    winner: tuple[int, T] | None = None
    """Index and result of the first that succeeded; None when all failed."""
    failures: dict[int, E] = field(default_factory=dict)
    """Index -> error of those that failed before that, in the order of the attempts."""


async def race(
    attempts: Sequence[Callable[[], Awaitable[T]]],
    expected: type[E] | tuple[type[E], ...],
    discard: Callable[[T], Awaitable[None]],
    stagger_s: float = STAGGER_S,
) -> Race[T, E]:
    """Begin the attempts in their order, until one succeeds; those still under way are then cancelled.

    Args:
        expected: what a failed attempt raises; anything else is a fault and passes through.
        discard: gives back a result that is not wanted: a second one, or one that came beside a fault.
        stagger_s: how long an attempt is waited for before the next begins beside it.
    """
    succeeded: list[tuple[int, T]] = []
    failures: dict[int, E] = {}
    places = trio.Semaphore(AT_ONCE_MAX)
    found = Race[T, E]()

    @trio.lowlevel.enable_ki_protection  # whose attempts these are decides what Ctrl-C ends
    async def run(index: int, failed: trio.Event) -> None:
        try:
            succeeded.append((index, await attempts[index]()))
        except expected as error:
            failures[index] = error
            failed.set()
            places.release()
            return
        nursery.cancel_scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            for index in range(len(attempts)):
                await places.acquire()
                failed = trio.Event()
                nursery.start_soon(run, index, failed)
                with trio.move_on_after(stagger_s):
                    await failed.wait()
        found = Race(next(iter(succeeded), None), dict(sorted(failures.items())))
    finally:  # also when a fault passes through, with a result already there
        for _, unwanted in succeeded if found.winner is None else succeeded[1:]:
            await discard(unwanted)
    return found
