"""Positions of records: the extension, its Python fallback and the declared layout agree."""

from __future__ import annotations

import gc
import random
import sys
from array import array
from collections.abc import Callable, Coroutine
from operator import length_hint
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from kafka_share_proxy.wire.codec.varints import varlong
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import record_positions, records
from kafka_share_proxy.wire.records.key_hash import hash_of_record
from kafka_share_proxy.wire.records.record_headers import RecordHeaders
from kafka_share_proxy.wire.records.record_positions import COLUMNS, ROW_BYTES, RecordPositions
from kafka_share_proxy.wire.records.records import Record

from tests.wire.any_records import as_construct_reads_them, batches_of_records, damaged, some_batch, with_fields

TWIN = (record_positions._python_find, record_positions._python_build, record_positions._python_hashes)
KERNELS: dict[str, Any] = {"python": TWIN}
if record_positions.KERNEL == "c":
    extension = record_positions._record_positions
    KERNELS["c"] = (extension.find, extension.build, extension.hashes)
needs_c = pytest.mark.skipif(record_positions.KERNEL != "c", reason="the extension was not built here")
every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def area_of(batch: bytes) -> bytes:
    return batch[records.HEADER.size :]


def columns(kernel: str, batch: bytes, append_time: int | None = None) -> bytes:
    """Return what it finds in an uncompressed batch."""
    (header,) = records.iter_batches(batch)
    count, first, last = header.records_count, header.base_offset, header.last_offset
    return KERNELS[kernel][0](memoryview(batch)[61:], count, first, last, header.base_timestamp, append_time)


def built(kernel: str, batch: bytes, append_time: int | None = None) -> list[Record]:
    """And the records made of it."""
    positions = columns(kernel, batch, append_time)
    rows, type_ = len(positions) // ROW_BYTES, int(append_time is not None)
    return KERNELS[kernel][1](area_of(batch), positions, 0, rows, Record, type_, RecordHeaders, ())


def one(
    key: bytes = b"\x02k", value: bytes = b"\x02v", headers: bytes = b"\0", *, delta: int = 0, time: int = 0
) -> bytes:
    """A record of such parts, with a length that is right."""
    body = b"\0" + varlong(time) + varlong(delta) + key + value + headers
    return varlong(len(body)) + body


def positions_of(kernel: str, area: bytes, count: int = 1, *, last: int = 109, base_time: int = 0) -> RecordPositions:
    """Find positions in the records of a batch at offset 100."""
    return RecordPositions(KERNELS[kernel][0](area, count, 100, last, base_time, None))


@every_kernel
@settings(deadline=None)
@given(base_and_records=batches_of_records())
def test_records_are_those_of_the_declared_layout(kernel: str, base_and_records: tuple[int, list[Record], int]) -> None:
    """Offset, timestamp, key, value and headers of every record, with any field null, empty or long."""
    base, expected, last = base_and_records
    batch = records.build_batch(base, expected, last_offset=last)
    assert built(kernel, batch) == as_construct_reads_them(batch) == expected


@every_kernel
@settings(deadline=None)
@given(base_and_records=batches_of_records())
def test_columns_have_the_positions_of_each_record(
    kernel: str, base_and_records: tuple[int, list[Record], int]
) -> None:
    base, expected, last = base_and_records
    batch = records.build_batch(base, expected, last_offset=last)
    area, positions = area_of(batch), RecordPositions(columns(kernel, batch))
    assert list(positions.offsets) == [record.offset for record in expected]
    assert list(positions.timestamps) == [record.timestamp for record in expected]
    for starts, sizes, content in (
        (positions.key_starts, positions.key_sizes, [record.key for record in expected]),
        (positions.value_starts, positions.value_sizes, [record.value for record in expected]),
    ):
        assert [None if n < 0 else area[s : s + n] for s, n in zip(starts, sizes, strict=True)] == content
        assert set(sizes) & set(range(-5, -1)) == set()
    assert list(positions.headers_counts) == [len(record.headers) for record in expected]
    header_counts = [area[start - 1] for start in positions.headers_starts]
    assert header_counts == [2 * len(record.headers) for record in expected]


