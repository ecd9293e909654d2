"""Chunks of batches: found by offset, bounded, and gone when they are old."""

from __future__ import annotations

from math import inf

from kafka_share_proxy.reading.chunk_cache import CacheLimits, Chunk, ChunkCache, ReadKey
from kafka_share_proxy.wire.records import records

PER_PARTITION = 4
TIMES = {"leader_epoch": 5, "read_at": 0.0}

KEY = ReadKey(b"t" * 16, 0, False)


def chunk(key, first, last, *, size=100, epoch=5, at=0.0, **fields):
    data = memoryview(records.build_batch(first, [records.Record(value=bytes(size))] * (last - first + 1)))
    batches = list(records.iter_batches(data))
    return Chunk(key=key, fetch_offset=first, batches=batches, records=data, leader_epoch=epoch, read_at=at, **fields)


def cache_of(limit_bytes=1 << 20, age_s=2.0):
    return ChunkCache(CacheLimits(limit_bytes, age_s, PER_PARTITION))


def test_the_cache_returns_the_chunk_that_contains_the_offset():
    cache = cache_of()
    one, two = chunk(KEY, 0, 9), chunk(KEY, 10, 19)
    cache.add(one)
    cache.add(two)
    assert cache.find(KEY, 5, 5, 1.0) is one
    assert cache.find(KEY, 10, 5, 1.0) is two
    assert cache.find(KEY, 20, 5, 1.0) is None
    assert cache.find(KEY, 5, 6, 1.0) is None
    assert cache.find(KEY, 5, 5, 2.0) is None
    assert cache.find(ReadKey(b"t" * 16, 0, True), 5, 5, 1.0) is None


def test_cache_is_bounded_in_bytes_and_chunks():
    cache = cache_of(1000)
    for first in range(0, 100, 10):
        cache.add(chunk(KEY, first, first, size=200))
    assert cache.bytes <= 1000
    assert cache.find(KEY, 90, 5, 0.0) is not None
    assert cache.find(KEY, 0, 5, 0.0) is None
    cache = cache_of()
    for first in range(PER_PARTITION + 4):
        cache.add(chunk(KEY, first, first))
    assert cache.find(KEY, 3, 5, 0.0) is None
    assert cache.find(KEY, 4, 5, 0.0) is not None


def test_cache_keeps_one_response_even_if_larger_than_its_limit():
    cache = cache_of(10)
    cache.add(chunk(KEY, 0, 9))
    assert cache.find(KEY, 0, 5, 0.0) is not None


def test_a_newer_chunk_replaces_those_it_covers_and_those_of_another_epoch():
    cache = cache_of()
    cache.add(chunk(KEY, 5, 9))
    cache.add(chunk(KEY, 0, 19))
    cache.add(chunk(KEY, 20, 29, epoch=6))
    assert cache.find(KEY, 5, 5, 0.0) is None
    assert cache.find(KEY, 25, 6, 0.0) is not None
    cache.drop_partition(b"t" * 16, 0)
    assert cache.bytes == 0


def test_expired_chunks_are_dropped_when_the_next_one_is_added():
    cache = cache_of()
    cache.add(chunk(KEY, 0, 9))
    cache.add(chunk(KEY, 20, 29, at=2.0))
    assert cache.chunks == 1
    assert cache.drop_aged(3.0) == 4.0
    assert cache.drop_aged(4.0) == inf
    assert cache.bytes == 0


def test_data_derived_from_a_chunk_counts_and_is_dropped_first():
    class Grown(Chunk):
        built_bytes = 0

        @property
        def bytes(self):
            return len(self.records) + self.built_bytes

        def shrink(self):
            self.built_bytes = 0

    cache = cache_of(2000)
    for first in (0, 10):
        source = chunk(KEY, first, first)
        cache.add(Grown(key=KEY, fetch_offset=first, batches=source.batches, records=source.records, **TIMES))
    last = cache.newest(KEY, 0.0)
    last.built_bytes = 1700
    cache.recount(last)
    assert (cache.chunks, cache.bytes) == (1, last.bytes)
    last.built_bytes = 5000
    cache.recount(last)
    assert (last.built_bytes, cache.bytes) == (0, len(last.records))


def test_chunks_held_by_another_proxy_serve_its_clients_and_are_dropped_with_it():
    cache, far = cache_of(), KEY._replace(holder=3)
    cache.add(chunk(far, 0, 9))
    assert cache.find(KEY, 0, 5, 0.0) is None
    assert cache.find_anywhere(KEY, 0, 5, 0.0)
    cache.drop_holder(3)
    assert not cache.find_anywhere(KEY, 0, 5, 0.0)


def test_reader_of_another_history_is_not_served():
    """A broker would tell it where its log diverges (KIP-595)."""
    cache = cache_of()
    cache.add(chunk(KEY, 10, 19, requested_epoch=2))
    assert cache.find(KEY, 10, 5, 0.0, last_fetched_epoch=2) is not None
    assert cache.find(KEY, 10, 5, 0.0, last_fetched_epoch=3) is None


def test_chunks_below_an_offset_are_dropped():
    cache = cache_of()
    cache.add(chunk(KEY, 0, 9))
    cache.add(chunk(KEY, 10, 19))
    cache.drop_below(KEY, 15)
    assert [cache.find(KEY, offset, 5, 0.0) is None for offset in (5, 15)] == [True, False]
