"""The one place that catches broadly: one connection's trouble touches no other.

A callback of the loop is a method of something that owns a socket. Whatever it raises is handed to its owner, which
closes itself and says so; the loop goes on. What is no Exception (KeyboardInterrupt) passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol


class FaultOwner(Protocol):
    """Something whose callbacks the loop calls."""

    def failed(self, error: Exception) -> None:
        """A callback of this owner raised: end it, say so. Must not raise."""


def serve(events: Iterable[tuple[int, int]], ready: Mapping[int, Callable[[int], None]]) -> None:
    """Call the callback of each (descriptor, mask); a descriptor without one was closed earlier in this turn."""
    for fd, mask in events:
        callback = ready.get(fd)
        if callback is None:
            continue
        try:
            callback(mask)
        except Exception as error:
            owner: FaultOwner = callback.__self__  # type: ignore[attr-defined]  # register() takes bound methods only
            owner.failed(error)


def guard(owner: FaultOwner, callback: Callable[[], object]) -> None:
    """Call back on behalf of an owner."""
    try:
        callback()
    except Exception as error:
        owner.failed(error)


def is_network_trouble(error: Exception) -> bool:
    """Whether this is what networks do (reset, timed out, unreachable) and no fault of anybody's code."""
    return isinstance(error, OSError)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error of those that ended a nursery together: the others are of the same making, or came of ending it."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
