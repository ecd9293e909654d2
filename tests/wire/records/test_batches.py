"""The table of a response's batches: what the extension makes of bytes is what its twin makes of them."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import batches, compression, records
from kafka_share_proxy.wire.records.batches import ABORTED, KEPT, MARKER, Batch, BatchTable, split_complete
from kafka_share_proxy.wire.records.records import Record

from tests.support.repeated import repeated

needs_c = pytest.mark.skipif(batches.KERNEL != "c", reason="the extension was not built here")


class Aborted(NamedTuple):
    """Aborted transaction as a response lists it."""

    producer_id: int
    first_offset: int


def data(first: int, last: int, producer_id: int, *, transactional: bool = True) -> bytes:
    """A batch of records."""
    batch_records = [Record(b"k", b"v") for _ in range(last - first + 1)]
    return records.build_batch(first, batch_records, producer_id=producer_id, is_transactional=transactional)


def marker(offset: int, producer_id: int, *, emptied: bool = False) -> bytes:
    """The end of a transaction."""
    batch_records = [] if emptied else [Record(struct.pack(">hh", 0, 0), bytes(6))]
    return records.build_batch(
        offset, batch_records, producer_id=producer_id, is_transactional=True, is_control=True, last_offset=offset
    )


def old(offset: int, magic: int, codec: int) -> bytes:
    """Build one message of magic 0 or 1, of which only the header is read."""
    body = bytes((magic, codec)) + (struct.pack(">q", 77) if magic else b"") + struct.pack(">ii", -1, 5) + b"hello"
    return struct.pack(">qiI", offset, len(body) + 4, 0) + body


def any_log(seed: int, count: int) -> bytes:
    """Batches of all kinds, ascending."""
    chance, log, offset = random.Random(seed), [], 0
    for _ in range(count):
        offset += chance.choice((0, 0, 0, 3))
        size = chance.choice((1, 1, 2, 5))
        kind = chance.randrange(6)
        if kind == 0:
            log.append(old(offset + size - 1, chance.randrange(2), chance.randrange(3)))
        elif kind == 1:
            log.append(marker(offset, chance.randrange(4), emptied=chance.random() < 0.2))
            size = 1
        else:
            transactional = chance.random() < 0.7
            log.append(data(offset, offset + size - 1, chance.randrange(-1, 4), transactional=transactional))
        offset += size
    return b"".join(log)


def table(log: Sequence[bytes]) -> BatchTable:
    return split_complete(b"".join(log))[0]


def ranges(log: Sequence[bytes], aborted: Sequence[Aborted] | None) -> list[tuple[int, int]]:
    return table(log).aborted_ranges(aborted)


@pytest.mark.parametrize("seed", range(20))
def test_rows_equal_the_headers(seed: int) -> None:
    """Field by field, for all kinds."""
    log = any_log(seed, 30)
    batches_read, size = split_complete(memoryview(log))
    assert size == len(log)
    assert len(batches_read) == 30
    for batch, header in zip(batches_read, records.iter_batches(log), strict=True):
        assert batch._asdict() == {name: getattr(header, name) for name in Batch._fields}
        assert (batch.end, batch.is_control, batch.is_transactional, batch.compression) == (
            header.end, header.is_control, header.is_transactional, header.compression,
        )  # fmt: skip
    positions = [batch.position for batch in batches_read]
    assert [batches_read.position(index) for index in range(30)] == positions
    assert [batches_read[7:].position(index) for index in range(23)] == positions[7:]


@needs_c
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("fetch_offset", [-1, 0])
def test_extension_and_python_fallback_make_the_same_table(seed: int, fetch_offset: int) -> None:
    """Rows, what becomes of them, aborted ranges, and the number of records."""
    log = any_log(seed, 60)
    rows, size = batches._batches.walk(log, fetch_offset)
    assert (rows, size) == batches._python_walk(log, fetch_offset)
    chance = random.Random(seed)
    listed = sorted((chance.randrange(200), chance.randrange(4)) for _ in range(chance.randrange(20)))
    packed = b"".join(struct.pack("<qq", *each) for each in listed)
    fates = batches._batches.fates(rows, packed)
    assert fates == batches._python_fates(rows, packed)
    assert batches._batches.ranges(rows, fates) == batches._python_ranges(rows, fates)
    assert batches._batches.count(rows) == batches._python_count(rows)


@needs_c
@repeated("seed", range(200))
def test_kernels_refuse_the_same_damaged_bytes(seed: int) -> None:
    """Either both refuse them, or both read the same."""
    chance, log = random.Random(seed), bytearray(any_log(seed, 5))
    for _ in range(chance.randrange(1, 4)):
        log[chance.randrange(len(log))] = chance.choice((0, 0xFF, 0x7F, 0x80, 1, 2))

    def outcome(walk: Any) -> Any:
        try:
            return walk(bytes(log), -1)
        except (ValueError, RemoteProtocolError):
            return None

    assert outcome(batches._batches.walk) == outcome(batches._python_walk)


def test_a_cut_off_batch_ends_the_table() -> None:
    """Brokers cut a response at a number of bytes: wherever that is, the whole batches before it are found."""
    first, second = data(0, 2, 1), data(3, 5, 1)
    for cut in range(len(first + second)):
        batches_read, size = split_complete((first + second)[:cut])
        assert (len(batches_read), size) == ((1, len(first)) if cut >= len(first) else (0, 0))


def test_a_slice_is_a_table_of_the_same_batches() -> None:
    """Positions stay those of the whole buffer."""
    whole = table([data(n, n, 1) for n in range(10)])
    part = whole[3:7]
    assert [batch.base_offset for batch in part] == [3, 4, 5, 6]
    assert (part[0], part[-1], len(part)) == (whole[3], whole[6], 4)
    assert list(part[1:9]) == list(whole[4:7])
    assert BatchTable(part.rows)[0] == whole[3]
    assert (
        list(part.magics_and_attributes)
        == [(batch.magic, batch.attributes & 0xFF) for batch in part]
        == [(2, 0x10)] * 4
    )
    assert (whole.records_count, part.records_count, len(whole[5:2])) == (10, 4, 0)
    for index in (4, -5):
        with pytest.raises(IndexError):
            part[index]
    with pytest.raises(ValueError, match="order"):
        whole[::2]
    with pytest.raises(RemoteProtocolError):
        BatchTable(bytes(51))


@pytest.mark.parametrize("is_far", [True, False])
def test_old_wrappers_are_no_holes(is_far: bool) -> None:
    """A compressed wrapper has only its last offset; its earlier records must not be skipped."""
    log = data(0, 2, -1) + old(9, 1, compression.GZIP) + old(10, 1, compression.NONE)
    batches_read = split_complete(log)[0].widened(0) if is_far else split_complete(log, 0)[0]
    assert [(batch.base_offset, batch.last_offset) for batch in batches_read] == [(0, 2), (3, 9), (10, 10)]
    assert [batch.base_offset for batch in split_complete(log)[0]] == [0, 9, 10]


def test_without_aborted_transactions_only_markers_are_dropped() -> None:
    log = [data(0, 9, 1), marker(10, 1)]
    assert table(log).fates(None) == bytes((KEPT, MARKER))
    assert ranges(log, None) == ranges(log, []) == []


def test_records_up_to_the_abort_marker_are_aborted() -> None:
    log = [data(0, 4, 7), marker(5, 7), data(6, 9, 7), marker(10, 7)]
    assert table(log).fates([Aborted(7, 0)]) == bytes((ABORTED, MARKER, KEPT, MARKER))
    assert ranges(log, [Aborted(7, 0)]) == [(0, 4)]


def test_other_producers_and_plain_records_are_kept() -> None:
    log = [data(0, 1, 7), data(2, 3, 8), data(4, 5, -1), data(6, 6, 7, transactional=False), data(7, 8, 7)]
    log += [marker(9, 7), marker(10, 8)]
    assert ranges(log, [Aborted(7, 0)]) == [(0, 1), (7, 8)]


def test_a_transaction_counts_from_its_own_first_offset() -> None:
    """The committed transaction of the same producer in front of it is delivered."""
    log = [data(0, 4, 7), marker(5, 7), data(6, 9, 7), marker(10, 7)]
    assert ranges(log, [Aborted(7, 6)]) == [(6, 9)]


def test_a_transaction_that_began_before_the_read_is_known_by_its_list() -> None:
    assert ranges([data(50, 59, 7), marker(60, 7), data(61, 65, 7)], [Aborted(7, 10)]) == [(50, 59)]


@pytest.mark.parametrize("order", [[Aborted(7, 0), Aborted(8, 10)], [Aborted(8, 10), Aborted(7, 0)]])
def test_neighbours_are_one_range_and_the_order_of_the_list_does_not_matter(order: list[Aborted]) -> None:
    log = [data(0, 4, 7), data(5, 9, 7), data(10, 14, 8), marker(15, 7), marker(16, 8)]
    assert ranges(log, order) == [(0, 14)]


def test_a_producer_may_abort_twice() -> None:
    log = [data(0, 4, 7), marker(5, 7), data(6, 9, 7), marker(10, 7), data(11, 12, 7), marker(13, 7)]
    assert ranges(log, [Aborted(7, 0), Aborted(7, 11)]) == [(0, 4), (11, 12)]


def test_an_emptied_marker_ends_nothing() -> None:
    """Compaction leaves a control batch without its record; Kafka's consumer continues skipping, too."""
    log = [data(0, 0, 1), marker(1, 1, emptied=True), data(2, 2, 1)]
    assert ranges(log, [Aborted(1, 0)]) == [(0, 0), (2, 2)]


