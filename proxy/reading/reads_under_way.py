"""Who reads which place of a log at this moment, so that nobody asks a broker for what is about to come.

A read is registered under the key of what it reads before its Fetch is sent, and taken out when the answer is in, when
its connection has ended, or when it is late: then somebody who waits for it reads the place anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class ReadsUnderWay(Generic[K, R]):
    """Reads by what they read; several of one key where they began at different places."""

    def __init__(self) -> None:
        self._reads: dict[K, list[R]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._reads.values()))

    def begin(self, key: K, read: R) -> None:
        """From now on this read stands for the place where it began."""
        self._reads.setdefault(key, []).append(read)

    def end(self, key: K, read: R) -> bool:
        """It brings nothing more; False when it had ended."""
        reads = self._reads.get(key, [])
        if read not in reads:
            return False
        reads.remove(read)
        if not reads:
            del self._reads[key]
        return True

    def of(self, key: K) -> Sequence[R]:
        """All of one key, in the order they began."""
        return self._reads.get(key, ())

    def first(self, key: K, suits: Callable[[R], bool]) -> R | None:
        """The first of one key that suits."""
        return next((read for read in self._reads.get(key, ()) if suits(read)), None)

    def where(self, suits: Callable[[R], bool]) -> list[R]:
        """All that suit, of whatever key."""
        return [read for reads in self._reads.values() for read in reads if suits(read)]
