"""Commits of one partition that may not overlap (commits/README.md rule 10).

Theory of operation. A lock for each partition of each group, kept while somebody has it or waits for it. Several may
have it *shared*: their commits leave the mark alone. One has it *alone*: its commit moves the mark. Whoever asks stands
in line, so that a stream of shared ones does not keep the other kind waiting; shared ones that stand next to each other
go in together. Locks of several partitions are taken in one order by everybody. How many may wait is bounded: a request
is one, and a connection has one request at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from proxy.loop.promise import Promise


class _Waiter(NamedTuple):
    """Somebody who stands in line."""

    is_alone: bool
    turn: Promise[None]


@dataclass(slots=True)
class _Lock:
    """The lock of one partition."""

    shared: int = 0
    is_alone: bool = False
    line: deque[_Waiter] | None = None
    """Made when somebody has to wait, which is rare."""

    def admit(self) -> None:
        """Let in whoever may go in by now."""
        while self.line and not self.is_alone and not (self.line[0].is_alone and self.shared):
            waiter = self.line.popleft()
            self.enter(is_alone=waiter.is_alone)
            waiter.turn.set(None)

    def enter(self, *, is_alone: bool) -> None:
        """Somebody is in."""
        if is_alone:
            self.is_alone = True
        else:
            self.shared += 1

    def leave(self, *, is_alone: bool) -> None:
        """Somebody who was in has left."""
        if is_alone:
            self.is_alone = False
        else:
            self.shared -= 1
        self.admit()

    @property
    def is_unused(self) -> bool:
        """Nobody has it, or waits for it."""
        return not (self.shared or self.is_alone or self.line)


class PartitionLocks:
    """The locks of all partitions that somebody works on."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def _ask(self, place: Hashable, *, is_alone: bool) -> tuple[_Waiter, Promise[None]]:
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
        if lock.is_unused and self._locks.get(place) is lock:  # whoever was let in may have left as well
            del self._locks[place]

    def enter(self, places: Mapping[Hashable, bool]) -> bool:
        """Take all of these (True: alone) at once, if that keeps nobody waiting; `leave` gives them back."""
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
        """Give back what `enter` took."""
        for place, is_alone in places.items():
            lock = self._locks[place]
            if not lock.line and (is_alone or lock.shared == 1):
                del self._locks[place]  # nobody else has it, or waits for it
                continue
            lock.leave(is_alone=is_alone)
            if lock.is_unused and self._locks.get(place) is lock:
                del self._locks[place]

    @contextmanager
    def asked(self, places: Mapping[Hashable, bool]) -> Iterator[Iterable[Promise[None]]]:
        """Stand in line for each place (True: alone), in the order given; the promises are to be awaited in turn.

        Each is asked for when the one before it was given: nobody holds a later place while waiting for an earlier.
        """
        held: list[tuple[Hashable, _Waiter]] = []

        def turns() -> Iterator[Promise[None]]:
            for place, is_alone in places.items():
                waiter, turn = self._ask(place, is_alone=is_alone)
                held.append((place, waiter))
                yield turn

        try:
            yield turns()
        finally:
            for place, waiter in reversed(held):
                self._give_back(place, waiter)
