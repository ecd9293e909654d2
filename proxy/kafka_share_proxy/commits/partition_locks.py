"""Locks that prevent overlapping commits of one partition (commits/README.md rule 10).

Theory of operation. Each partition of each group has a lock while a request holds it or waits for it. Several requests
can hold it *shared*: their commits do not change the committed offset. One request holds it *alone* if its commit
changes that offset. Requests wait in FIFO order, so that a stream of shared requests does not starve the others.
Consecutive shared requests enter together. All requests acquire the locks of several partitions in the same order. The
number of waiters is bounded, because a connection has one request at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from kafka_share_proxy.loop.promise import Promise


class _Waiter(NamedTuple):
    """A queued request for a lock."""

    is_alone: bool
    turn: Promise[None]


@dataclass(slots=True)
class _Lock:
    """The lock of one partition."""

    shared: int = 0
    is_alone: bool = False
    line: deque[_Waiter] | None = None
    """Created at the first wait, which is rare."""

    def admit(self) -> None:
        """Let queued requests enter as far as the lock allows."""
        while self.line and not self.is_alone and not (self.line[0].is_alone and self.shared):
            waiter = self.line.popleft()
            self.enter(is_alone=waiter.is_alone)
            waiter.turn.set(None)

    def enter(self, *, is_alone: bool) -> None:
        """Acquire the lock."""
        if is_alone:
            self.is_alone = True
        else:
            self.shared += 1

    def leave(self, *, is_alone: bool) -> None:
        """Release the lock and admit queued requests."""
        if is_alone:
            self.is_alone = False
        else:
            self.shared -= 1
        self.admit()

    @property
    def is_unused(self) -> bool:
        """True if no request holds the lock or waits for it."""
        return not (self.shared or self.is_alone or self.line)


class PartitionLocks:
    """The locks of all partitions in use."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def _query(self, place: Hashable, *, is_alone: bool) -> tuple[_Waiter, Promise[None]]:
        lock = self._locks.setdefault(place, _Lock())
        waiter = _Waiter(is_alone, Promise())
        if lock.line is None:
            lock.line = deque()
        lock.line.append(waiter)
        lock.admit()
        return waiter, waiter.turn

    def _give_back(self, place: Hashable, waiter: _Waiter) -> None:
        lock = self._locks[place]
        if waiter.turn.done:
            lock.leave(is_alone=waiter.is_alone)
        elif lock.line is not None:
            lock.line.remove(waiter)
            lock.admit()
        if lock.is_unused and self._locks.get(place) is lock:  # may be removed by an admitted one
            del self._locks[place]

    def enter(self, places: Mapping[Hashable, bool]) -> bool:
        """Acquire all these locks (True: alone) if no wait is needed; `leave` releases them. Return False if any is
        taken."""
        locks = self._locks
        if not locks.keys().isdisjoint(places) and not self._may_enter(places):
            return False
        for place, is_alone in places.items():
            lock = locks.get(place)
            if lock is None:
                locks[place] = _Lock(0 if is_alone else 1, is_alone)
            else:
                lock.enter(is_alone=is_alone)
        return True

    def _may_enter(self, places: Mapping[Hashable, bool]) -> bool:
        for place, is_alone in places.items():
            lock = self._locks.get(place)
            if lock is not None and (lock.is_alone or lock.line or (is_alone and lock.shared)):
                return False
        return True

    def leave(self, places: Mapping[Hashable, bool]) -> None:
        """Release what `enter` acquired."""
        for place, is_alone in places.items():
            lock = self._locks[place]
            if not lock.line and (is_alone or lock.shared == 1):
                del self._locks[place]  # no other request holds it or waits for it
                continue
            lock.leave(is_alone=is_alone)
            if lock.is_unused and self._locks.get(place) is lock:
                del self._locks[place]

    @contextmanager
    def asked(self, places: Mapping[Hashable, bool]) -> Iterator[Iterable[Promise[None]]]:
        """Queue for each lock (True: alone) in the order given. The caller awaits the promises one after the other.

        Each lock is requested only after the previous one was granted, so that no request holds a later lock while it
        waits for an earlier one.
        """
        held: list[tuple[Hashable, _Waiter]] = []

        def turns() -> Iterator[Promise[None]]:
            for place, is_alone in places.items():
                waiter, turn = self._query(place, is_alone=is_alone)
                held.append((place, waiter))
                yield turn

        try:
            yield turns()
        finally:
            for place, waiter in reversed(held):
                self._give_back(place, waiter)
