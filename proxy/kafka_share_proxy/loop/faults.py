"""The only module with broad exception handlers: an error on one connection does not affect others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol


class FaultOwner(Protocol):
    """Object whose callbacks the loop calls, and which is notified if one of them fails."""

    def failed(self, error: Exception) -> None:
        """End this owner, and no other: one of its callbacks has raised the error."""


def serve(events: Iterable[tuple[int, int]], ready: Mapping[int, Callable[[int], None]]) -> None:
    """Call the callback of each (descriptor, mask). One without a callback was closed earlier in this iteration."""
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
    """Call now. An exception is passed to `owner.failed`."""
    try:
        callback()
    except Exception as error:
        owner.failed(error)


def is_network_trouble(error: Exception) -> bool:
    return isinstance(error, OSError)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return one error of those that ended a nursery together. The others have the same cause, or are consequences."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
