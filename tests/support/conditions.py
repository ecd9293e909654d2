"""Waiting of a Trio task for what other tasks, the loop or threads do. For other threads: `raw.until`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


async def until(condition: Callable[[], T], limit_s: float = 120, pause_s: float = 0.01) -> T:
    """Return the first true result of a condition. Raises trio.TooSlowError after `limit_s` seconds."""
    with trio.fail_after(limit_s):
        while not (result := condition()):  # noqa: ASYNC110 - what changes it sets no event
            await trio.sleep(pause_s)
    return result
