"""Chunks of base partitions: what serves whom, what was taken apart, and what goes when room is short."""

from __future__ import annotations

import pytest

from proxy.apis import view_cache
from proxy.apis.view_cache import Chunk, Division, ReadKey, Table, ViewCache, predicted_s, take_apart, verdicts
from proxy.errors import ErrorCode
from proxy.views.cuts import EvenCut
from proxy.views.scanning import Facts
from proxy.wire import compression, records

KEY = ReadKey(b"b" * 16, 0, False)
CUT = EvenCut(2)


def made(base: int, count: int = 4, epoch: int = 3, codec: int = 0, size: int = 10) -> bytes:
    batch = [records.Record(key=b"k%d" % n, value=bytes(size)) for n in range(count)]
    return records.build_batch(base, batch, leader_epoch=epoch, codec=codec)


def chunk_of(*batches: bytes, read_at: float = 0.0, epoch: int = 5, asked_epoch: int = -1, **fields) -> Chunk:
    data = memoryview(b"".join(batches))
    found, _ = records.split_complete(data)
    return Chunk(
        key=fields.get("key", KEY),
        fetch_offset=fields.get("fetch_offset", found[0].base_offset),
        batches=found,
        records=data,
        verdicts=fields.get("verdicts", [True] * len(found)),
        leader_epoch=epoch,
        asked_epoch=asked_epoch,
        read_at=read_at,
        facts=Facts(10, 10, 0),
    )


def test_chunk_serves_offsets_between_its_ends():
    cache = ViewCache(1 << 20, 10.0)
    chunk = chunk_of(made(10), made(14), fetch_offset=8)
    cache.add(chunk, 0.0)
    assert [cache.find(KEY, offset, -1, 5, 1.0) for offset in (7, 8, 13, 17, 18)] == [None, chunk, chunk, chunk, None]
    assert cache.find(KEY._replace(read_committed=True), 10, -1, 5, 1.0) is None


def test_other_leader_epoch_and_old_age_do_not_serve():
    cache = ViewCache(1 << 20, 10.0)
    cache.add(chunk_of(made(0)), 0.0)
    assert cache.find(KEY, 0, -1, 6, 1.0) is None
    assert cache.find(KEY, 0, -1, 5, 10.0) is None
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
def test_reader_goes_on_only_where_its_history_is_that_of_the_log(offset, epoch, continues):
    """By the epoch of what lies before it here, or by what the broker was asked."""
    chunk = chunk_of(made(10, epoch=3), made(14, epoch=4), made(18, epoch=4), asked_epoch=2)
    assert chunk.continues(offset, epoch) is continues


def test_newer_chunk_replaces_what_it_covers():
    cache = ViewCache(1 << 20, 10.0)
    cache.add(chunk_of(made(0)), 0.0)
    whole = chunk_of(made(0), made(4))
    cache.add(whole, 0.0)
    assert cache.chunks == 1
    assert cache.bytes == whole.bytes


def test_oldest_chunk_goes_when_room_is_short():
    size = len(made(0))
    cache = ViewCache(2 * size, 10.0)
    for base in (0, 4, 8):
        cache.add(chunk_of(made(base)), 0.0)
    assert [cache.find(KEY, base, -1, 5, 1.0) is not None for base in (0, 4, 8)] == [False, True, True]
    assert cache.bytes == 2 * size


def test_what_was_made_goes_when_a_single_chunk_is_too_large():
    cache = ViewCache(10, 10.0)
    chunk = chunk_of(made(0))
    cache.add(chunk, 0.0)
    chunk.tables["x"] = Table({0: take_apart(chunk, CUT, [0], 0)[0]}, bytes=100)
    cache.grown(chunk)
    assert chunk.tables["x"].rows == {}
    assert cache.bytes == len(chunk.records)


def test_chunks_of_one_partition_are_bounded(monkeypatch):
    monkeypatch.setattr(view_cache, "CHUNKS_PER_PARTITION", 2)
    cache = ViewCache(1 << 20, 10.0)
    for base in (0, 10, 20):
        cache.add(chunk_of(made(base)), 0.0)
    assert cache.chunks == 2


