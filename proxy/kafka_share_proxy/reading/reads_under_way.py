"""Registry of reads in flight by position in the log: no second Fetch is sent for data about to arrive.

A read is registered before its Fetch is sent. It is removed when the response is processed, when its connection has
ended, or when it is late: then one of its waiters reads the data again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class ReadsUnderWay(Generic[K, R]):
    """Reads in flight by key. Several reads of one key began at different offsets."""

    def __init__(self) -> None:
        self._reads: dict[K, list[R]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._reads.values()))

    def begin(self, key: K, read: R) -> None:
        self._reads.setdefault(key, []).append(read)

    def end(self, key: K, read: R) -> bool:
        """Remove a read. Return False if it was removed before."""
        reads = self._reads.get(key, [])
        if read not in reads:
            return False
        reads.remove(read)
        if not reads:
            del self._reads[key]
        return True

    def of(self, key: K) -> Sequence[R]:
        return self._reads.get(key, ())

    def first(self, key: K, suits: Callable[[R], bool]) -> R | None:
        """Return the first read of one key that satisfies the predicate."""
        return next((read for read in self._reads.get(key, ()) if suits(read)), None)

    def where(self, suits: Callable[[R], bool]) -> list[R]:
        """Return all reads of any key that satisfy the predicate."""
        return [read for reads in self._reads.values() for read in reads if suits(read)]