@needs_c
@pytest.mark.parametrize("seed", range(100))
def test_extension_and_python_fallback_take_and_refuse_the_same(seed: int) -> None:
    """Damaged records: the same columns, or the same words about the same record."""
    dice = random.Random(seed)
    batch = some_batch(dice)
    (header,) = records.iter_batches(batch)

    def outcome(find: Callable[..., bytes], area: bytes, count: int) -> Any:
        try:
            return find(area, count, header.base_offset, header.last_offset, header.base_timestamp, None)
        except ValueError as error:
            return str(error)

    for _ in range(30):
        area = damaged(dice, area_of(batch))
        count = max(0, header.records_count + dice.choice((0, 0, 0, 0, 1, -1)))
        outcomes = [outcome(find, area, count) for find, *_ in KERNELS.values()]
        assert outcomes[0] == outcomes[1]


BROKEN = {
    "an area that ends": (b"", "1 records cannot be in 0 bytes"),
    "a length of 0": (b"\0" + bytes(9), "record 0 .*length"),
    "a negative length": (b"\x01" + bytes(9), "record 0 .*length"),
    "a length of all that is left and one": (one()[:1] + one()[1:-1], "record 0 .*length"),
    "an endless length": (b"\xff" * 12, "record 0 .*length"),
    "a timestamp cut off": (varlong(9) + b"\0" + b"\xff" * 8, "record 0 .*timestamp"),
    "a timestamp of 65 bits": (varlong(14) + b"\0" + b"\xff" * 9 + b"\x03" + bytes(9), "record 0 .*timestamp"),
    "a negative offset delta": (one(delta=-1), "record 0 .*offset"),
    "an offset delta after the last": (one(delta=10), "record 0 .*offset"),
    "an offset delta of 64 bits": (one(delta=(1 << 63) - 1), "record 0 .*offset"),
    "a key of length -2": (one(key=b"\x03"), "record 0 .*key"),
    "a key beyond the record": (one(key=b"\x40k"), "record 0 .*key"),
    "a key of 2^62 bytes": (one(key=varlong(1 << 62)), "record 0 .*key"),
    "a value of length -2": (one(value=b"\x03"), "record 0 .*value"),
    "a value beyond the record": (one(value=b"\x7ev"), "record 0 .*value"),
    "a negative number of headers": (one(headers=b"\x01"), "record 0 .*headers"),
    "more headers than bytes": (one(headers=b"\x04\x02a"), "record 0 .*headers"),
    "a header without a name": (one(headers=b"\x02\x01\0"), "record 0 .*headers"),
    "a header value beyond the record": (one(headers=b"\x02\x02a\x10b"), "record 0 .*headers"),
    "a header value of length -2": (one(headers=b"\x02\x02a\x03"), "record 0 .*headers"),
    "bytes after the headers": (one(headers=b"\0\0"), "record 0 .*headers"),
    "bytes after the last record": (one() + b"\0", r"record 1 \(from 0\): bytes"),
}


@every_kernel
@pytest.mark.parametrize("field", BROKEN)
def test_a_wrong_field_is_named(kernel: str, field: str) -> None:
    area, words = BROKEN[field]
    with pytest.raises(ValueError, match=words):
        positions_of(kernel, area)


@every_kernel
def test_no_length_reaches_into_the_next_record(kernel: str) -> None:
    """The bytes are there, but they are another record's."""
    first = one(value=b"\x10v")
    with pytest.raises(ValueError, match=r"record 0 .*value"):
        positions_of(kernel, first + one(b"\x10" + bytes(8), delta=1), 2)


@every_kernel
@pytest.mark.parametrize("count", [2, 3, 11, (1 << 31) - 1])
def test_a_count_of_too_many_is_refused(kernel: str, count: int) -> None:
    """Before memory is taken where they cannot be, else at the first that is not there."""
    area = one(value=b"\x28" + bytes(20))
    with pytest.raises(ValueError, match=r"cannot be in|record 1 .*length"):
        positions_of(kernel, area, count)


@every_kernel
@pytest.mark.parametrize("count", [0, 1])
def test_a_count_of_too_few_is_refused(kernel: str, count: int) -> None:
    with pytest.raises(ValueError, match="bytes follow the last record"):
        positions_of(kernel, one() + one(delta=1), count)


