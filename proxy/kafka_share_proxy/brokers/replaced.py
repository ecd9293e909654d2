"""Bounded wait for a broker that may be lost without a TCP reset. If another broker has replaced it, the outcome of the
request is unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from kafka_share_proxy.loop import faults
from kafka_share_proxy.wire.errors import ProxyError, UpstreamLost

T = TypeVar("T")

SILENT_S = 1.0
"""Seconds without a response after which a broker may be lost."""
CHECK_S = 0.1
"""Seconds between two checks for a replacement."""


class Replaced(UpstreamLost):
    """Another broker has replaced the one that is waited for."""


class DueResponse:
    """Time at which the next response is due. A response that arrives in time moves it, and wakes no task."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._silent_s = 0.0
        self._wait = trio.CancelScope()

    def move(self, at: float) -> None:
        self._at = at
        self._wait.deadline = at + self._silent_s

    async def passed(self, silent_s: float) -> None:
        """Wait until a response is late by `silent_s`."""
        self._silent_s = silent_s
        while trio.current_time() < self._at + silent_s:
            with trio.CancelScope(deadline=self._at + silent_s) as self._wait:
                await trio.sleep_forever()


async def unless_replaced(
    wait: Callable[[], Awaitable[T]],
    is_replaced: Callable[[], Awaitable[bool]],
    *,
    due: DueResponse | None = None,
    silent_s: float = SILENT_S,
    check_s: float = CHECK_S,
) -> T:
    """Return the result of `wait`.

    Args:
        is_replaced: called after `silent_s`, and then every `check_s`. A ProxyError counts as no.
        due: time from which the silence counts. None: from now.

    Raises:
        Replaced: another broker has; `wait` was cancelled. Otherwise any error of `wait`.
    """
    awaited = DueResponse(trio.current_time()) if due is None else due

    async def watch() -> None:
        while True:
            await awaited.passed(silent_s)
            if await _is_replaced(is_replaced):
                raise Replaced("another broker has replaced one that does not respond")
            await trio.sleep(check_s)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            result = await wait()
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise faults.first_of(group) from None
    return result


async def _is_replaced(is_replaced: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await is_replaced()
    except ProxyError:
        return False
