"""The kernel in C gives what its twin in Python gives, and both give what other clients read."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_share_proxy.views.kernel import slicing, slicing_in_python
from kafka_share_proxy.views.model.slots import Cut, EvenCut, KeyFilterCut, NullKeys, Packed, RangeCut, StripeCut
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import Record

from tests.views.kernel.batches import CUTS, REFUSALS, sample
from tests.wire.clients import DEFAULT

VECTOR_FILE = Path(__file__).parents[2] / "wire" / "records" / "hash_vectors.json"
VECTORS: dict[str, int] = json.loads(VECTOR_FILE.read_text())["vectors"]
needs_c = pytest.mark.skipif("c" not in slicing.KERNELS, reason="the extension is not built here: no compiler")

EXAMPLES = settings(max_examples=60, deadline=None)
keys = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"", b"7", b"key-3", bytes(16), b"x" * 200]))
values = st.one_of(st.none(), st.binary(max_size=60), st.sampled_from([b"v" * 70, b"v" * 9000]))
headers = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=5))), max_size=2)
gaps = st.sampled_from([0, 0, 0, 1, 63, 64, 100_000])
bare = st.tuples(keys, values, headers, st.integers(0, 1 << 42), gaps)
hashes = st.integers(0, (1 << 32) - 1)
cuts: st.SearchStrategy[Cut] = st.one_of(
    st.builds(EvenCut, st.sampled_from([1, 2, 3, 8, 1000, 1024])),
    st.builds(StripeCut, st.sampled_from([1, 2, 7, 1024])),
    st.builds(RangeCut, st.sets(hashes, max_size=20).map(lambda bounds: tuple(sorted({0, *bounds})))),
    st.builds(
        KeyFilterCut,
        st.lists(st.tuples(hashes, hashes).map(lambda pair: (min(pair), max(pair))), max_size=4).map(tuple),
        st.lists(keys.filter(lambda key: key is not None), max_size=4).map(tuple),
        st.sampled_from(NullKeys),
    ),
)


def batch_of(fields_of_records: Sequence[tuple[Any, ...]], base_offset: int, codec: int) -> bytes:
    """With gaps between the records, as compaction leaves them."""
    placed, offset = [], base_offset
    for key, value, record_headers, timestamp, gap in fields_of_records:
        offset += gap
        placed.append(Record(key, value, record_headers, timestamp, offset))
        offset += 1
    return records.build_batch(base_offset, placed, codec=codec, last_offset=offset)


def same(batch: bytes, cut: Cut, slots: Sequence[int], from_offset: int) -> list[slicing_in_python.Part] | None:
    """Return what both kernels give; None: both refuse it."""
    source = memoryview(batch)
    try:
        body = slicing.decompressed_records(source, 1 << 20)
    except REFUSALS:
        return None
    outcomes: list[list[slicing_in_python.Part] | None] = []
    for name in ("c", "python"):
        try:
            outcomes.append(slicing.KERNELS[name](source, body, cut, slots, from_offset))
        except ValueError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]
    if outcomes[0] is not None and outcomes[1] is not None:
        assert [part[0] is source for part in outcomes[0]] == [part[0] is source for part in outcomes[1]]
    return outcomes[0]


@needs_c
@EXAMPLES
@given(
    st.lists(bare, max_size=90),
    st.sampled_from([0, 5, 1 << 40]),
    st.integers(0, 4),
    cuts,
    st.integers(-1, 200),
    st.data(),
)
def test_kernels_agree_about_any_batch_cut_and_offset(
    fields_of_records: list[Any], base_offset: int, codec: int, cut: Cut, later: int, data: st.DataObject
) -> None:
    """All codecs, cuts, slots in any order, and offsets from before the batch to after it."""
    slots = data.draw(st.lists(st.integers(0, cut.slots - 1), unique=True, max_size=5))
    for expected in (slots, range(cut.slots)):
        assert same(batch_of(fields_of_records, base_offset, codec), cut, expected, base_offset + later) is not None


@needs_c
@EXAMPLES
@given(
    st.integers(0, 50), st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=4), st.integers(0, 3)
)
def test_kernels_agree_about_damaged_batches(seed: int, changes: list[tuple[int, int]], kind: int) -> None:
    """With a right checksum again, so that the records themselves are at fault."""
    batch = bytearray(sample(seed, 20))
    for position, value in changes:
        batch[position % len(batch)] = value
    if kind:
        size = len(batch) - records.LOG_OVERHEAD
        batch[8:12], batch[16:17] = size.to_bytes(4, "big"), b"\2"
        batch[22] &= ~records.COMPRESSION_MASK
    same(records.seal(bytes(batch)), EvenCut(3), range(3), 0)


@needs_c
@pytest.mark.parametrize("cut", CUTS, ids=repr)
@pytest.mark.parametrize("count", [0, 1, 7, 8, 63, 64, 65, 500])
def test_counts_around_the_steps_of_the_kernel(cut: Cut, count: int) -> None:
    """It takes 64 records at a time, and hashes eight."""
    assert same(sample(count, count, gaps=count % 2 == 1), cut, range(cut.slots), 0) is not None


def shapes() -> list[Record]:
    """Records whose numbers take one byte or more, alike for a while and then otherwise."""
    similar, offset = [], 0
    for timestamp in (0, 100, 20_000, 1 << 40):
        for key_size, value_size in ((1, 20), (16, 60), (16, 30), (63, 63), (64, 64), (3, 126), (16, 9000)):
            for repetition in range(3):
                similar.append(Record(b"k" * key_size, b"v" * value_size, (), timestamp + repetition, offset))
                offset += 1
        offset += 100 if timestamp < 20_000 else 10_000
    return similar


@needs_c
def test_kernels_agree_about_runs_of_records_of_one_shape() -> None:
    """The kernel expects of a record the shape of the one before it."""
    similar = shapes()
    for cut in CUTS:
        assert same(records.build_batch(0, similar), cut, range(cut.slots), 0) is not None
        assert same(records.build_batch(0, similar), cut, [0], 50) is not None


@needs_c
@pytest.mark.parametrize("value_size", [20, 40, 70])
def test_kernels_agree_about_one_changed_byte_in_records_of_one_shape(value_size: int) -> None:
    """One byte is another, and the checksum right: both kernels see the same in it, wherever it is."""
    similar = [Record(b"key-%d" % n, b"v" * value_size, (), 70 * n, 60 + n) for n in range(7)]
    similar += [Record(b"rest", b"v" * 200)._replace(offset=100)]
    batch = records.build_batch(0, similar, last_offset=120)
    for position in range(records.HEADER.size, len(batch) - 210):
        for value in (0, 1, 2, 0x7E, 0x80, 0x81, 0xFF):
            changed = bytearray(batch)
            changed[position] = value
            same(records.seal(bytes(changed)), EvenCut(3), range(3), 0)


FIRST = Record(b"key-0000", b"v" * 43)


@cache
def of_one_size(number: int, variant: int) -> Record:
    """Build a record that takes 60 bytes after the first one, in one of several ways."""
    for filler in range(60):
        key, value, headers, timestamp = (
            (b"key-%04d" % number, b"v" * filler, (), number % 60),
            (b"key-%04d" % number, b"v" * filler, (), 100 + number),
            (b"key-%05d" % number, b"v" * filler, (), 0),
            (None, b"v" * filler, (), 0),
            (b"k" * filler, None, (), 0),
            (b"key-%04d" % number, b"v" * filler, (("h", None),), 0),
            (b"key-%04d" % number, b"v" * filler, (("", b""),), 20_000),
        )[variant]
        record = Record(key, value, headers, timestamp, number)
        if len(records.build_batch(0, [FIRST, record])) == len(records.build_batch(0, [FIRST])) + 60:
            return record
    raise AssertionError("no record of that size")


@needs_c
@pytest.mark.parametrize("most", [0, 2, 3])
@pytest.mark.parametrize("variant", range(7))
def test_records_of_one_size_whose_other_lengths_differ(most: int, variant: int) -> None:
    """The kernel compares all lengths of a record with those before it, on every kind of processor."""
    slicing._slicing.pretend(most)
    try:
        for at in (1, 2, 3, 9, 10, 11, 61, 62, 63, 64, 65, 66, 198, 199):
            alike = [FIRST, *(of_one_size(number, variant if number == at else 0) for number in range(1, 200))]
            for cut in (EvenCut(2), StripeCut(3)):
                assert same(records.build_batch(0, alike), cut, [1], 0) is not None
                assert same(records.build_batch(0, alike), cut, [0, 1], 7) is not None
    finally:
        slicing._slicing.pretend(3)


@needs_c
@pytest.mark.parametrize("first", [0, 60, 8185])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 63, 64, 65, 66, 67, 130])
def test_records_of_one_size_up_to_the_last_byte(count: int, first: int) -> None:
    """Values of one size with offset deltas of one, two and three bytes; and every part of the batch again."""
    alike = [Record(b"%08d" % n, bytes(30), (), 0, n) for n in range(first, first + count)]
    source = records.build_batch(0, alike)
    for slot in range(2):
        part = same(source, EvenCut(2), [slot], first + 1)
        assert part is not None
        if part[0][0] is not None:
            assert same(bytes(part[0][0]), EvenCut(2), [slot], 0) is not None


@needs_c
def test_kernels_agree_about_keys_of_every_size() -> None:
    """Equal neighbours are hashed together, with any remainder."""
    for size in range(70):
        keyed = [Record(bytes([n]) * size, b"v") for n in range(20)]
        assert same(records.build_batch(0, keyed), EvenCut(1024), range(1024), 0) is not None


@needs_c
def test_the_kernel_hashes_as_kafka_does() -> None:
    """The shared vectors."""
    for key, expected in VECTORS.items():
        assert slicing._slicing.murmur2(bytes.fromhex(key)) == expected % (1 << 32)


@needs_c
@pytest.mark.parametrize("longest", [600, 8191, 8192, 8193, 12_287, 12_288, 12_289, 16_384, 70_001])
def test_the_checksum_of_the_kernel_is_that_of_the_library(longest: int) -> None:
    """Its checksum runs in several streams, and over long bytes in pieces."""
    data = bytes(n * 7 % 251 for n in range(longest))
    for size in range(longest + 1) if longest < 1000 else [longest]:
        assert slicing._slicing.crc32c(data[:size]) == records.checksum(bytes(21) + data[:size])


def over_zeros(register: int, bits: int) -> int:
    """Advance a register of CRC-32C by this many bits of 0, one by one."""
    for _ in range(bits):
        register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register


@needs_c
def test_checksums_are_laid_together_over_every_length() -> None:
    """The table of factors, held against shifting bit by bit: pieces of up to 8192 bytes, and longer ones."""
    first = slow = 0x9E3779B9
    for size in range(8500):
        assert slicing._slicing.crc32c_combine(first, 0x1234, size) == slow ^ 0x1234, size
        slow = over_zeros(slow, 8)
    assert slicing._slicing.crc32c_combine(first, 0, 40_000) == over_zeros(first, 320_000)


@needs_c
@EXAMPLES
@given(st.binary(max_size=900), st.binary(max_size=900))
def test_checksums_laid_together_are_that_of_the_whole(first: bytes, second: bytes) -> None:
    """Compared with an independent implementation."""
    sums = [records.checksum(bytes(21) + piece) for piece in (first, second, first + second)]
    assert slicing._slicing.crc32c_combine(sums[0], sums[1], len(second)) == sums[2]


@needs_c
@pytest.mark.parametrize("size", [400, 1024, 4000, 9000, 20_000])
def test_kernels_agree_about_long_records(size: int) -> None:
    """They are summed up one by one, in pieces, for the input and for their part; short ones among them too."""
    long_records = [
        Record(b"key-%d" % n, bytes(n % 251 + at % 7 for at in range(size + (n * 37 % 100 - 50) * (n % 3))))
        for n in range(40)
    ]
    long_records[10:10] = [Record(b"short-%d" % n, b"v" * n) for n in range(9)]
    placed = [record._replace(offset=n) for n, record in enumerate(long_records)]
    for codec in (compression.NONE, compression.GZIP):
        batch = records.build_batch(0, placed, codec=codec)
        for cut in CUTS:
            assert same(batch, cut, range(cut.slots), 0) is not None
            assert same(batch, cut, [0], 7) is not None


@needs_c
@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_every_processor_gives_the_same(most: int) -> None:
    """Processors without the instructions used here, with some, with the older ones, and the one that runs the test."""
    sources = [sample(seed, 9 * seed, gaps=seed % 2 == 1) for seed in range(1, 12)]
    sources += [records.build_batch(0, shapes())]
    sources += [records.build_batch(0, [Record(b"%016d" % n, bytes(n * 7), (), 0, n) for n in range(150, 400)])]
    slicing._slicing.pretend(most)
    try:
        for source in sources:
            for size in (1, 9, 300, len(source)):
                assert slicing._slicing.crc32c(source[:size]) == records.checksum(bytes(21) + source[:size])
            assert slicing._slicing.crc32c_combine(7, 5, 9000) == over_zeros(7, 72_000) ^ 5
            for cut in CUTS:
                assert same(source, cut, range(cut.slots), 0) is not None
                assert same(source, cut, [0], 20) is not None
    finally:
        slicing._slicing.pretend(3)


@needs_c
@pytest.mark.parametrize("size", [20, 1024])
def test_a_wrong_checksum_is_found_wherever_the_bit_is(size: int) -> None:
    """Also where nothing of the batch is kept, or all of it, and the records themselves are right."""
    source_records = [Record(b"key-%d" % n, bytes(size), (), 0, n) for n in range(20)]
    batch = bytearray(records.build_batch(0, source_records))
    for position in (17, 30, records.HEADER.size + 16 + size, len(batch) // 2, len(batch) - 2):
        broken = bytearray(batch)
        broken[position] ^= 16
        for cut, slots, later in (
            (EvenCut(2), [0], 0),
            (EvenCut(1), [0], 0),
            (EvenCut(2), [1], 100),
            (EvenCut(8), range(8), 3),
        ):
            assert same(bytes(broken), cut, slots, later) is None


@needs_c
def test_threads_do_not_disturb_each_other() -> None:
    """It works without the interpreter's lock, in one room for notes that the threads take in turn."""
    batch = memoryview(sample(1, 600))
    expected = slicing_in_python.split(batch, None, EvenCut(8), range(8), 0)
    wrong: list[int] = []

    def work(number: int) -> None:
        slices = [slicing.KERNELS["c"](batch, None, EvenCut(8), range(8), 0) for _ in range(50)]
        wrong.extend(number for one in slices if one != expected)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