@every_kernel
@pytest.mark.parametrize("numbers", [(-1, 0, 5), (1, -1, 5), (1, 5, 4), (1, 0, 1 << 31), (1 << 31, 0, 5)])
def test_offsets_and_counts_that_no_batch_has(kernel: str, numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no batch has"):
        KERNELS[kernel][0](one(), *numbers, 0, None)


@every_kernel
def test_a_record_without_a_higher_offset_is_left_out(kernel: str) -> None:
    """Java's consumer skips records below its position, which the previous record has moved (CompletedFetch)."""
    area = b"".join(one(b"\x02%d" % number, delta=delta) for number, delta in enumerate((3, 3, 1, 4, 0, 9)))
    positions = positions_of(kernel, area, 6)
    assert list(positions.offsets) == [103, 104, 109]
    assert [area[start : start + 1] for start in positions.key_starts] == [b"0", b"3", b"5"]
    assert list(positions.value_sizes) == [1, 1, 1]


@every_kernel
def test_an_empty_batch_has_no_rows(kernel: str) -> None:
    """Gaps left by compaction."""
    positions = positions_of(kernel, b"", 0)
    assert (len(positions), list(positions.offsets), list(positions.headers_counts)) == (0, [], [])


@every_kernel
def test_log_append_time_applies_to_all_records(kernel: str) -> None:
    batch = some_batch(random.Random(3))
    built_records = built(kernel, batch, 77)
    assert {(record.timestamp, record.timestamp_type) for record in built_records} == {(77, records.LOG_APPEND_TIME)}
    assert [record.key for record in built_records] == [record.key for record in built(kernel, batch)]


@every_kernel
def test_timestamps_wrap_as_those_of_java(kernel: str) -> None:
    """A long there has 64 bits, and a producer may write any."""
    area = one(time=(1 << 63) - 1)
    assert list(positions_of(kernel, area, base_time=5).timestamps) == [-(1 << 63) + 4]
    assert list(positions_of(kernel, one(time=-(1 << 63)), base_time=-1).timestamps) == [(1 << 63) - 1]


@every_kernel
@pytest.mark.parametrize("name", [b"", b"\xff\xfe", b"\0", "naïve".encode(), b"a\xc3"])
def test_headers_have_names_of_any_bytes_and_values_that_are_null(kernel: str, name: bytes) -> None:
    headers = varlong(2) + (varlong(len(name)) + name + varlong(-1)) * 2
    (record,) = KERNELS[kernel][1](
        area := one(headers=headers), KERNELS[kernel][0](area, 1, 0, 0, 0, None), 0, 1, Record, 0, RecordHeaders, ()
    )
    assert record.headers == ((name.decode(errors="replace"), None),) * 2


def test_columns_are_views_of_one_memory() -> None:
    """Python, array and every user of the buffer protocol see numbers without a copy."""
    batch = some_batch(random.Random(5))
    whole = columns(record_positions.KERNEL, batch)
    positions = RecordPositions(whole)
    rows = len(positions)
    assert rows > 5
    views = [positions.column(number) for number in range(len(COLUMNS))]
    assert b"".join(view.tobytes() for view in views) == whole
    assert all(view.obj is whole and view.readonly and view.contiguous for view in views)
    assert [view.format for view in views] == list(COLUMNS)
    assert array("q", positions.offsets.tobytes()) == array("q", positions.offsets)


def test_a_slice_has_the_rows_of_its_range() -> None:
    positions = RecordPositions(columns(record_positions.KERNEL, some_batch(random.Random(5))))
    part = positions[2:5]
    assert (len(part), part.first, part.last) == (3, 2, 5)
    for number in range(len(COLUMNS)):
        assert list(part[1:9].column(number)) == list(positions.column(number))[3:5]
    assert len(positions[5:2]) == 0
    with pytest.raises(ValueError, match="order"):
        positions[::2]


@every_kernel
def test_records_are_built_for_a_range_of_rows(kernel: str) -> None:
    batch = some_batch(random.Random(5))
    every, build, held = built(kernel, batch), KERNELS[kernel][1], columns(kernel, batch)
    for first, last in ((0, 0), (0, 1), (2, 5), (len(every), len(every))):
        assert build(area_of(batch), held, first, last, Record, 0, RecordHeaders, ()) == every[first:last]
    for first, last in ((-1, 1), (2, 1), (0, len(every) + 1)):
        with pytest.raises(ValueError, match="rows"):
            build(area_of(batch), held, first, last, Record, 0, RecordHeaders, ())
    with pytest.raises(ValueError, match="rows"):
        build(area_of(batch), held + b"\0", 0, 1, Record, 0, RecordHeaders, ())


@every_kernel
@pytest.mark.parametrize("column", range(2, 8))
@pytest.mark.parametrize("number", [-(1 << 31), 1 << 20, (1 << 31) - 1])
def test_positions_of_other_bytes_are_refused(kernel: str, column: int, number: int) -> None:
    """Nothing outside is read, whatever the columns contain; a negative size is null."""
    area = one(headers=b"\x02\x02a\x02b")
    held = bytearray(KERNELS[kernel][0](area, 1, 0, 0, 0, None))
    at = 16 + 4 * (column - 2)
    held[at : at + 4] = array("i", [number]).tobytes()
    if number < 0 and column in (3, 5):
        (record,) = KERNELS[kernel][1](area, bytes(held), 0, 1, Record, 0, RecordHeaders, ())
        assert record[0 if column == 3 else 1] is None
        return
    with pytest.raises(ValueError, match="not of these bytes"):
        KERNELS[kernel][1](area, bytes(held), 0, 1, Record, 0, RecordHeaders, ())


@every_kernel
@given(base_and_records=batches_of_records())
@settings(deadline=None)
def test_key_hashes_are_those_of_keys_or_offsets(kernel: str, base_and_records: tuple[int, list[Record], int]) -> None:
    """And records without one where the hash of their offset does."""
    base, expected, last = base_and_records
    batch = records.build_batch(base, expected, last_offset=last)
    held, hashes = columns(kernel, batch), KERNELS[kernel][2]
    expected_keys = [hash_of_record(each.key, each.offset) for each in built(kernel, batch)]
    assert list(memoryview(hashes(area_of(batch), held, 0, len(expected_keys))).cast("I")) == expected_keys
    half = len(expected_keys) // 2
    assert list(memoryview(hashes(area_of(batch), held, half, len(expected_keys))).cast("I")) == expected_keys[half:]
    for first, last in ((-1, 1), (2, 1), (0, len(expected_keys) + 1)):
        with pytest.raises(ValueError, match="rows"):
            hashes(area_of(batch), held, first, last)


@every_kernel
@pytest.mark.parametrize(("column", "number"), [(2, -1), (2, 1 << 20), (3, 1 << 20), (3, (1 << 31) - 1)])
def test_hashing_refuses_positions_of_other_bytes(kernel: str, column: int, number: int) -> None:
    area = one()
    held = bytearray(KERNELS[kernel][0](area, 1, 0, 0, 0, None))
    at = 16 + 4 * (column - 2)
    held[at : at + 4] = array("i", [number]).tobytes()
    with pytest.raises(ValueError, match="not of these bytes"):
        KERNELS[kernel][2](area, bytes(held), 0, 1)


@needs_c
def test_records_are_tuples_and_die_with_their_last_user() -> None:
    """Objects made by the extension equal those of the class: compared, hashed, and returned."""
    area = one(headers=b"\x02\x02a\x02b")
    held = record_positions._record_positions.find(area, 1, 0, 0, 5, None)
    (record,) = record_positions._record_positions.build(area, held, 0, 1, Record, 0, RecordHeaders, ())
    same = Record(b"k", b"v", (("a", b"b"),), 5, 0)
    assert type(record) is Record
    assert (record, hash(record), record._replace(key=None).key) == (same, hash(same), None)
    with pytest.raises(TypeError, match="tuples"):
        record_positions._record_positions.build(area, held, 0, 1, dict, 0, RecordHeaders, ())  # type: ignore[type-var]
    del record
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is Record and each is not same and each == same] == []


