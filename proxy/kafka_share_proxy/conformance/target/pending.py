"""The response of a request that waits for others."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class PendingResponse(Generic[T]):
    """Holds one response, which is set once."""

    def __init__(self) -> None:
        self._is_set = trio.Event()
        self._values: list[T] = []

    def set(self, value: T) -> None:
        """Set the response. A second one is ignored: the request has returned."""
        if not self._is_set.is_set():
            self._values.append(value)
            self._is_set.set()

    async def wait(self) -> T:
        """Return the response once it is set."""
        await self._is_set.wait()
        return self._values[0]