TABLES = [pytest.param(batches._PythonRows, id="python")]
if batches.KERNEL == "c":
    TABLES.append(pytest.param(batches._batches.Rows, id="c"))


@pytest.mark.parametrize("table_class", TABLES)
@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_searched_like_a_list_of_its_batches(table_class: type[Any], seed: int) -> None:
    """Any rows, slices of them, and offsets beyond 64 bits."""
    chance = random.Random(seed)
    whole, _ = split_complete(any_log(seed, chance.randrange(40)))
    begin, end = sorted(chance.choices(range(len(whole) + 1), k=2))
    rows, listed = table_class(whole.rows)[begin:end], list(whole)[begin:end]
    offsets = [chance.randrange(-1, 120) for _ in range(30)] + [1 << 63, (1 << 63) - 1, -(1 << 63), -(1 << 63) - 1]
    for offset in offsets:
        low = chance.randrange(len(rows) + 1)
        assert rows.first_from(offset, low) == batches.first_from(listed, offset, low)
        assert rows.first_from(offset) == batches.first_from(listed, offset)
        assert rows.first_to(offset) == batches.first_to(listed, offset)
    assert batches.first_from(whole, 50, 0) == batches.first_from(list(whole), 50, 0)
    assert batches.first_to(whole, 50) == batches.first_to(list(whole), 50)


