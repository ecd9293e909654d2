"""Reservations of heads to read, and the requests that wait for the records (sharegroups/README.md rule 20).

How it works: a ShareFetch that finds nothing in the cache reserves the head of each share partition it may read, and no
other request reads the same offset from a broker. It parks as a waiter, and is woken when batches were added to the
cache, records became available again, a reservation ended, or the share partition was initialised. Waiters are woken
one at a time, and only while something is left to acquire, so that one released record does not wake two hundred
members. They do not run inside the call that wakes them (`loop.promise`). The waiters of a share partition at the time
of a wake, in order, are a *wave*. A further wake during a wave starts another wave after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.loop.promise import CallbackOwner, Promise, running
from kafka_share_proxy.loop.waiting import first_until
from kafka_share_proxy.reading.chunk_cache import Chunk, ChunkCache
from kafka_share_proxy.reading.far_records import FarRecords, FarSlice, Records
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.wire.records.batches import BatchTable
from kafka_share_proxy.wire.records.order_keys import RecordKeys

CHUNKS_PER_PARTITION = 16
"""Maximum number of chunks per partition and isolation level, and of groups that read one log at different offsets."""


@dataclass(slots=True, eq=False, kw_only=True)
class ShareChunk(Chunk):
    """Whole batches of one Fetch response. Another proxy may hold their bytes."""

    batches: BatchTable
    records: Records
    aborted: Sequence[tuple[int, int]] = ()
    """Offsets (first, last) of records of aborted transactions, ascending. Empty unless read_committed."""
    end_offset: int = -1
    """High watermark or last stable offset at the time of the read."""
    keys: RecordKeys | None = None
    """Keys of the records. None until a group with key order needs them."""
    _undelivered: Sequence[tuple[int, int]] | None = None

    def undelivered(self) -> Sequence[tuple[int, int]]:
        """Return the offsets of aborted records and of control batches (sharegroups/README.md rule 73)."""
        if self._undelivered is None:
            self._undelivered = sorted([*self.aborted, *self.batches.marker_ranges()])
        return self._undelivered

    def bytes_from(self, index: int) -> int:
        """Return the bytes of the batches from `index` on."""
        return self._end - self.batches.position(index)

    def slice(self, first: int, last: int) -> memoryview | FarSlice:
        return self.records[self.batches.position(first) : self.batches.position(last + 1)]

    def dropped(self) -> None:
        if isinstance(self.records, FarRecords):
            self.records.forget()


@dataclass(slots=True, eq=False)
class Reservation:
    """The right to read one share partition's head from the broker."""

    id: int
    key: ShareKey
    connection_id: int
    offset: int
    deadline: float
    read_committed: bool

    def covers(self, offset: int, read_committed: bool, now: float) -> bool:
        """Return True if the reserved read will cover a read from this offset."""
        return self.offset <= offset and self.read_committed == read_committed and now < self.deadline


@dataclass(slots=True, eq=False)
class Waiter:
    """One ShareFetch without records. Single use: woken once, or withdrawn by `ShareReads.stop_waiting`."""

    woken: Promise[None]
    keys: tuple[ShareKey, ...]
    owner: CallbackOwner
    """Owner on whose behalf the waiting code runs."""


@dataclass(slots=True, eq=False)
class _Wave:
    """Waiters of one share partition at the time of a wake."""

    key: ShareKey
    waiters: Iterator[Waiter]
    is_repeated: bool = False
    """True if the share partition was woken again during this wave."""


class ShareHead(NamedTuple):
    """Head of a share partition."""

    offset: int | None
    """Next offset to acquire. None if nothing can be acquired now."""
    cached: bool


