"""Chunks of batches: found by offset, bounded, and gone when they are old."""

from __future__ import annotations

from proxy.reading.chunk_cache import CHUNKS_PER_PARTITION, BatchCache, CacheKey, Chunk
from proxy.wire import records

KEY = CacheKey(b"t" * 16, 0, False)


def chunk(key, first, last, *, size=100, epoch=5, at=0.0):
    data = memoryview(records.build_batch(first, [records.Record(value=bytes(size))] * (last - first + 1)))
    return Chunk(key, first, list(records.iter_batches(data)), data, (), epoch, at)


def test_cache_finds_what_holds_the_offset():
    cache = BatchCache(1 << 20, 2.0)
    one, two = chunk(KEY, 0, 9), chunk(KEY, 10, 19)
    cache.add(one)
    cache.add(two)
    assert cache.find(KEY, 5, 5, 1.0) is one
    assert cache.find(KEY, 10, 5, 1.0) is two
    assert cache.find(KEY, 20, 5, 1.0) is None
    assert cache.find(KEY, 5, 6, 1.0) is None
    assert cache.find(KEY, 5, 5, 2.0) is None
    assert cache.find(CacheKey(b"t" * 16, 0, True), 5, 5, 1.0) is None


def test_cache_is_bounded_in_bytes_and_chunks():
    cache = BatchCache(1000, 2.0)
    for first in range(0, 100, 10):
        cache.add(chunk(KEY, first, first, size=200))
    assert cache.bytes <= 1000
    assert cache.find(KEY, 90, 5, 0.0) is not None
    assert cache.find(KEY, 0, 5, 0.0) is None
    cache = BatchCache(1 << 20, 2.0)
    for first in range(CHUNKS_PER_PARTITION + 4):
        cache.add(chunk(KEY, first, first))
    assert cache.find(KEY, 3, 5, 0.0) is None
    assert cache.find(KEY, 4, 5, 0.0) is not None


def test_cache_keeps_one_answer_even_if_larger_than_its_limit():
    cache = BatchCache(10, 2.0)
    cache.add(chunk(KEY, 0, 9))
    assert cache.find(KEY, 0, 5, 0.0) is not None


def test_cache_drops_what_a_newer_read_covers_or_another_epoch_wrote():
    cache = BatchCache(1 << 20, 2.0)
    cache.add(chunk(KEY, 5, 9))
    cache.add(chunk(KEY, 0, 19))
    cache.add(chunk(KEY, 20, 29, epoch=6))
    assert cache.find(KEY, 5, 5, 0.0) is None
    assert cache.find(KEY, 25, 6, 0.0) is not None
    cache.drop_partition(b"t" * 16, 0)
    assert cache.bytes == 0
