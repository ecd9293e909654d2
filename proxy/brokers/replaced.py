"""Waiting for a broker that may be lost without a word: its machine is gone, or the network to it.

Nothing ends the connection to such a broker. So whoever has waited for a while asks, again and again, whether another
broker does its work by now; then it is not waited for any longer. What became of the question is not known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from proxy.loop import faults
from proxy.wire.errors import ProxyError, UpstreamLost

T = TypeVar("T")

SILENT_S = 1.0
"""A broker that has not answered for so long may be lost."""
LOOK_S = 0.1
"""Between two looks for who has taken its place."""


class Replaced(UpstreamLost):
    """Another broker does the work of the one that is waited for."""


async def unless_replaced(
    wait: Callable[[], Awaitable[T]],
    is_replaced: Callable[[], Awaitable[bool]],
    *,
    silent_s: float = SILENT_S,
    look_s: float = LOOK_S,
) -> T:
    """What `wait` gives, as long as no other broker has taken the place of the one that it waits for.

    Args:
        is_replaced: asked after `silent_s`, and then every `look_s`; a ProxyError of it says nothing.

    Raises:
        Replaced: another one has; `wait` was cancelled. Else whatever `wait` raises.
    """

    async def watch() -> None:
        await trio.sleep(silent_s)
        while not await _asked(is_replaced):  # noqa: ASYNC110 - of the brokers' doing
            await trio.sleep(look_s)
        raise Replaced("another broker has taken the place of one that does not answer")

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            result = await wait()
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise faults.first_of(group) from None
    return result


async def _asked(is_replaced: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await is_replaced()
    except ProxyError:
        return False
