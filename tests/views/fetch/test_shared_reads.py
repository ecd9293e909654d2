"""Common parts of requests for views: reads in flight, batches split once, figures."""

from __future__ import annotations

import pytest
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.workers import InlineWorkers
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.upstream_fetch import PartitionRead
from kafka_share_proxy.views.fetch import shared_reads
from kafka_share_proxy.views.fetch.shared_reads import ViewReads
from kafka_share_proxy.views.fetch.view_chunks import ROW_BYTES, SLOT_BYTES, Division, ViewCache
from kafka_share_proxy.views.model.scanning import LogOffsets
from kafka_share_proxy.views.model.slots import EvenCut

from tests.support.manual_timers import ManualTimers
from tests.support.view_ports import HeldWorkers
from tests.views.fetch.test_view_chunks import KEY, batch_of, chunk_of

DIVISION = Division("v", EvenCut(4))


class Flying:
    def __init__(self, offset: int, wait_s: float, epoch: int = 5) -> None:
        self.base_reads = {KEY: PartitionRead(KEY, "t", offset, epoch, 1000)}
        self.wait_s = wait_s
        self.done: Promise[None] = Promise()


@pytest.fixture
def reads() -> ViewReads:
    return ViewReads(ViewCache(1 << 20, 10.0))


def test_read_from_the_same_offset_is_waited_for(reads):
    """Not one under another leader epoch, nor one that waits where only a look is wanted."""
    waiting = Flying(10, 1.0)
    reads.flights.begin(KEY, waiting)
    assert reads.flight(KEY, 10, 5, 0.5, 0.0) is waiting
    assert reads.flight(KEY, 10, 6, 0.5, 0.0) is None
    assert reads.flight(KEY, 10, 5, 0.0, 0.0) is None
    assert reads.flight(KEY, 9, 5, 0.5, 0.0) is None
    assert reads.flight(KEY, 11, 5, 0.5, 0.0) is None
    assert reads.waits_at_end(KEY, 10, 5)
    assert not reads.waits_at_end(KEY, 11, 5)


def test_read_that_will_reach_an_offset_is_waited_for(reads):
    """Going by how many offsets as many bytes brought last time."""
    chunk = chunk_of(batch_of(0), batch_of(4))
    reads.cache.add(chunk)
    flying = Flying(100, 0.0)
    reads.flights.begin(KEY, flying)
    reach = 8 * min(1000, len(chunk.records)) // len(chunk.records)
    assert reads.flight(KEY, 100 + reach - 1, 5, 0.0, 0.0) is flying
    assert reads.flight(KEY, 100 + reach, 5, 0.0, 0.0) is None


def test_quick_work_is_done_immediately(reads):
    chunk = chunk_of(batch_of(0))
    assert reads.parts(chunk, DIVISION, [0, 1], 0, InlineWorkers(), ManualTimers()) is None
    assert chunk.tables["v"].has(0, [0, 1])
    assert not chunk.tables["v"].has(0, [2])


def test_parts_of_slots_requested_later_are_added(reads):
    """Parts of other slots stay."""
    chunk = chunk_of(batch_of(0))
    for slots in ([0], [3]):
        reads.parts(chunk, DIVISION, slots, 0, InlineWorkers(), ManualTimers())
    assert chunk.tables["v"].has(0, [0, 3])


def test_long_work_is_done_once_for_all_waiting_requests(reads, monkeypatch):
    """Also for slots that were requested recently."""
    monkeypatch.setattr(shared_reads, "INLINE_S", 0.0)
    workers, timers, chunk = HeldWorkers(), ManualTimers(), chunk_of(batch_of(0))
    reads.cache.slots_to_split(KEY, DIVISION, [2], timers.now())
    first = reads.parts(chunk, DIVISION, [0], 0, workers, timers)
    second = reads.parts(chunk, DIVISION, [2], 0, workers, timers)
    assert first is second is not None
    assert len(workers.jobs) == 1
    workers.work()
    assert first.done
    assert chunk.tables["v"].jobs == []
    assert chunk.tables["v"].has(0, [0, 2])
    assert reads.figures.threaded == 1


def test_failed_work_is_raised_to_its_waiters(reads, monkeypatch):
    monkeypatch.setattr(shared_reads, "INLINE_S", 0.0)
    chunk = chunk_of(batch_of(0))

    class Failing:
        def run(self, work, owner=None, *, is_large=False):
            promise = Promise()
            promise.fail(RuntimeError("no"))
            return promise

    waits = reads.parts(chunk, DIVISION, [0], 0, Failing(), ManualTimers())
    assert waits is not None
    with pytest.raises(RuntimeError):
        waits.result()


def test_parts_are_counted_and_the_source_is_not_counted_twice(reads):
    """A batch that is kept whole is the source itself."""
    chunk = chunk_of(batch_of(0, 40))
    reads.parts(chunk, DIVISION, [0, 1, 2, 3], 0, InlineWorkers(), ManualTimers())
    beside = ROW_BYTES + 4 * SLOT_BYTES
    assert beside < chunk.tables["v"].bytes < 2 * len(chunk.records) + beside
    one = Division("one", EvenCut(1))
    reads.parts(chunk, one, [0], 0, InlineWorkers(), ManualTimers())
    assert chunk.tables["one"].bytes == ROW_BYTES + SLOT_BYTES


def test_remembered_reads_are_bounded(reads, monkeypatch):
    monkeypatch.setattr(shared_reads, "LATEST_MAX", 3)
    for number in range(10):
        reads.note_read(ReadKey(bytes(16), number, False), LogOffsets(1, 1, 0), [])
    assert len(reads.latest) <= 3


def test_old_chunks_are_evicted_without_a_request(reads):
    """Without a request for it."""
    timers = ManualTimers()
    reads.cache.add(chunk_of(batch_of(0), read_at=timers.now()))
    for _ in range(3):
        reads.schedule_eviction(timers)
    assert timers.planned == 1
    timers.advance(10.0)
    assert reads.cache.bytes == 0
    assert timers.planned == 0