@pytest.mark.parametrize("table_class", TABLES)
@pytest.mark.parametrize("seed", range(20))
def test_a_table_has_the_items_slices_and_positions_of_a_list(table_class: type[Any], seed: int) -> None:
    chance = random.Random(seed)
    whole, _ = split_complete(any_log(seed, chance.randrange(1, 40)))
    rows, listed = table_class(whole.rows), list(whole)
    for _ in range(3):
        begin, end = (chance.choice((None, chance.randrange(-45, 45))) for _ in range(2))
        rows, listed = rows[begin:end], listed[begin:end]
        assert len(rows) == len(listed)
        assert type(rows) is table_class
        assert rows.rows == b"".join(batches.ROW.pack(*batch) for batch in listed)
        for index in range(-len(listed), len(listed)):
            assert rows[index] == listed[index]
            assert type(rows[index]) is Batch
        ends = [batch.position for batch in listed] + [batch.position + batch.size for batch in listed[-1:]]
        assert [rows.position(index) for index in range(len(ends))] == ends
        for index in (-len(listed) - 1, len(listed), 1 << 70):
            with pytest.raises(IndexError):
                rows[index]
        for index in (-1, len(listed) + 1):
            with pytest.raises(IndexError):
                rows.position(index)
    with pytest.raises(ValueError, match="no other order"):
        rows[::2]
    with pytest.raises(TypeError):
        rows["0"]


@pytest.mark.parametrize("table_class", TABLES)
@pytest.mark.parametrize("low", [-1, 4, 1 << 40])
def test_a_search_outside_the_table_is_refused(table_class: type[Any], low: int) -> None:
    with pytest.raises(ValueError, match="outside the table"):
        table_class(bytes(3 * batches.ROW.size)).first_from(0, low)


@needs_c
@pytest.mark.parametrize("bad_arguments", [(), (1,), ("rows",), (bytearray(52),), (b"", 1), (None,)])
def test_the_extension_makes_a_table_only_of_bytes(bad_arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        batches._batches.Rows(*bad_arguments)


@needs_c
def test_a_table_keeps_its_rows_only_as_long_as_it_lives() -> None:
    rows = bytes(52 * 3)
    before = sys.getrefcount(rows)
    table_of_rows = BatchTable(rows)
    slices = [table_of_rows[index:] for index in range(3)]
    assert sys.getrefcount(rows) == before + 4
    del table_of_rows, slices
    assert sys.getrefcount(rows) == before


def test_a_table_is_a_sequence() -> None:
    whole, _ = split_complete(any_log(5, 9))
    listed = list(whole)
    assert isinstance(whole, Sequence)
    assert listed[4] in whole
    assert whole.index(listed[4]) == 4
    assert list(reversed(whole)) == listed[::-1]
