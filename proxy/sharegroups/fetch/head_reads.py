"""Who reads the head of which share partition, and who waits for what it brings (sharegroups/README.md rule 20).

Theory of operation. A ShareFetch that finds nothing in the cache reserves the head of each share partition it may
read; while a reservation stands nobody else asks a broker for the same place. Everybody else who has nothing parks as
a waiter. A waiter is woken when the share partition may have something for it: batches came into the cache, records
became available again, a reservation ended, the share partition was initialised. It then looks again from the start:
cache, free head, wait. Waking is one at a time and goes on only while there is something left to take, so that one
released record does not wake two hundred members.

Others' waiters do not run inside the call that wakes them (`loop.promise`): the next one is woken when the one before
has run. All that waited for a share partition when it was woken, one after the other, are a *wave*; a wake that happens
meanwhile begins another wave behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from proxy.loop.promise import CallbackOwner, Promise, running
from proxy.reading.chunk_cache import ChunkCache
from proxy.reading.reads_under_way import ReadsUnderWay
from proxy.sharegroups.fetch.share_chunk import ShareChunk
from proxy.sharegroups.model.coordinator import ShareKey


@dataclass(slots=True, eq=False)
class Reservation:
    """The right to read one share partition's head upstream."""

    id: int
    key: ShareKey
    connection_id: int
    offset: int
    deadline: float
    """It has ended by then, whatever happens."""
    read_committed: bool

    def stands_before(self, offset: int, read_committed: bool, now: float) -> bool:
        """It will bring what a read from this offset would."""
        return self.offset <= offset and self.read_committed == read_committed and now < self.deadline


@dataclass(slots=True, eq=False)
class Waiter:
    """One ShareFetch that has nothing yet. Single use: woken once, or given up by `ShareReads.stop_waiting`."""

    woken: Promise[None]
    keys: tuple[ShareKey, ...]
    owner: CallbackOwner
    """In whose name the waiting code runs."""


@dataclass(slots=True, eq=False)
class _Wave:
    """Those who waited for a share partition when it was woken."""

    key: ShareKey
    left: Iterator[Waiter]
    is_repeated: bool = False
    """The share partition was woken anew meanwhile."""


@dataclass(frozen=True, slots=True)
class ShareHead:
    """Where a share partition stands."""

    offset: int | None
    """The next to acquire; None when nothing can be acquired now."""
    cached: bool
    """The cache holds it."""


class ShareReads:
    """Reservations and waiters of all share partitions, and the cache they feed and are fed from."""

    def __init__(self, cache: ChunkCache[ShareChunk], head: Callable[[ShareKey], ShareHead]) -> None:
        self.cache = cache
        self._head = head
        self.starting: set[ShareKey] = set()
        """Share partitions whose first offset somebody is looking up."""
        self._reservations: ReadsUnderWay[ShareKey, Reservation] = ReadsUnderWay()
        """At most one of a share partition."""
        self._waiters: dict[ShareKey, dict[Waiter, None]] = {}
        self._last_id = 0
        self._waves: dict[ShareKey, _Wave] = {}
        self._ready: deque[_Wave] = deque()
        """Waves whose next waiter is to be woken."""
        self._is_waking = False

    def reserve(
        self, key: ShareKey, connection_id: int, offset: int, read_committed: bool, deadline: float, now: float
    ) -> Reservation | None:
        """Take the head, unless another reader stands at the same place or before it.

        A reader at a later place (the end of the log, when records below became available) is taken over from: its
        answer still feeds the cache.
        """
        standing = self._standing(key)
        if standing is not None:
            if standing.stands_before(offset, read_committed, now):
                return None
            self._reservations.end(key, standing)
        self._last_id += 1
        taken = Reservation(self._last_id, key, connection_id, offset, deadline, read_committed)
        self._reservations.begin(key, taken)
        return taken

    def _standing(self, key: ShareKey) -> Reservation | None:
        return next(iter(self._reservations.of(key)), None)

    def holds(self, reservation: Reservation) -> bool:
        """Is it still standing?"""
        return self._standing(reservation.key) is reservation

    def let_go(self, reservations: Iterable[Reservation]) -> list[ShareKey]:
        """End these reservations, and give the heads that are free now; waking is the caller's. Some may have ended."""
        return [each.key for each in reservations if self._reservations.end(each.key, each)]

    def end_connection(self, connection_id: int) -> None:
        """A connection is gone: its heads are free."""
        mine = self._reservations.where(lambda held: held.connection_id == connection_id)
        for key in self.let_go(mine):
            self.wake(key)

    def wait(self, keys: Iterable[ShareKey]) -> Waiter:
        """Park until one of the share partitions may have something."""
        waiter = Waiter(Promise(), tuple(keys), running())
        for key in waiter.keys:
            self._waiters.setdefault(key, {})[waiter] = None
        return waiter

    def stop_waiting(self, waiter: Waiter) -> None:
        """No longer interested; harmless when it was woken."""
        for key in waiter.keys:
            waiting = self._waiters.get(key)
            if waiting is not None and waiting.pop(waiter, waiter) is None and not waiting:
                del self._waiters[key]

    def wake(self, key: ShareKey) -> None:
        """This share partition may have something: wake who waits longest, and the next while there is more."""
        waiting = self._waiters.get(key)
        if waiting is None:
            return
        wave = self._waves.get(key)
        if wave is None:
            wave = self._waves[key] = _Wave(key, iter(tuple(waiting)))
            self._go_on(wave)
        else:
            wave.is_repeated = True

    def _go_on(self, wave: _Wave) -> None:
        """Wake the next of this wave. One that runs at once comes back here: the stack stays flat."""
        self._ready.append(wave)
        if self._is_waking:
            return
        self._is_waking = True
        try:
            while self._ready:
                self._wake_next(self._ready.popleft())
        finally:
            self._is_waking = False

    def _wake_next(self, wave: _Wave) -> None:
        for waiter in wave.left:
            if waiter in self._waiters.get(wave.key, ()):
                self.stop_waiting(waiter)
                waiter.woken.on_settled(partial(self._has_run, wave), waiter.owner)  # behind its own callback
                waiter.woken.set(None)
                return
        self._end(wave)

    def _has_run(self, wave: _Wave) -> None:
        """The waiter that was woken last has looked, or its request has ended."""
        is_over = True  # also where looking fails: the next wake begins another wave
        try:
            is_over = self._nothing_left(wave.key)
        finally:
            if is_over:
                self._end(wave)
            else:
                self._go_on(wave)

    def _end(self, wave: _Wave) -> None:
        del self._waves[wave.key]
        if wave.is_repeated:
            self.wake(wave.key)

    def _nothing_left(self, key: ShareKey) -> bool:
        """Nothing to take, and nothing to read that is not being read already."""
        head = self._head(key)
        if head.offset is None:
            return True
        standing = self._standing(key)
        return not head.cached and standing is not None and standing.offset <= head.offset

    @property
    def reserved(self) -> int:
        """How many reservations stand."""
        return len(self._reservations)

    @property
    def waiting(self) -> int:
        """Parked ShareFetches, counted once per share partition they wait for."""
        return sum(map(len, self._waiters.values()))
