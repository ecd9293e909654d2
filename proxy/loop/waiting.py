"""Waits with a deadline, on the reactor's own clock."""

from __future__ import annotations

from collections import deque
from typing import Any

from proxy.loop.interfaces import Timers
from proxy.loop.promise import Promise


async def first_until(timers: Timers, deadline: float, *promises: Promise[Any]) -> None:
    """Wait until any of the promises is settled or the deadline has passed; the promises go on."""
    for promise in promises:
        if promise.done:
            return
    over: Promise[None] = Promise()

    def wake() -> None:
        over.set(None)

    timer = timers.call_at(deadline, wake)
    try:
        for promise in promises:
            promise.on_settled(wake)
        await over
    finally:
        timer.cancel()
        for promise in promises:
            promise.forget(wake)


async def settled_within(timers: Timers, seconds: float, promise: Promise[Any]) -> bool:
    """Wait until the promise is settled; False when that takes longer."""
    return await settled_by(timers, timers.now() + seconds, promise)


async def settled_by(timers: Timers, deadline: float, promise: Promise[Any]) -> bool:
    """Wait until the promise is settled; False when it is not by then."""
    if not promise.done:
        await first_until(timers, deadline, promise)
    return promise.done


class SlicedWork:
    """Long work in the loop, cut into slices by who does it: of all of them one runs in each turn of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[Promise[None]] = deque()

    def next(self, timers: Timers) -> Promise[None]:
        """Settled in a later turn, when it is this one's."""
        mine: Promise[None] = Promise()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            timers.call_at(timers.now(), lambda: self._run_first(timers))
        return mine

    def _run_first(self, timers: Timers) -> None:
        try:
            self._waiting[0].set(None)  # it still stands first: what asks meanwhile waits behind it
        finally:
            self._waiting.popleft()
            if self._waiting:
                timers.call_at(timers.now(), lambda: self._run_first(timers))


async def wait_until(timers: Timers, deadline: float) -> None:
    """Wait until then."""
    await first_until(timers, deadline)
