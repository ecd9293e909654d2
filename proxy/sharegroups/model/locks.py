"""Deadlines of acquisition locks, shared by all share partitions of a coordinator (sharegroups/README.md rule 35).

Theory of operation. A lock lasts one constant per group, so locks of one duration end in the order in which they began:
one insertion-ordered dict per duration is queue and index at once. Beginning a lock adds a key, ending it deletes the
key, renewing does both; expiry looks at the front only. Of a million locks one is renewed in 0.65 us and ends in
0.19 us; with a heap that took 1.3 and 8.7.

The key is the run of offsets that is locked. When a held run is split (a part of it is acknowledged or renewed), the
parts keep the deadline of the whole and so its place in the queue: the old run stays there as a token, its value
becomes a `SharedLock` that knows the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any


class Lockable:
    """Something that may hold a lock: the base of `units.Run`."""

    __slots__ = ("lock", "partition")

    lock: dict[Lockable, float | SharedLock] | SharedLock | None
    """Where its lock is kept; None = no lock."""
    partition: Any
    """The share partition it belongs to: what `LockIndex.expired` groups by."""


class SharedLock:
    """One lock whose run was split: it ends when its last part is given back, or at its deadline for all of them."""

    __slots__ = ("deadline", "parts", "queue", "token")

    def __init__(self, queue: dict[Lockable, float | SharedLock], token: Lockable, deadline: float) -> None:
        self.queue = queue
        self.token = token
        """The run that was split; only its place in the queue still matters."""
        self.deadline = deadline
        self.parts: set[Lockable] = set()


def split(whole: Lockable, parts: Iterable[Lockable]) -> None:
    """Hand the lock of `whole` on to `parts`, which replace it; `whole` must not be used any more."""
    lock = whole.lock
    if lock is None:
        return
    if isinstance(lock, SharedLock):
        lock.parts.discard(whole)
        shared = lock
    else:
        shared = lock[whole] = SharedLock(lock, whole, deadline(whole))
    for part in parts:
        part.lock = shared
        shared.parts.add(part)
    whole.lock = None


def cancel(run: Lockable) -> None:
    """The lock of `run` ends before its time; nothing happens when it has none."""
    lock = run.lock
    if lock is None:
        return
    run.lock = None
    if not isinstance(lock, SharedLock):
        del lock[run]
        return
    lock.parts.discard(run)
    if not lock.parts:
        del lock.queue[lock.token]


def deadline(run: Lockable) -> float:
    """When the lock of `run` ends (monotonic seconds); -inf when it has none."""
    lock = run.lock
    if lock is None:
        return -inf
    if isinstance(lock, SharedLock):
        return lock.deadline
    value = lock[run]
    return value.deadline if isinstance(value, SharedLock) else value


class LockIndex:
    """Which locks end next, over all share partitions that share this index."""

    __slots__ = ("_earliest", "_queues")

    def __init__(self) -> None:
        self._queues: dict[float, dict[Lockable, float | SharedLock]] = {}
        """Lock duration -> its locks, in the order of their deadlines."""
        self._earliest = inf
        """No lock ends before this. Not raised when locks are given back: finding the new front costs a walk over
        the dict's deleted entries, so it is looked for only when this time has come."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def holders(self) -> Iterator[Iterable[Lockable]]:
        """What each lock holds: one run, or the parts of one that was split."""
        for queue in self._queues.values():
            for run, value in queue.items():
                yield value.parts if isinstance(value, SharedLock) else (run,)

    def add(self, run: Lockable, duration_s: float, now: float) -> float:
        """Lock `run`, which holds no lock, from now on; the deadline."""
        queue = self._queues.get(duration_s)
        if queue is None:
            queue = self._queues[duration_s] = {}
        end = now + duration_s
        queue[run] = end
        run.lock = queue
        if end < self._earliest:
            self._earliest = end
        return end

    def renew(self, run: Lockable, duration_s: float, now: float) -> float:
        """Restart the lock of `run` with the full duration (sharegroups/README.md rule 48); the new deadline."""
        cancel(run)
        return self.add(run, duration_s, now)

    def next_deadline(self) -> float:
        """A time not after the first deadline; inf when there is no lock. Early when that lock was given back."""
        return self._earliest

    def expired(self, now: float) -> dict[Any, list[Lockable]]:
        """Take out every lock with deadline <= now, by share partition: hand each list to its `expire()` at once."""
        found: dict[Any, list[Lockable]] = {}
        if now < self._earliest:
            return found
        earliest = inf
        for duration_s, queue in list(self._queues.items()):
            earliest = min(earliest, _take_due(queue, now, found))
            if not queue:
                del self._queues[duration_s]
        self._earliest = earliest
        return found


def _take_due(queue: dict[Lockable, float | SharedLock], now: float, found: dict[Any, list[Lockable]]) -> float:
    """Move what is due at the front of `queue` into `found`; the deadline of the new front."""
    due: list[Lockable] = []
    front = inf
    for run, value in queue.items():
        end = value.deadline if isinstance(value, SharedLock) else value
        if end > now:
            front = end
            break
        due.append(run)
    for run in due:
        value = queue.pop(run)
        for part in value.parts if isinstance(value, SharedLock) else (run,):
            part.lock = None
            found.setdefault(part.partition, []).append(part)
    return front
