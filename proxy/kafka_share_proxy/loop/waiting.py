"""Waits with a deadline, on the reactor's own clock."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.loop.promise import Promise, running


async def first_until(timers: Timers, deadline: float, *promises: Promise[Any]) -> None:
    """Wait until one of the promises is settled, at most until `deadline` (time of `timers`)."""
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
    """Return True if the promise is settled within this time."""
    return await settled_by(timers, timers.now() + seconds, promise)


async def settled_by(timers: Timers, deadline: float, promise: Promise[Any]) -> bool:
    """Return True if the promise is settled by this time."""
    if not promise.done:
        await first_until(timers, deadline, promise)
    return promise.done


async def end_of_iteration() -> None:
    """Wait until the calls that were requested before in this loop iteration have returned."""
    over: Promise[None] = Promise()
    running().call_soon(partial(over.set, None))
    await over


class SlicedWork:
    """Queue for sliced work: one slice runs in each loop iteration."""

    def __init__(self) -> None:
        self._waiting: deque[Promise[None]] = deque()

    def next(self, timers: Timers) -> Promise[None]:
        mine: Promise[None] = Promise()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            timers.call_at(timers.now(), lambda: self._run_first(timers))
        return mine

    def _run_first(self, timers: Timers) -> None:
        try:
            self._waiting[0].set(None)  # it is still the first entry: requests during this call queue up after it
        finally:
            self._waiting.popleft()
            if self._waiting:
                timers.call_at(timers.now(), lambda: self._run_first(timers))


async def wait_until(timers: Timers, deadline: float) -> None:
    await first_until(timers, deadline)
