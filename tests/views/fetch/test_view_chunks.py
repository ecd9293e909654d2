"""Chunks of base partitions: what serves whom, what was taken apart, and what goes when room is short."""

from __future__ import annotations

import pytest
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.views.fetch import view_chunks
from kafka_share_proxy.views.fetch.view_chunks import (
    Division,
    DivisionTable,
    ViewCache,
    ViewChunk,
    fates,
    is_quick,
    split_batches,
)
from kafka_share_proxy.views.model.scanning import LogOffsets
from kafka_share_proxy.views.model.slots import EvenCut
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.batches import split_complete

KEY = ReadKey(b"b" * 16, 0, False)
CUT = EvenCut(2)


def batch_of(base: int, count: int = 4, epoch: int = 3, codec: int = 0, size: int = 10) -> bytes:
    batch = [records.Record(key=b"k%d" % n, value=bytes(size)) for n in range(count)]
    return records.build_batch(base, batch, leader_epoch=epoch, codec=codec)


def chunk_of(*batches: bytes, read_at: float = 0.0, epoch: int = 5, requested_epoch: int = -1, **fields) -> ViewChunk:
    data = memoryview(b"".join(batches))
    complete, _ = split_complete(data)
    return ViewChunk(
        key=fields.get("key", KEY),
        fetch_offset=fields.get("fetch_offset", complete[0].base_offset),
        batches=complete,
        records=data,
        fates=fields.get("fates", bytes(len(complete))),
        leader_epoch=epoch,
        requested_epoch=requested_epoch,
        read_at=read_at,
        log_offsets=LogOffsets(10, 10, 0),
    )


def test_chunk_serves_offsets_between_its_ends():
    cache = ViewCache(1 << 20, 10.0)
    chunk = chunk_of(batch_of(10), batch_of(14), fetch_offset=8)
    cache.add(chunk)
    assert [cache.find(KEY, offset, 5, 1.0) for offset in (7, 8, 13, 17, 18)] == [None, chunk, chunk, chunk, None]
    assert cache.find(KEY._replace(read_committed=True), 10, 5, 1.0) is None


def test_other_leader_epoch_and_old_age_do_not_serve():
    cache = ViewCache(1 << 20, 10.0)
    cache.add(chunk_of(batch_of(0)))
    assert cache.find(KEY, 0, 6, 1.0) is None
    assert cache.find(KEY, 0, 5, 10.0) is None
    cache.drop_aged(10.0)
    assert (cache.chunks, cache.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("offset", "epoch", "continues"),
    [
        (10, -1, True),
        (10, 5, True),
        (10, 2, True),
        (10, 3, False),
        (14, 3, True),
        (14, 2, False),
        (12, 3, True),
        (18, 4, True),
    ],
)
def test_a_reader_continues_in_a_chunk_only_after_the_same_leader_epoch(offset, epoch, continues):
    """The epoch of the batch before it here decides, or of the request to the broker."""
    chunk = chunk_of(batch_of(10, epoch=3), batch_of(14, epoch=4), batch_of(18, epoch=4), requested_epoch=2)
    assert chunk.continues(offset, epoch) is continues


def test_newer_chunk_replaces_what_it_covers():
    cache = ViewCache(1 << 20, 10.0)
    cache.add(chunk_of(batch_of(0)))
    whole = chunk_of(batch_of(0), batch_of(4))
    cache.add(whole)
    assert cache.chunks == 1
    assert cache.bytes == whole.bytes


def test_the_oldest_chunk_is_evicted_above_the_size_limit():
    size = len(batch_of(0))
    cache = ViewCache(2 * size, 10.0)
    for base in (0, 4, 8):
        cache.add(chunk_of(batch_of(base)))
    assert [cache.find(KEY, base, 5, 1.0) is not None for base in (0, 4, 8)] == [False, True, True]
    assert cache.bytes == 2 * size


def test_the_parts_of_a_single_chunk_above_the_limit_are_dropped():
    cache = ViewCache(10, 10.0)
    chunk = chunk_of(batch_of(0))
    cache.add(chunk)
    chunk.tables["x"] = DivisionTable({0: split_batches(chunk, CUT, [0], 0)[0]}, bytes=100)
    cache.recount_parts(chunk)
    assert chunk.tables["x"].rows == {}
    assert cache.bytes == len(chunk.records)


def test_chunks_of_one_partition_are_bounded(monkeypatch):
    monkeypatch.setattr(view_chunks, "CHUNKS_PER_PARTITION", 2)
    cache = ViewCache(1 << 20, 10.0)
    for base in (0, 10, 20):
        cache.add(chunk_of(batch_of(base)))
    assert cache.chunks == 2


def test_partition_is_dropped_whole():
    cache = ViewCache(1 << 20, 10.0)
    cache.add(chunk_of(batch_of(0)))
    cache.add(chunk_of(batch_of(0), key=KEY._replace(read_committed=True)))
    cache.drop_partition(*KEY[:2])
    assert (cache.chunks, cache.bytes) == (0, 0)