class ShareReads:
    """Reservations and waiters of all share partitions, and the cache that reads fill and waiters acquire from."""

    def __init__(self, cache: ChunkCache[ShareChunk], head: Callable[[ShareKey], ShareHead]) -> None:
        self.cache = cache
        self._head = head
        self.starting: set[ShareKey] = set()
        """Share partitions whose first offset a request is looking up."""
        self._reservations: dict[ShareKey, Reservation] = {}
        self._waiters: dict[ShareKey, dict[Waiter, None]] = {}
        self._last_id = 0
        self._waves: dict[ShareKey, _Wave] = {}
        self._ready: deque[_Wave] = deque()
        self._is_waking = False

    def reserve(
        self, key: ShareKey, connection_id: int, offset: int, read_committed: bool, deadline: float, now: float
    ) -> Reservation | None:
        """Reserve the head, unless another reader has reserved the same or an earlier offset.

        A reservation of a later offset is replaced. Its read still fills the cache.
        """
        active = self._reservations.get(key)
        if active is not None and active.covers(offset, read_committed, now):
            return None
        self._last_id += 1
        reservation = Reservation(self._last_id, key, connection_id, offset, deadline, read_committed)
        self._reservations[key] = reservation
        return reservation

    def holds(self, reservation: Reservation) -> bool:
        return self._reservations.get(reservation.key) is reservation

    def let_go(self, reservations: Iterable[Reservation]) -> list[ShareKey]:
        """End these reservations. Return the keys of those that were active, for the caller to wake their waiters."""
        active = [reservation.key for reservation in reservations if self.holds(reservation)]
        for key in active:
            del self._reservations[key]
        return active

    def end_connection(self, connection_id: int) -> None:
        reservations = [
            reservation for reservation in self._reservations.values() if reservation.connection_id == connection_id
        ]
        self.wake_all(self.let_go(reservations))

    def started(self, key: ShareKey) -> None:
        """End the lookup of a share partition's first offset."""
        self.starting.discard(key)
        self.wake(key)

    async def wait_until(
        self, timers: Timers, deadline: float, keys: Iterable[ShareKey], *promises: Promise[None]
    ) -> None:
        """Wait until one of the share partitions may have records, a promise is settled, or the deadline has passed."""
        waiter = self.wait(keys)
        try:
            await first_until(timers, deadline, waiter.woken, *promises)
        finally:
            self.stop_waiting(waiter)

    def wait(self, keys: Iterable[ShareKey]) -> Waiter:
        waiter = Waiter(Promise(), tuple(keys), running())
        for key in waiter.keys:
            self._waiters.setdefault(key, {})[waiter] = None
        return waiter

    def stop_waiting(self, waiter: Waiter) -> None:
        """Withdraw a waiter. No effect if it was woken already."""
        for key in waiter.keys:
            waiting = self._waiters.get(key)
            if waiting is not None and waiting.pop(waiter, waiter) is None and not waiting:
                del self._waiters[key]

    def end_waits(self, is_over: Callable[[str], bool]) -> None:
        """Wake all waiters of some groups, whether there is something left or not. `is_over`: by group id."""
        for key in [key for key in self._waiters if is_over(key.group_id)]:
            for waiter in tuple(self._waiters.get(key, ())):
                self.stop_waiting(waiter)
                waiter.woken.set(None)

    def wake_all(self, keys: Iterable[ShareKey]) -> None:
        for key in keys:
            self.wake(key)

    def wake(self, key: ShareKey) -> None:
        """Wake the waiter that has waited longest, and then the next while there is something left."""
        waiting = self._waiters.get(key)
        if waiting is None:
            return
        wave = self._waves.get(key)
        if wave is None:
            wave = self._waves[key] = _Wave(key, iter(tuple(waiting)))
            self._continue(wave)
        else:
            wave.is_repeated = True

    def _continue(self, wave: _Wave) -> None:
        """Wake the next waiter of this wave. A waiter that runs synchronously re-enters here; the stack stays flat."""
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
        for waiter in wave.waiters:
            if waiter in self._waiters.get(wave.key, ()):
                self.stop_waiting(waiter)
                waiter.woken.on_settled(partial(self._has_run, wave), waiter.owner)  # after its own callback
                waiter.woken.set(None)
                return
        self._end(wave)

    def _has_run(self, wave: _Wave) -> None:
        """Continue or end the wave after the last woken waiter has run, or its request has ended."""
        is_over = True  # also if the check fails: the next wake starts another wave
        try:
            is_over = self._nothing_left(wave.key)
        finally:
            if is_over:
                self._end(wave)
            else:
                self._continue(wave)

    def _end(self, wave: _Wave) -> None:
        del self._waves[wave.key]
        if wave.is_repeated:
            self.wake(wave.key)

    def _nothing_left(self, key: ShareKey) -> bool:
        head = self._head(key)
        if head.offset is None:
            return True
        active = self._reservations.get(key)
        return not head.cached and active is not None and active.offset <= head.offset

    @property
    def reserved(self) -> int:
        return len(self._reservations)

    @property
    def waiting(self) -> int:
        """Number of parked ShareFetches, counted once per share partition they wait for."""
        return sum(map(len, self._waiters.values()))
