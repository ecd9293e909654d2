"""Reads in flight by position in the log (reading/README.md rule 6)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class ReadsUnderWay(Generic[K, R]):
    """Reads in flight by key."""

    def __init__(self) -> None:
        self._reads: dict[K, list[R]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._reads.values()))

    def begin(self, key: K, read: R) -> None:
        """Register a read."""
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
        """Return the reads of a key in the order in which they began."""
        return self._reads.get(key, ())

    def first(self, key: K, suits: Callable[[R], bool]) -> R | None:
        return next((read for read in self._reads.get(key, ()) if suits(read)), None)

    def where(self, suits: Callable[[R], bool]) -> list[R]:
        return [read for reads in self._reads.values() for read in reads if suits(read)]