def test_the_error_of_a_batch_has_its_position() -> None:
    batch = with_fields(some_batch(random.Random(5)), [(57, ">i", 1)])
    with pytest.raises(RemoteProtocolError, match=r"the record batch at offset 1000: record 1 \(from 0\): bytes"):
        records.decode_records(batch)


class Placed(NamedTuple):
    """A record with something in front of its fields."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp: int
    offset: int
    timestamp_type: int


@every_kernel
def test_records_of_another_type_begin_with_the_origin_fields(kernel: str) -> None:
    batch = records.build_batch(7, [Record(b"a", b"1"), Record(None, None, (("h", b"x"),))])
    held = columns(kernel, batch)
    placed = KERNELS[kernel][1](area_of(batch), held, 0, 2, Placed, 1, RecordHeaders, ("t", 3))
    plain = KERNELS[kernel][1](area_of(batch), held, 0, 2, Record, 1, RecordHeaders, ())
    assert [type(each) for each in placed] == [Placed, Placed]
    assert [each[:2] for each in placed] == [("t", 3), ("t", 3)]
    assert [each[2:] for each in placed] == [tuple(each) for each in plain]


@needs_c
def test_the_collector_need_not_visit_records_without_headers() -> None:
    """A million of them that are kept would otherwise be looked at again and again."""
    batch = records.build_batch(0, [Record(b"k", b"v"), Record(b"k", b"v", (("h", b"x"),))])
    plain, headed = records.decode_records(batch)
    assert (gc.is_tracked(plain), gc.is_tracked(headed)) == (False, True)
    del plain, headed
    gc.collect()


ITERATORS = {"python": record_positions._python_records}
if record_positions.KERNEL == "c":
    ITERATORS["c"] = extension.records
every_iterator = pytest.mark.parametrize("kernel", ITERATORS)


@every_iterator
@pytest.mark.parametrize("seed", range(20))
def test_an_iterator_returns_the_records_that_are_built_together(kernel: str, seed: int) -> None:
    batch = some_batch(random.Random(seed), least=3)
    held, area = columns(kernel, batch), memoryview(batch)[61:]
    arguments = (Placed, 1, RecordHeaders, ("t", 3))
    rows = len(held) // ROW_BYTES
    for first, last in ((0, rows), (1, rows), (1, 2), (2, 2)):
        iterator = ITERATORS[kernel](area, held, first, last, *arguments, None)
        assert (iter(iterator) is iterator, length_hint(iterator)) == (True, last - first)
        assert list(iterator) == KERNELS[kernel][1](area, held, first, last, *arguments)
        assert (length_hint(iterator), next(iterator, None)) == (0, None)
    for first, last in ((-1, 1), (2, 1), (0, rows + 1)):
        with pytest.raises(ValueError, match="rows"):
            ITERATORS[kernel](area, held, first, last, *arguments, None)


@every_iterator
@pytest.mark.parametrize("column", range(2, 8))
@pytest.mark.parametrize("number", [1 << 20, (1 << 31) - 1])
def test_an_iterator_refuses_positions_of_other_bytes(kernel: str, column: int, number: int) -> None:
    area = one(headers=b"\x02\x02a\x02b")
    held = bytearray(KERNELS[kernel][0](area, 1, 0, 0, 0, None))
    held[16 + 4 * (column - 2) : 20 + 4 * (column - 2)] = array("i", [number]).tobytes()
    with pytest.raises(ValueError, match="not of these bytes"):
        list(ITERATORS[kernel](area, bytes(held), 0, 1, Record, 0, RecordHeaders, (), None))


@every_iterator
def test_iterators_continue_with_one_another(kernel: str) -> None:
    """The one that is continued with is empty then, so that no circle can come about."""
    records_of, expected, after = ITERATORS[kernel], [], None
    for seed in range(30, 40):
        batch = some_batch(random.Random(seed))
        held = columns(kernel, batch)
        arguments = (memoryview(batch)[61:], held, 0, len(held) // ROW_BYTES, Record, 0, RecordHeaders, ())
        before, after = after, records_of(*arguments, after)
        expected = KERNELS[kernel][1](*arguments) + expected
        assert list(before or ()) == []
        assert length_hint(after) == len(expected)
    for record in expected[:20]:
        assert next(after) == record
    assert length_hint(after) == len(expected) - 20
    assert list(after) == expected[20:]
    del after, before


@needs_c
def test_an_iterator_keeps_the_bytes_and_frees_all_that_it_holds() -> None:
    """Also where it was not exhausted, and where its arguments are refused."""
    batch = bytearray(records.build_batch(0, [Record(b"k", b"v")] * 3))
    held, origin = columns("c", bytes(batch)), (object(),)
    counts = [sys.getrefcount(each) for each in (held, origin, Placed, RecordHeaders)]
    arguments = (memoryview(batch)[61:], held, 0, 3, Record, 0, RecordHeaders, origin)
    iterator = extension.records(*arguments, extension.records(*arguments, extension.records(*arguments, None)))
    assert [next(iterator)[1:3] for _ in range(4)] == [(b"k", b"v")] * 4
    with pytest.raises(BufferError):
        batch.clear()
    del iterator, arguments
    for arguments in (
        (None, held, 0, 3, Placed),
        (b"", held, 0, 4, Placed),
        (b"", None, 0, 1, Placed),
        (b"", held, 0, 1, int),
    ):
        with pytest.raises((TypeError, ValueError)):
            extension.records(*arguments, 0, RecordHeaders, origin, None)
    with pytest.raises(TypeError, match="9 arguments"):
        extension.records(b"")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no such iterator"):
        extension.records(b"", b"", 0, 0, Record, 0, RecordHeaders, (), iter(()))
    with pytest.raises(TypeError, match="cannot create"):
        type(extension.records(b"", b"", 0, 0, Record, 0, RecordHeaders, (), None))()
    del arguments
    batch.clear()
    assert [sys.getrefcount(each) for each in (held, origin, Placed, RecordHeaders)] == counts


class Moved:
    """A position."""

    moves = 1 << 40


def result_of(awaited: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing."""
    with pytest.raises(StopIteration) as ended:
        awaited.send(None)
    return ended.value.value


