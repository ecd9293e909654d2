"""Which keys are sampled: in proportion to the rows of every partition, within the budget (audit/README.md rule 7)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from math import inf
from typing import Any

import pytest
from kafka_share_proxy.audit import sampling
from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.audit.sampling import (
    BURST_S,
    KEYS_PER_LOOK,
    LOOK_RECORDS_LEAST,
    LOOK_RECORDS_MIN,
    READ_RECORDS_MAX,
    REFILL_S,
    ROWS_PER_KEY,
    KeySampling,
)
from kafka_share_proxy.loop.interfaces import WorkersBusy
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.batches import split_complete
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.records.key_samples import ROW, KeySample
from kafka_share_proxy.wire.records.records import Record

from tests.support.manual_timers import ManualTimers

PLACE = Place(b"t", 0)


class Later:
    """Workers that run their work on demand."""

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
    def __init__(self, looks_per_s: float = 1000.0, draw: Callable[[], float] = lambda: 0.0) -> None:
        self.timers, self.workers = ManualTimers(), Later()
        self.reported: list[tuple[Place, list[KeySample], float]] = []
        self.keys = KeySampling(
            self.timers,
            looks_per_s,
            lambda place, samples, rows: self.reported.append((place, list(samples), rows)),
            draw,
        )
        self.keys.workers = self.workers

    def read(self, *batches: bytes, place: Place = PLACE) -> float:
        data = memoryview(b"".join(batches))
        return self.keys.read(place, split_complete(data)[0], data)

    def hashes(self) -> list[int]:
        """Return the hashes of all looks, in order."""
        return [
            hashed
            for _, samples, _ in self.reported
            for each in samples
            for hashed, _ in (*ROW.iter_unpack(each.keyed), *ROW.iter_unpack(each.null))
        ]

    def rows(self, place: Place = PLACE) -> float:
        """Rows that the looks at a partition represent."""
        return sum(rows for at, _, rows in self.reported if at == place)

    def keys_seen(self, place: Place = PLACE) -> int:
        return sum(sample.rows for at, samples, _ in self.reported if at == place for sample in samples)


def keys_of(count: int, first: int = 0) -> list[bytes]:
    return [b"key-%d" % number for number in range(first, first + count)]


def batch(keys: list[bytes], base: int = 0, codec: int = compression.NONE, size: int = 20) -> bytes:
    keyed = [Record(key=key, value=bytes(size), offset=base + at) for at, key in enumerate(keys)]
    return records.build_batch(base, keyed, codec=codec)


def test_while_the_budget_is_full_every_record_is_sampled_once() -> None:
    world = World()
    world.read(batch(keys_of(300)))
    assert sorted(world.hashes()) == sorted(map(murmur2, keys_of(300)))
    assert world.rows() == 300


def test_of_a_large_batch_every_nth_record_is_sampled() -> None:
    """So that a look covers all of a batch: neighbours are more alike."""
    world = World(looks_per_s=1.0, draw=lambda: 0.5)
    world.keys._budget = world.keys._budget_max / 4
    world.read(batch(keys_of(10 * LOOK_RECORDS_MIN), size=3))
    numbers = sorted(keys_of(10 * LOOK_RECORDS_MIN).index(key) for key in keys_in(world))
    assert len(numbers) == LOOK_RECORDS_MIN
    assert {late - early for early, late in pairwise(numbers)} == {10}


def keys_in(world: World) -> list[bytes]:
    by_hash = {murmur2(key): key for key in keys_of(10 * LOOK_RECORDS_MIN)}
    return [by_hash[hashed] for hashed in world.hashes()]


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_a_compressed_batch_is_opened_by_another_thread(codec: int) -> None:
    """If it is not small; it is seen when the thread has come to an end."""
    world = World()
    keys = keys_of(1024)
    world.read(batch(keys, codec=codec, size=200))
    if world.workers.jobs:
        assert world.reported == []
    world.workers.work()
    assert sorted(world.hashes()) == sorted(map(murmur2, keys))


def test_batch_above_the_inline_limit_is_sampled_by_a_thread(monkeypatch) -> None:
    monkeypatch.setattr(sampling, "INLINE_BYTES", 1000)
    world = World()
    world.read(batch(keys_of(100)))
    assert (len(world.workers.jobs), world.reported) == (1, [])
    world.workers.work()
    assert len(world.hashes()) == 100


def test_without_free_threads_the_sampling_is_skipped(monkeypatch) -> None:
    """And counted; those that wait for a thread are bounded."""
    monkeypatch.setattr(sampling, "INLINE_BYTES", 1000)
    world = World()
    world.keys.workers = None
    world.read(batch(keys_of(64)))
    world.keys.workers = world.workers
    world.workers.is_busy = True
    world.read(batch(keys_of(64)))
    assert world.keys.skipped == 2
    world.workers.is_busy = False
    for _ in range(sampling.LOOKS_IN_THREADS_MAX + 3):
        world.read(batch(keys_of(64)))
    assert (len(world.workers.jobs), world.keys.skipped) == (sampling.LOOKS_IN_THREADS_MAX, 5)
    world.workers.work()
    world.read(batch(keys_of(64)))
    assert len(world.workers.jobs) == 1


def test_keys_are_sampled_in_proportion_to_the_rows_of_each_partition() -> None:
    """Small reads do not use up the budget of large ones: ten partitions of equal rows, half of them in reads of 8."""
    world = World(looks_per_s=10.0, draw=random.Random(1).random)
    small, large = batch(keys_of(8)), b"".join(batch(keys_of(500), 500 * at) for at in range(4))
    places = [Place(b"t", number) for number in range(10)]
    for step in range(2000):
        world.timers.advance(0.01)
        for place in places[:5]:
            world.read(small, place=place)
            if step % 250 == 0:
                world.read(large, place=Place(b"t", 5 + place.partition))
    shares = [world.rows(place) / 16_000 for place in places]
    assert shares == pytest.approx([1.0] * 10, abs=0.15)
    keys_by_place = [world.keys_seen(place) for place in places]
    assert min(keys_by_place) * 4 > max(keys_by_place)
    assert min(keys_by_place) >= LOOK_RECORDS_LEAST


def test_a_partition_of_few_rows_is_not_left_out_in_the_long_run() -> None:
    """Its first look is due anywhere within the first rows that a look represents."""
    rows_sampled = 0.0
    for seed in range(300):
        world = World(looks_per_s=2.0, draw=random.Random(seed).random)
        world.keys._budget = world.keys._budget_max / 3
        world.read(batch(keys_of(20)))
        rows_sampled += world.rows()
    assert rows_sampled / 300 == pytest.approx(20, rel=0.5)


def test_in_the_long_run_one_key_is_sampled_for_many_rows() -> None:
    """However large the budget; what was read and not shown counts as well."""
    world = World(looks_per_s=10.0)
    data = batch(keys_of(2000), size=3)
    turns = 2000
    for _ in range(turns):
        world.timers.advance(0.02)
        world.read(data)
    keys_sampled, rows = world.keys_seen(), 2000 * turns
    full = 10 * KEYS_PER_LOOK * BURST_S
    assert full <= keys_sampled <= full * (1 + 0.02 * turns / REFILL_S) + rows / ROWS_PER_KEY
    assert world.rows() == pytest.approx(rows, rel=0.05)
    table, _ = split_complete(memoryview(data))
    due = world.keys.read(PLACE, table, memoryview(data))
    assert 0 < due < inf
    before = world.keys_seen()
    world.keys.read(PLACE, table, memoryview(data), unreported=int(due) + 1)
    assert world.keys_seen() > before


def test_rows_reported_later_count_for_the_next_sample() -> None:
    world = World(looks_per_s=2.0)
    world.keys.passed(PLACE, LOOK_RECORDS_MIN - 1)
    world.read(batch(keys_of(100)))
    assert world.rows() >= LOOK_RECORDS_MIN


def test_the_budget_returns_with_time() -> None:
    world = World(looks_per_s=1.0)
    world.keys._budget = 0.0
    for _ in range(20):
        world.read(batch(keys_of(100)))
    assert world.reported == []
    world.timers.advance(REFILL_S)
    world.read(batch(keys_of(100)))
    assert world.keys_seen() >= LOOK_RECORDS_MIN


def test_one_read_is_bounded() -> None:
    world = World()
    world.read(*(batch(keys_of(500, 500 * at), 500 * at, size=0) for at in range(100)))
    assert LOOK_RECORDS_MIN <= len(world.hashes()) <= READ_RECORDS_MAX
    assert len(set(world.hashes())) == len(world.hashes())


def test_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "PLACES_MAX", 3)
    world = World()
    for number in range(10):
        world.read(batch(keys_of(10)), place=Place(b"t", number))
    assert len(world.keys._partitions) <= 3


def test_every_record_has_the_same_chance() -> None:
    """The chance depends neither on the size of its batch nor on its position in the read."""
    world = World(looks_per_s=10_000.0, draw=random.Random(3).random)
    sizes, parts, base = (1, 1, 7, 40, 1, 200, 3), list[bytes](), 0
    for size in sizes:
        parts.append(batch([b"%d" % (base + at) for at in range(size)], base))
        base += size
    for _ in range(3000):
        world.keys._budget = world.keys._budget_max / 2
        world.read(*parts)
    samples_by_hash = Counter(world.hashes())
    assert len(samples_by_hash) == base
    usual = world.keys_seen() / base
    assert all(0.6 * usual < count < 1.4 * usual for count in samples_by_hash.values())


def test_control_batches_and_broken_ones_are_not_sampled() -> None:
    world = World()
    world.read(records.build_batch(0, [Record(key=b"\0\0\0\1", value=b"")], is_control=True))
    assert world.hashes() == []
    broken = bytearray(batch(keys_of(100)))
    broken[61] = 0xFF
    world.read(bytes(broken))
    assert (world.hashes(), world.keys.skipped) == ([], 1)


def test_no_sampling_without_a_budget_or_without_bytes() -> None:
    world = World(looks_per_s=0.0)
    assert world.read(batch(keys_of(10))) == inf
    far = World()
    table, _ = split_complete(memoryview(batch(keys_of(10))))
    far.keys.read(PLACE, table, memoryview(b""))
    far.read()
    assert world.reported == far.reported == []
