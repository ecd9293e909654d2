"""Records of neighbouring batches, found in one pass: the same as of each batch by itself."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from kafka_share_proxy.wire.codec.varints import varlong
from kafka_share_proxy.wire.records import record_positions, record_runs, records
from kafka_share_proxy.wire.records.record_positions import RecordPositions
from kafka_share_proxy.wire.records.records import Record

from tests.wire.any_records import damaged, some_batch

KERNELS: dict[str, Any] = {"python": record_runs._python_find_run}
if record_positions.EXTENSION is not None:
    KERNELS["c"] = record_positions.EXTENSION.find_run
needs_c = pytest.mark.skipif(record_positions.EXTENSION is None, reason="the extension was not built here")
every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def moved(batch: bytes, base: int) -> bytes:
    """The batch at another offset, which its checksum does not cover."""
    return struct.pack(">q", base) + batch[8:]


def some_run(dice: random.Random, count: int) -> bytes:
    """Neighbours, as one partition has them."""
    return b"".join(moved(some_batch(dice), 1000 * number) for number in range(count))


def built(kernel: str, data: bytes, start: int = 0, *, is_checked: bool = True) -> list[Record]:
    """All records; nothing may be wrong."""
    columns, behind, wrong = KERNELS[kernel](data, start, len(data), is_checked)
    assert (behind, wrong) == (len(data), None)
    return RecordPositions(columns).build(data, Record, 0)


@every_kernel
@pytest.mark.parametrize("seed", range(10))
def test_a_run_has_the_records_of_each_batch(kernel: str, seed: int) -> None:
    """Wherever in the bytes the run begins."""
    run = some_run(random.Random(seed), 8)
    expected = [r for b in records.iter_batches(run) for r in records.decode_records(run[b.position : b.end])]
    assert built(kernel, b"before" + run, 6) == expected
    assert len(expected) > 8


@every_kernel
def test_a_run_without_batches_has_no_records(kernel: str) -> None:
    assert built(kernel, b"") == []
    empty = records.build_batch(5, [], last_offset=9)
    assert built(kernel, empty + moved(empty, 10)) == []


@every_kernel
def test_times_of_the_broker_are_those_of_each_batch(kernel: str) -> None:
    """Each has its own."""
    run = b""
    for offset, time in ((0, 50), (1, 60)):
        batch = bytearray(records.build_batch(offset, [Record(timestamp=time)]))
        batch[22] |= records.TIMESTAMP_TYPE_MASK
        run += records.seal(bytes(batch))
    assert [record.timestamp for record in built(kernel, run)] == [50, 60]


@every_kernel
@pytest.mark.parametrize("index", range(3))
def test_records_before_a_wrong_batch_are_found(kernel: str, index: int) -> None:
    """And the wrong one is named."""
    good = [records.build_batch(5 * n, [Record(b"%d" % n)]) for n in range(3)]
    spoilt = bytearray(good[index])
    spoilt[-1] ^= 1
    data = b"".join([*good[:index], bytes(spoilt), *good[index + 1 :]])
    columns, behind, wrong = KERNELS[kernel](data, 0, len(data), True)
    assert list(RecordPositions(columns).offsets) == [5 * n for n in range(index)]
    assert (behind, wrong) == (
        sum(map(len, good[:index])), f"the checksum of the record batch at offset {5 * index} is wrong"
    )  # fmt: skip
    assert "bytes follow the last record" not in str(KERNELS[kernel](data, 0, len(data), False)[2])


@every_kernel
def test_a_wrong_record_is_named_with_its_batch(kernel: str) -> None:
    front = records.build_batch(0, [Record(b"k")])
    for count, words in ((1, "record 1 (from 0): bytes follow the last record"), (99, "99 records cannot be in ")):
        spoilt = bytearray(records.build_batch(7, [Record(b"k"), Record(b"l")]))
        spoilt[57:61] = struct.pack(">i", count)
        data = front + records.seal(bytes(spoilt))
        columns, behind, wrong = KERNELS[kernel](data, 0, len(data), True)
        assert (len(RecordPositions(columns)), behind) == (1, len(front))
        assert wrong.startswith(f"the record batch at offset 7: {words}")


@every_kernel
@pytest.mark.parametrize("remainder", [b"", b"\0" * 100, records.build_batch(1, [Record()], codec=1)])
def test_a_compressed_or_partial_batch_ends_the_run(kernel: str, remainder: bytes) -> None:
    """Rests, and compressed batches: the caller knows better than to ask."""
    front = records.build_batch(0, [Record(b"k")])
    for data in (front + remainder, front + front[:50]):
        columns, behind, wrong = KERNELS[kernel](data, 0, len(data), True)
        assert (len(RecordPositions(columns)), behind) == (1, len(front))
        assert (wrong is None) == (data == front)


@every_kernel
@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5), (0, 1000)])
def test_ranges_that_are_not_there(kernel: str, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="no such range"):
        KERNELS[kernel](bytes(100), start, end, True)


@every_kernel
def test_offsets_ascend_over_all_batches(kernel: str) -> None:
    """Records below the previous one are omitted, as from one batch."""
    batches = [records.build_batch(base, [Record(b"%d" % base), Record(b"more")]) for base in (5, 6, 0, 9)]
    assert [record.offset for record in built(kernel, b"".join(batches))] == [5, 6, 7, 9, 10]


@needs_c
@pytest.mark.parametrize("seed", range(100))
def test_extension_and_python_fallback_agree_over_damaged_runs(seed: int) -> None:
    """Columns, how far it went, and the words."""
    dice = random.Random(seed)
    for _ in range(20):
        data = damaged(dice, some_run(dice, dice.randrange(1, 5)))
        start = dice.choice((0, 0, 0, dice.randrange(len(data) + 1)))
        is_checked = dice.random() < 0.3
        outcomes = [find(data, start, len(data), is_checked) for find in KERNELS.values()]
        assert outcomes[0][:2] == outcomes[1][:2]
        assert (outcomes[0][2] is None) == (outcomes[1][2] is None)


def test_positions_before_an_error_are_returned_with_it() -> None:
    batch = records.build_batch(3, [Record(b"k", b"v" + varlong(9))])
    positions, behind, wrong = record_runs.find_run(batch + batch[:-1], 0, 2 * len(batch) - 1)
    assert (list(positions.offsets), behind) == ([3], len(batch))
    assert "byte" in str(wrong)
    positions, behind, wrong = record_runs.find_run(batch, 0, len(batch), check_crcs=False)
    assert (list(positions.key_sizes), behind, wrong) == ([1], len(batch), None)