@needs_c
@pytest.mark.parametrize("is_traced", [False, True])
def test_records_are_handed_out_while_the_position_has_not_moved(is_traced: bool) -> None:
    """A record may be a tuple; others are those of the coroutine function."""
    position, calls = Moved(), []

    async def slow() -> str:
        calls.append(len(calls))
        return "slow"

    async def read(count: int) -> list[Any]:
        got: list[Any] = []
        async for record in handed_out:
            got.append(record)
            if len(got) == count:
                return got
        raise AssertionError("it ended")

    handed_out = extension.handed_out(slow)
    before, tracer = sys.gettrace(), lambda *_: tracer
    sys.settrace(tracer if is_traced else before)
    try:
        assert result_of(read(2)) == ["slow"] * 2
        handed_out.begin(iter([(1, 2), (3,), "x", None]), position, (1 << 41) // 2)
        assert result_of(read(5)) == [(1, 2), (3,), "x", None, "slow"]
        left = iter("abc")
        handed_out.begin(left, position, position.moves)
        assert result_of(read(1)) == ["a"]
        position.moves += 1
        assert (result_of(read(1)), list(left)) == (["slow"], ["b", "c"])
    finally:
        sys.settrace(before)
    assert calls == [0, 1, 2, 3]


@needs_c
def test_an_error_while_a_record_is_handed_out_is_raised() -> None:
    async def slow() -> str:
        raise KeyError("slow")

    async def read() -> Any:
        return await handed_out.__anext__()

    def broken() -> Any:
        yield 1
        raise OSError("broken")

    handed_out = extension.handed_out(slow)
    with pytest.raises(KeyError, match="slow"):
        read().send(None)
    handed_out.begin(broken(), Moved(), Moved.moves)
    assert result_of(read()) == 1
    with pytest.raises(OSError, match="broken"):
        read().send(None)
    handed_out.begin(iter([1]), object(), 1)
    with pytest.raises(AttributeError, match="moves"):
        read().send(None)
    with pytest.raises(TypeError, match="no iterator"):
        handed_out.begin([1], Moved(), 1)
    handed_out.begin(iter([1]), Moved(), Moved.moves)
    waiting = handed_out.__aiter__().__await__()
    with pytest.raises(StopIteration):
        next(waiting)
    with pytest.raises(RuntimeError, match="once"):
        next(waiting)


@needs_c
def test_a_reference_cycle_through_an_iterator_is_collected() -> None:
    class Holder:
        async def slow(self) -> None: ...

    holder = Holder()
    holder.handed_out = extension.handed_out(holder.slow)  # type: ignore[attr-defined]
    holder.handed_out.begin(iter([holder]), holder, 1)  # type: ignore[attr-defined]
    del holder
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is Holder] == []


@pytest.mark.parametrize("make", {record_positions.room, bytearray})
def test_room_has_its_size_and_may_be_filled(make: Callable[[int], bytearray]) -> None:
    for size in (0, 1, 100, 1 << 20):
        buffer = make(size)
        buffer[:] = b"x" * size
        assert buffer == bytearray(b"x" * size)
    for wrong in (-1, 1 << 80):
        with pytest.raises((ValueError, OverflowError)):
            make(wrong)
