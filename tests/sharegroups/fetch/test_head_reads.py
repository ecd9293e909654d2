"""Reservations and waiters by themselves, and chunks: bytes here, or at another proxy that may release them."""

from __future__ import annotations

import pytest
from kafka_share_proxy.loop.promise import Promise, call_soon, on_behalf_of
from kafka_share_proxy.reading.chunk_cache import CacheLimits, ChunkCache, ReadKey
from kafka_share_proxy.reading.far_records import FarRecords, FarSlice
from kafka_share_proxy.sharegroups.fetch.head_reads import ShareChunk, ShareHead, ShareReads
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.batches import split_complete

DATA = memoryview(b"".join(records.build_batch(at, [records.Record(value=b"v" * 20)] * 3) for at in (0, 3, 6)))
BATCHES, _ = split_complete(DATA)


def made_reads(heads):
    return ShareReads(
        ChunkCache(CacheLimits(1 << 20, 2.0, 16)), lambda key: heads.get(key, ShareHead(None, cached=False))
    )


def test_reservation_blocks_the_same_offset_and_later_ones():
    reads = made_reads({})
    key = ShareKey("g", b"t" * 16, 0)
    first = reads.reserve(key, 1, 10, False, deadline=6.0, now=0.0)
    assert first is not None
    assert reads.reserve(key, 2, 10, False, deadline=6.0, now=1.0) is None
    below = reads.reserve(key, 2, 5, False, deadline=6.0, now=1.0)
    assert below is not None
    assert below.id > first.id
    assert not reads.holds(first)
    assert reads.let_go([first]) == []
    assert reads.reserve(key, 3, 5, False, deadline=12.0, now=6.0) is not None


def test_wake_continues_while_there_is_something():
    key = ShareKey("g", b"t" * 16, 0)
    heads = {key: ShareHead(0, cached=True)}
    reads = made_reads(heads)
    waiters = [reads.wait([key]) for _ in range(5)]
    woken = []
    for index, waiter in enumerate(waiters):

        def took(index=index) -> None:
            woken.append(index)
            if len(woken) == 3:
                heads[key] = ShareHead(None, cached=False)

        waiter.woken.on_settled(took)
    reads.wake(key)
    assert woken == [0, 1, 2]
    assert reads.waiting == 2


def test_waking_inside_a_wake_does_not_pile_up_the_stack():
    key = ShareKey("g", b"t" * 16, 0)
    reads = made_reads({key: ShareHead(0, cached=True)})
    count = 3000
    woken: list[Promise] = []
    for _ in range(count):
        waiter = reads.wait([key])
        waiter.woken.on_settled(lambda: (woken.append(None), reads.wake(key)))
    reads.wake(key)
    assert len(woken) == count


class Party:
    """An owner of callbacks that are called when the test says so."""

    def __init__(self, soon=None):
        self.soon = soon

    def call_soon(self, callback):
        if self.soon is None:
            call_soon(self, callback)
        else:
            self.soon.append(lambda: on_behalf_of(self, callback))

    def failed(self, error):
        raise error


def parked(reads, key, count, soon):
    """Park this many waiters of as many owners. Return the numbers of the woken ones."""
    woken = []

    def park(number):
        reads.wait([key]).woken.on_settled(lambda: woken.append(number))

    for number in range(count):
        on_behalf_of(Party(soon), lambda number=number: park(number))
    return woken


def test_a_waiter_of_another_owner_has_run_before_the_next_is_woken():
    """Else one record that became available would wake everybody."""
    key = ShareKey("g", b"t" * 16, 0)
    heads = {key: ShareHead(0, cached=True)}
    reads = made_reads(heads)
    soon = []
    woken = parked(reads, key, 5, soon)
    reads.wake(key)
    assert (woken, reads.waiting, len(soon)) == ([], 4, 1)
    soon.pop()()
    assert (woken, reads.waiting, len(soon)) == ([0], 3, 1)
    heads[key] = ShareHead(None, cached=False)
    soon.pop()()
    assert (woken, reads.waiting, len(soon)) == ([0, 1], 3, 0)


def test_a_wake_while_one_is_under_way_is_not_lost():
    key = ShareKey("g", b"t" * 16, 0)
    heads = {key: ShareHead(None, cached=False)}
    reads = made_reads(heads)
    soon = []
    woken = parked(reads, key, 3, soon)
    reads.wake(key)
    reads.wake(key)
    assert len(soon) == 1
    while soon:
        soon.pop(0)()
    assert woken == [0, 1]


def test_a_cancelled_waiter_does_not_stop_the_others():
    """Its client left between the wake and its call: what it was woken for is the next one's."""
    key = ShareKey("g", b"t" * 16, 0)
    reads = made_reads({key: ShareHead(0, cached=True)})
    soon, lost = [], []
    on_behalf_of(Party(soon), lambda: lost.append(reads.wait([key])))
    woken = parked(reads, key, 2, soon)
    reads.wake(key)
    reads.stop_waiting(lost[0])
    while soon:
        soon.pop(0)()
    assert woken == [0, 1]


def test_fault_in_looking_at_a_share_partition_does_not_keep_its_waiters_asleep():
    """It is the trouble of the one that was woken; the next wake is the next one's."""

    def head(_key):
        raise ZeroDivisionError

    key = ShareKey("g", b"t" * 16, 0)
    reads = ShareReads(ChunkCache(CacheLimits(1 << 20, 2.0, 16)), head)
    soon = []
    woken = parked(reads, key, 2, soon)
    for _ in range(2):
        reads.wake(key)
        with pytest.raises(ZeroDivisionError):
            soon.pop(0)()
    assert woken == [0, 1]


def chunk(data, holder: int = 0) -> ShareChunk:
    key = ReadKey(b"t" * 16, 0, False, holder)
    return ShareChunk(key=key, fetch_offset=0, batches=BATCHES, records=data, leader_epoch=5, read_at=0.0)


def test_slice_is_whole_batches():
    part = chunk(DATA).slice(1, 2)
    assert bytes(part) == bytes(DATA[BATCHES[1].position :])


def test_slice_of_far_records_is_a_reference():
    part = chunk(FarRecords(1, len(DATA), print), 9).slice(0, 0)
    assert isinstance(part, FarSlice)
    assert len(part) == BATCHES[0].size


def test_other_proxy_is_notified_when_the_cache_drops_a_chunk():
    forgotten: list[int] = []
    cache = ChunkCache[ShareChunk](CacheLimits(1 << 20, 2.0, 16))
    cache.add(chunk(FarRecords(7, len(DATA), forgotten.append), 9))
    cache.add(chunk(DATA))
    assert cache.find_anywhere(ReadKey(b"t" * 16, 0, False), 4, 5, 1.0)
    cache.drop_holder(9)
    assert forgotten == [7]
    cache.drop_below(ReadKey(b"t" * 16, 0, False), 9)
    assert (cache.chunks, cache.bytes) == (0, 0)
