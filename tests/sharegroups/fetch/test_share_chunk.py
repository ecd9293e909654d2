"""A chunk of a share group's cache: bytes here, or at another proxy that is notified when it may release them."""

from __future__ import annotations

from kafka_share_proxy.reading.chunk_cache import CacheLimits, ChunkCache, ReadKey
from kafka_share_proxy.reading.far_records import FarRecords, FarSlice
from kafka_share_proxy.sharegroups.fetch.share_chunk import ShareChunk
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.batches import split_complete

DATA = memoryview(b"".join(records.build_batch(at, [records.Record(value=b"v" * 20)] * 3) for at in (0, 3, 6)))
BATCHES, _ = split_complete(DATA)


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


def test_other_proxy_is_told_when_the_cache_lets_go():
    forgotten: list[int] = []
    cache = ChunkCache[ShareChunk](CacheLimits(1 << 20, 2.0, 16))
    cache.add(chunk(FarRecords(7, len(DATA), forgotten.append), 9))
    cache.add(chunk(DATA))
    assert cache.find_anywhere(ReadKey(b"t" * 16, 0, False), 4, 5, 1.0)
    cache.drop_holder(9)
    assert forgotten == [7]
    cache.drop_below(ReadKey(b"t" * 16, 0, False), 9)
    assert (cache.chunks, cache.bytes) == (0, 0)