def test_recently_requested_slots_are_divided_together():
    """Slots of other clients too, until they are no longer requested."""
    cache, division = ViewCache(1 << 20, 10.0), Division("v", EvenCut(8))
    assert cache.slots_to_split(KEY, division, [3], 0.0) == [3]
    assert cache.slots_to_split(KEY, division, [1, 5], 20.0) == [1, 3, 5]
    assert cache.slots_to_split(KEY, division, [1], 45.0) == [1, 5]


def test_parts_are_those_of_the_cut():
    chunk = chunk_of(batch_of(0, 50))
    rows = split_batches(chunk, CUT, [0, 1], 0).rows
    assert sum(part.records for part in rows[0].values()) == 50


def test_control_batches_pass_and_aborted_ones_are_nothing():
    marker = records.build_batch(4, [records.Record(key=b"\0\0\0\1", value=bytes(6))], is_control=True)
    chunk = chunk_of(batch_of(0), marker, fates=b"\1\0")
    (nothing, passed) = split_batches(chunk, CUT, [0, 1], 0).rows
    assert [part.batch for part in nothing.values()] == [None, None]
    assert [bytes(part.batch) for part in passed.values()] == [marker, marker]


def test_a_broken_batch_ends_a_run():
    """No reader gets past it."""
    broken = bytearray(batch_of(4))
    broken[61] = 0x7F
    rows = split_batches(chunk_of(batch_of(0), bytes(broken), batch_of(8)), CUT, [0], 0).rows
    assert len(rows) == 2
    assert rows[1] == ErrorCode.CORRUPT_MESSAGE


def test_a_run_ends_at_the_limit_of_bytes(monkeypatch):
    """However large compressed batches become when opened."""
    monkeypatch.setattr(view_chunks, "RUN_BYTES", 1000)
    chunk = chunk_of(*(batch_of(4 * n, codec=compression.GZIP, size=1000) for n in range(5)))
    assert len(split_batches(chunk, CUT, [0, 1], 0).rows) == 1


def test_aborted_batches_and_markers_are_dropped_under_read_committed():
    """Aborted batches and markers are left out."""
    fields = {"producer_id": 7, "is_transactional": True}
    aborted = records.build_batch(0, [records.Record(value=b"x")], **fields)
    marker = records.build_batch(1, [records.Record(key=bytes(4), value=bytes(6))], is_control=True, **fields)
    batches, _ = split_complete(memoryview(aborted + marker + batch_of(2)))
    entry = type("Aborted", (), {"producer_id": 7, "first_offset": 0})()
    assert fates(batches, [entry], True) == b"\1\2\0"
    assert fates(batches, None, False) == bytes(3)


def test_long_work_is_predicted_as_long():
    """A megabyte of gzip is a matter for a thread, so are many batches or many slots; a small batch is not."""
    batches, _ = split_complete(memoryview(batch_of(0)))
    assert is_quick(batches, 0, 2, 1e-4)
    assert not is_quick(batches, 0, 1000, 1e-4)
    assert not is_quick(list(batches) * 1000, 0, 2, 1e-3)
    assert not is_quick([batches[0]._replace(size=1 << 20, attributes=compression.GZIP)], 0, 2, 1e-3)


def test_a_run_ends_at_the_limit_of_decompressed_bytes():
    """A batch that opens to too much by itself is not opened at all: the run has no row then."""
    chunk = chunk_of(*(batch_of(4 * n, codec=compression.ZSTD, size=10_000) for n in range(5)))
    assert len(split_batches(chunk, CUT, [0, 1], 0, decompressed_max=100_000).rows) == 2
    assert split_batches(chunk, CUT, [0, 1], 0, decompressed_max=30_000).rows == []


def test_batches_of_a_run_are_bounded(monkeypatch):
    """However small they are."""
    monkeypatch.setattr(view_chunks, "RUN_BATCHES", 3)
    chunk = chunk_of(*(batch_of(n, 1) for n in range(10)))
    run = split_batches(chunk, CUT, [0, 1], 2, batches_max=view_chunks.RUN_BATCHES)
    assert len(run.rows) == 3


def test_the_memory_of_rows_is_counted():
    """Also rows without a record."""
    run = split_batches(chunk_of(*(batch_of(n, 1) for n in range(100))), EvenCut(64), range(64), 0)
    assert run.bytes >= 100 * (view_chunks.ROW_BYTES + 64 * view_chunks.SLOT_BYTES)


def test_divisions_of_a_chunk_and_requested_slots_are_bounded(monkeypatch):
    """A client that invents a new filter for every request gets no memory for it."""
    monkeypatch.setattr(view_chunks, "TABLES_PER_CHUNK", 3)
    monkeypatch.setattr(view_chunks, "REQUESTED_MAX", 5)
    cache, chunk = ViewCache(1 << 20, 10.0), chunk_of(batch_of(0))
    for number in range(50):
        assert chunk.table(number) is chunk.table(number)
        cache.note(KEY, Division(number, CUT), [0], 0.0)
    assert len(chunk.tables) == 3
    assert len(cache._requested) <= 5