def test_partition_is_dropped_whole():
    cache = ViewCache(1 << 20, 10.0)
    cache.add(chunk_of(made(0)), 0.0)
    cache.add(chunk_of(made(0), key=KEY._replace(read_committed=True)), 0.0)
    cache.drop_partition(*KEY[:2])
    assert (cache.chunks, cache.bytes) == (0, 0)


def test_slots_wanted_lately_are_taken_apart_together():
    """Those of others too, until nobody asks for them any more."""
    cache, division = ViewCache(1 << 20, 10.0), Division("v", EvenCut(8))
    assert cache.want(KEY, division, [3], 0.0) == [3]
    assert cache.want(KEY, division, [1, 5], 20.0) == [1, 3, 5]
    assert cache.want(KEY, division, [1], 45.0) == [1, 5]


def test_parts_are_those_of_the_cut():
    chunk = chunk_of(made(0, 50))
    rows = take_apart(chunk, CUT, [0, 1], 0)
    assert sum(part.records for part in rows[0].values()) == 50


def test_control_batches_pass_and_aborted_ones_are_nothing():
    marker = records.build_batch(4, [records.Record(key=b"\0\0\0\1", value=bytes(6))], is_control=True)
    chunk = chunk_of(made(0), marker, verdicts=[False, True])
    (nothing, passed) = take_apart(chunk, CUT, [0, 1], 0)
    assert [part.batch for part in nothing.values()] == [None, None]
    assert [bytes(part.batch) for part in passed.values()] == [marker, marker]


def test_broken_batch_ends_what_is_taken_apart():
    """Nobody gets past it."""
    broken = bytearray(made(4))
    broken[61] = 0x7F
    rows = take_apart(chunk_of(made(0), bytes(broken), made(8)), CUT, [0], 0)
    assert len(rows) == 2
    assert rows[1] == ErrorCode.CORRUPT_MESSAGE


def test_taking_apart_stops_when_there_is_enough(monkeypatch):
    """However large compressed batches become when opened."""
    monkeypatch.setattr(view_cache, "RUN_BYTES", 1000)
    chunk = chunk_of(*(made(4 * n, codec=compression.GZIP, size=1000) for n in range(5)))
    assert len(take_apart(chunk, CUT, [0, 1], 0)) == 1


def test_verdicts_under_read_committed():
    """Aborted batches and markers are left out; a marker that cannot be read spoils what lies behind it."""
    aborted = records.build_batch(
        0, [records.Record(value=b"x")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    marker = records.build_batch(
        1, [records.Record(key=bytes(4), value=bytes(6))], producer_id=7, is_transactional=True, is_control=True
    )
    data = memoryview(aborted + marker + made(2))
    batches, _ = records.split_complete(data)
    entry = type("Aborted", (), {"producer_id": 7, "first_offset": 0})()
    assert verdicts(batches, data, [entry], True) == [False, False, True]
    assert verdicts(batches, data, None, False) == [True, True, True]
    spoilt = bytearray(data)
    spoilt[len(aborted) + 70] ^= 1
    found = verdicts(batches, memoryview(spoilt), [entry], True)
    assert found == [False, ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE]


def test_long_work_is_predicted_as_long():
    """A megabyte of gzip is a matter for a thread, a small batch is not."""
    batches, _ = records.split_complete(memoryview(made(0)))
    assert predicted_s(batches) < 1e-5
    batches[0].size, batches[0].attributes = 1 << 20, compression.GZIP
    assert predicted_s(batches) > 1e-3


def test_divisions_of_a_chunk_and_wishes_are_bounded(monkeypatch):
    """Whoever invents a new filter for every request gets no memory for it."""
    monkeypatch.setattr(view_cache, "TABLES_PER_CHUNK", 3)
    monkeypatch.setattr(view_cache, "WANTED_MAX", 5)
    cache, chunk = ViewCache(1 << 20, 10.0), chunk_of(made(0))
    for number in range(50):
        assert chunk.table(number) is chunk.table(number)
        cache.note(KEY, Division(number, CUT), [0], 0.0)
    assert len(chunk.tables) == 3
    assert len(cache._wanted) <= 5
