"""Which keys are looked at: also those of large and of compressed batches, so many times a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from proxy.audit import sampling
from proxy.audit.events import Place
from proxy.audit.sampling import BURST_LOOKS, LOOK_RECORDS, LOOKS_PER_READ, READ_FOR_ONE, KeySampling
from proxy.loop.interfaces import WorkersBusy
from proxy.loop.promise import Promise
from proxy.wire import compression, records
from proxy.wire.batches import split_complete
from proxy.wire.key_hash import murmur2
from proxy.wire.key_samples import ROW, KeySample
from proxy.wire.records import Record
from tests.support.ports import ManualTimers

PLACE = Place(b"t", 0)


class Later:
    """Workers that work when they are told."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Promise[Any], Callable[[], Any]]] = []
        self.is_busy = False

    def run(self, work: Callable[[], Any], owner: object = None, *, is_large: bool = False) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        if self.is_busy:
            promise.fail(WorkersBusy("busy"))
        else:
            self.jobs.append((promise, work))
        return promise

    def work(self) -> None:
        while self.jobs:
            promise, work = self.jobs.pop(0)
            promise.set(work())


class World:
    def __init__(self, looks_per_s: float = 1000.0) -> None:
        self.timers, self.workers = ManualTimers(), Later()
        self.seen: list[tuple[Place, list[KeySample]]] = []
        self.keys = KeySampling(self.timers, looks_per_s, lambda place, found: self.seen.append((place, list(found))))
        self.keys.workers = self.workers

    def read(self, *batches: bytes) -> None:
        data = memoryview(b"".join(batches))
        self.keys.read(PLACE, split_complete(data)[0], data)

    def hashes(self) -> list[int]:
        """Of all looks, in order."""
        return [
            hashed
            for _, found in self.seen
            for each in found
            for hashed, _ in (*ROW.iter_unpack(each.keyed), *ROW.iter_unpack(each.null))
        ]


def keys_of(count: int, first: int = 0) -> list[bytes]:
    return [b"key-%d" % number for number in range(first, first + count)]


def batch(keys: list[bytes], base: int = 0, codec: int = compression.NONE, size: int = 20) -> bytes:
    made = [Record(key=key, value=bytes(size), offset=base + at) for at, key in enumerate(keys)]
    return records.build_batch(base, made, codec=codec)


def test_a_small_batch_is_seen_whole() -> None:
    world = World()
    world.read(batch(keys_of(300)))
    assert world.hashes() == list(map(murmur2, keys_of(300)))


def test_of_a_large_batch_every_nth_record_is_seen() -> None:
    """At most LOOK_RECORDS in one look."""
    world = World(looks_per_s=1.0)
    world.keys._saved = 1.0
    count = 3 * LOOK_RECORDS
    world.read(batch(keys_of(count), size=3))
    assert world.hashes() == list(map(murmur2, keys_of(count)[1::3]))


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_a_compressed_batch_is_opened_by_another_thread(codec: int) -> None:
    """If it is not small; it is seen when the thread has come to an end."""
    world = World()
    keys = keys_of(LOOK_RECORDS)
    world.read(batch(keys, codec=codec, size=200))
    if world.workers.jobs:
        assert world.seen == []
    world.workers.work()
    assert world.hashes() == list(map(murmur2, keys))


def test_a_batch_above_what_the_loop_takes_goes_to_a_thread(monkeypatch) -> None:
    monkeypatch.setattr(sampling, "INLINE_BYTES", 1000)
    world = World()
    world.read(batch(keys_of(100)))
    assert (len(world.workers.jobs), world.seen) == (1, [])
    world.workers.work()
    assert len(world.hashes()) == 100


def test_without_threads_or_with_busy_ones_the_look_is_skipped(monkeypatch) -> None:
    """And counted; those that wait for a thread are bounded."""
    monkeypatch.setattr(sampling, "INLINE_BYTES", 1000)
    world = World()
    world.keys.workers = None
    world.read(batch(keys_of(100)))
    world.keys.workers = world.workers
    world.workers.is_busy = True
    world.read(batch(keys_of(100)))
    assert world.keys.skipped == 2
    world.workers.is_busy = False
    for _ in range(sampling.LOOKS_IN_THREADS_MAX + 3):
        world.read(batch(keys_of(100)))
    assert (len(world.workers.jobs), world.keys.skipped) == (sampling.LOOKS_IN_THREADS_MAX, 5)
    world.workers.work()
    world.read(batch(keys_of(100)))
    assert len(world.workers.jobs) == 1


def test_looks_are_bounded_by_time() -> None:
    """Those that were not needed are saved for a burst, up to BURST_LOOKS."""
    world = World(looks_per_s=2.0)
    for _ in range(50):
        world.read(batch(keys_of(10)))
    assert len(world.seen) == BURST_LOOKS
    world.timers.advance(1.0)
    for _ in range(50):
        world.read(batch(keys_of(10)))
    assert len(world.seen) == BURST_LOOKS + 2
    world.timers.advance(1000.0)
    for _ in range(50):
        world.read(batch(keys_of(10)))
    assert len(world.seen) == 2 * BURST_LOOKS + 2


def test_in_the_long_run_a_part_of_what_is_read_is_seen() -> None:
    """However much time there is; what was read and not shown counts as well."""
    world = World(looks_per_s=10.0)
    data = batch(keys_of(2 * LOOK_RECORDS), size=3)
    world.keys._affordable = 0.0
    for _ in range(4 * READ_FOR_ONE):
        world.timers.advance(60.0)
        world.read(data)
    seen = len(world.hashes())
    assert 7 * LOOK_RECORDS <= seen <= 8 * LOOK_RECORDS
    assert 0 < world.keys.due_records <= READ_FOR_ONE * LOOK_RECORDS
    table, _ = split_complete(memoryview(data))
    world.keys.read(PLACE, table, memoryview(data), untold=READ_FOR_ONE * LOOK_RECORDS)
    assert len(world.hashes()) > seen


def test_of_a_large_read_several_places_are_seen() -> None:
    world = World()
    world.read(*(batch(keys_of(500, 500 * at), 500 * at, size=0) for at in range(100)))
    assert len(world.seen) == LOOKS_PER_READ
    assert len(set(world.hashes())) > 3 * LOOK_RECORDS // 2


def test_every_batch_has_its_turn() -> None:
    """Where looks begin differs from one to the next, so the end of what is read is seen as often as its beginning."""
    world = World(looks_per_s=10_000.0)
    parts = [batch([b"%d" % at], at) for at in range(sampling.LOOK_BATCHES * 4)]
    for _ in range(400):
        world.read(*parts)
    seen = Counter(world.hashes())
    assert len(seen) == len(parts)
    assert all(80 < count < 120 for count in seen.values())


def test_control_batches_and_broken_ones_tell_nothing() -> None:
    world = World()
    world.read(records.build_batch(0, [Record(key=b"\0\0\0\1", value=b"")], is_control=True))
    assert world.hashes() == []
    broken = bytearray(batch(keys_of(10)))
    broken[61] = 0xFF
    world.read(bytes(broken))
    assert (world.hashes(), world.keys.skipped) == ([], 1)


def test_none_where_no_looks_are_wanted_or_no_bytes_are_here() -> None:
    world = World(looks_per_s=0.0)
    world.read(batch(keys_of(10)))
    far = World()
    table, _ = split_complete(memoryview(batch(keys_of(10))))
    far.keys.read(PLACE, table, memoryview(b""))
    far.read()
    assert world.seen == far.seen == []