@needs_c
@pytest.mark.parametrize(
    "change",
    [
        {"rule": 3},
        {"slots": 0},
        {"slots": 1025},
        {"starts": b"\1\0\0\0"},
        {"targets": b""},
        {"targets": b"\2\0\0\0"},
        {"key_index": bytes(8) + b"\1\0\0\0"},
        {"wanted": [2]},
        {"wanted": [-1]},
        {"wanted": [0, 0]},
        {"wanted": [0, 1, 0]},
    ],
    ids=str,
)
def test_the_kernel_refuses_invalid_cuts(change: dict[str, Any]) -> None:
    """A wrong cut is refused like a wrong batch: nothing in it can lead outside."""
    batch, expected = memoryview(sample(1)), change.pop("wanted", [1])
    right = Packed(2, 2, bytes(4), bytes(4))
    slicing._slicing.split(batch, None, right, [1], 0)
    with pytest.raises(ValueError, match=r"."):
        slicing._slicing.split(batch, None, right._replace(**change), expected, 0)


@needs_c
@pytest.mark.parametrize(
    "packed", [None, (), (2, 2), (2, 2, None, b"", 2, b"", b""), ("", 2, b"", b"", 2, b"", b"")], ids=str
)
def test_the_kernel_refuses_arguments_of_other_types(packed: Any) -> None:
    """Arguments of another type are a TypeError."""
    with pytest.raises(TypeError):
        slicing._slicing.split(memoryview(sample(1)), None, packed, [0], 0)


@pytest.mark.parametrize("client", DEFAULT)
@pytest.mark.parametrize(
    "codec", [0, compression.GZIP, compression.LZ4, compression.ZSTD], ids=lambda c: compression.NAMES[c]
)
def test_other_clients_read_the_parts(client: str, codec: int) -> None:
    """Their parsers find a right checksum and exactly the records of the slot, split by the source as they read it."""

    def read(batch: bytes | memoryview) -> list[tuple[Any, ...]]:
        opened = DEFAULT[client].DefaultRecordBatch(bytes(batch))
        assert opened.validate_crc()
        return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in opened]

    cut, batch = EvenCut(4), sample(11, 200, gaps=True, codec=codec)
    everything = read(batch)
    for slot, part in enumerate(slicing.split(memoryview(batch), cut, codec=codec if codec > 2 else 0)):
        assert part.batch is not None
        expected = [one for one in everything if cut.slot_of(one[2], one[0]) == slot]
        assert read(part.batch) == expected
        assert (part.records, part.last_kept) == (len(expected), expected[-1][0])
