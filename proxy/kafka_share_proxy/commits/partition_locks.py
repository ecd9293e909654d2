"""Locks that prevent overlapping commits of one partition (commits/README.md rule 10).

Several requests can hold a lock *shared*: their commits do not change the committed offset. Requests wait in FIFO
order, so that a stream of shared requests does not starve the others. The number of waiters is bounded, because a
connection has one request at a time.

A *keeper* holds locks between its requests too, because acquiring them for each of thousands of commits a second costs
as much as planning these. It gives them back as soon as another request needs them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from kafka_share_proxy.loop.promise import Promise


class _Waiter(NamedTuple):
    is_exclusive: bool
    granted: Promise[None]


class Keeper(Protocol):
    """Holder of locks between its requests."""

    def give_back(self) -> None:
        """Release the locks: now, or as soon as the request in flight has its response."""


class _Lock:
    """Without `__init__`, because two are created for each commit."""

    shared = 0
    is_exclusive = False
    queue: deque[_Waiter] | None = None
    """Created at the first wait, which is rare."""
    keepers: dict[Keeper, None] | None = None
    """Holders that keep the lock between their requests."""

    def would_wait(self, *, is_exclusive: bool) -> bool:
        return self.is_exclusive or bool(self.queue) or (is_exclusive and self.shared > 0)

    def admit(self) -> None:
        while self.queue and not self.is_exclusive and not (self.queue[0].is_exclusive and self.shared):
            waiter = self.queue.popleft()
            self.enter(is_exclusive=waiter.is_exclusive)
            waiter.granted.set(None)

    def enter(self, *, is_exclusive: bool) -> None:
        if is_exclusive:
            self.is_exclusive = True
        else:
            self.shared += 1

    def leave(self, *, is_exclusive: bool) -> None:
        if is_exclusive:
            self.is_exclusive = False
        else:
            self.shared -= 1
        self.admit()

    @property
    def is_unused(self) -> bool:
        return not (self.shared or self.is_exclusive or self.queue)


class PartitionLocks:
    """The locks of all partitions in use."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def _enqueue(self, partition: Hashable, *, is_exclusive: bool) -> tuple[_Waiter, Promise[None]]:
        self._recall(partition, is_exclusive=is_exclusive)
        lock = self._locks.setdefault(partition, _Lock())
        waiter = _Waiter(is_exclusive, Promise())
        if lock.queue is None:
            lock.queue = deque()
        lock.queue.append(waiter)
        lock.admit()
        return waiter, waiter.granted

    def _leave_queued(self, partition: Hashable, waiter: _Waiter) -> None:
        lock = self._locks[partition]
        if waiter.granted.done:
            lock.leave(is_exclusive=waiter.is_exclusive)
        elif lock.queue is not None:
            lock.queue.remove(waiter)
            lock.admit()
        if lock.is_unused and self._locks.get(partition) is lock:  # may be removed by an admitted one
            del self._locks[partition]

    def enter(self, partitions: Mapping[Hashable, bool]) -> bool:
        """Acquire all of these locks (True: exclusively), or none. Return False if any would have to wait."""
        locks = self._locks
        if not locks.keys().isdisjoint(partitions) and not self._may_enter(partitions):
            return False
        for partition, is_exclusive in partitions.items():
            if partition in locks:
                lock = locks[partition]
            else:
                lock = locks[partition] = _Lock()
            if is_exclusive:  # no call of `_Lock.enter`: thousands of commits a second
                lock.is_exclusive = True
            else:
                lock.shared += 1
        return True

    def _may_enter(self, partitions: Mapping[Hashable, bool]) -> bool:
        return not any(
            self._recall(partition, is_exclusive=is_exclusive) for partition, is_exclusive in partitions.items()
        )

    def _recall(self, partition: Hashable, *, is_exclusive: bool) -> bool:
        """Have keepers give the lock back if a request would wait for it. Return True if it would wait even then."""
        lock = self._locks.get(partition)
        if lock is None or not lock.would_wait(is_exclusive=is_exclusive):
            return False
        if not lock.keepers:
            return True
        for keeper in tuple(lock.keepers):
            keeper.give_back()
        lock = self._locks.get(partition)
        return lock is not None and lock.would_wait(is_exclusive=is_exclusive)

    def keep(self, partitions: Mapping[Hashable, bool], keeper: Keeper) -> bool:
        """Acquire locks as `enter` does, for a keeper. It releases them by `keep_no_longer` and `leave`."""
        if not self.enter(partitions):
            return False
        for partition in partitions:
            lock = self._locks[partition]
            if lock.keepers is None:
                lock.keepers = {}
            lock.keepers[keeper] = None
        return True

    def keep_no_longer(self, partitions: Mapping[Hashable, bool], keeper: Keeper) -> None:
        """Go on holding the locks as one request."""
        for partition in partitions:
            lock = self._locks[partition]
            if lock.keepers is not None:
                lock.keepers.pop(keeper, None)

    def leave(self, partitions: Mapping[Hashable, bool]) -> None:
        locks = self._locks
        for partition, is_exclusive in partitions.items():
            lock = locks[partition]
            if not lock.queue and (is_exclusive or lock.shared == 1):
                del locks[partition]  # no other request holds it or waits for it
                continue
            lock.leave(is_exclusive=is_exclusive)
            if lock.is_unused and locks.get(partition) is lock:
                del locks[partition]

    @contextmanager
    def queued(self, partitions: Mapping[Hashable, bool]) -> Iterator[Iterable[Promise[None]]]:
        """Queue for each lock (True: exclusively) in the order given, after the previous one was granted."""
        held: list[tuple[Hashable, _Waiter]] = []

        def grants() -> Iterator[Promise[None]]:
            for partition, is_exclusive in partitions.items():
                waiter, granted = self._enqueue(partition, is_exclusive=is_exclusive)
                held.append((partition, waiter))
                yield granted

        try:
            yield grants()
        finally:
            for partition, waiter in reversed(held):
                self._leave_queued(partition, waiter)
