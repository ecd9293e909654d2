"""The kernel in plain Python: the rules of keeping and rebuilding."""

from __future__ import annotations

import struct
from dataclasses import asdict
from itertools import pairwise

import pytest
from kafka_share_proxy.views.kernel import slicing_in_python
from kafka_share_proxy.views.model.slots import Cut, EvenCut
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record

from tests.views.kernel.batches import CUTS, reading, sample

DELETE_HORIZON_MASK = 0x40

HEADER_FIELDS = (
    "base_offset",
    "last_offset",
    "leader_epoch",
    "attributes",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


def split(
    batch: bytes, cut: Cut, slots: list[int] | range | None = None, from_offset: int = 0
) -> list[slicing_in_python.Part]:
    """Split an uncompressed batch; all slots."""
    return slicing_in_python.split(
        memoryview(batch), None, cut, range(cut.slots) if slots is None else slots, from_offset
    )


@pytest.mark.parametrize("cut", CUTS, ids=repr)
@pytest.mark.parametrize("gaps", [False, True])
def test_every_slot_has_its_records_and_no_others(cut: Cut, gaps: bool) -> None:
    """As the decoder reads them: same keys, values, headers, timestamps and offsets, in the same order."""
    batch = sample(5, 120, gaps=gaps)
    for slot, (part, last_kept, count) in enumerate(split(batch, cut)):
        expected = reading(batch, cut, slot)
        assert count == len(expected)
        assert last_kept == (expected[-1].offset if expected else -1)
        assert (part is None) == (not expected)
        if part is not None:
            assert records.decode_records(part) == expected


def test_records_are_kept_byte_for_byte_and_the_header_but_for_its_size() -> None:
    """The parts of all slots hold the bytes of the source, no more and no fewer."""
    batch = sample(3, 80, gaps=True)
    (source,) = records.iter_batches(batch)
    parts = [part for part, _, _ in split(batch, EvenCut(4)) if part is not None]
    assert sum(len(part) - records.HEADER.size for part in parts) == len(batch) - records.HEADER.size
    for part in parts:
        (header,) = records.iter_batches(part)
        assert {name: asdict(header)[name] for name in HEADER_FIELDS} == {
            name: asdict(source)[name] for name in HEADER_FIELDS
        }
        assert records.has_valid_checksum(part)


def test_an_untouched_batch_is_the_source_itself() -> None:
    """No copy where every record is kept; one where an offset cuts it."""
    batch = memoryview(sample(3))
    ((whole, last_kept, count),) = slicing_in_python.split(batch, None, EvenCut(1), [0], 1000)
    assert whole is batch
    assert (last_kept, count) == (1049, 50)
    ((rest, _, count),) = slicing_in_python.split(batch, None, EvenCut(1), [0], 1001)
    assert isinstance(rest, bytes)
    assert count == 49


@pytest.mark.parametrize("from_offset", [0, 1000, 1017, 1049, 1050, 1 << 60])
def test_records_below_the_fetch_offset_are_left_out(from_offset: int) -> None:
    """Brokers send whole batches; consumers of a view get no earlier records."""
    batch = sample(4)
    for slot, (part, _, _) in enumerate(split(batch, EvenCut(3), from_offset=from_offset)):
        decoded = [] if part is None else records.decode_records(part)
        assert decoded == reading(batch, EvenCut(3), slot, from_offset)


def test_parts_are_returned_in_the_requested_order() -> None:
    """And only those."""
    batch = sample(6)
    every = split(batch, EvenCut(4))
    assert split(batch, EvenCut(4), [3, 1]) == [every[3], every[1]]
    assert split(batch, EvenCut(4), []) == []


def test_an_emptied_batch_has_nothing_for_any_slot() -> None:
    """Compaction leaves a header without records."""
    empty = records.build_batch(10, [], last_offset=19)
    assert split(empty, EvenCut(2)) == [(None, -1, 0)] * 2


def test_the_delete_horizon_stays() -> None:
    """If attribute bit 6 is set, the base timestamp is one: it is not recomputed."""
    batch = bytearray(sample(7))
    batch[22] |= DELETE_HORIZON_MASK
    for part, _, _ in split(records.seal(bytes(batch)), EvenCut(2)):
        assert part is not None
        (header,) = records.iter_batches(part)
        assert header.attributes & DELETE_HORIZON_MASK
        assert part[27:43] == batch[27:43]


def broken(change: tuple[int, str, int]) -> bytes:
    """A batch with one field of its header set, and a right checksum."""
    position, layout, value = change
    batch = bytearray(sample(8))
    struct.pack_into(layout, batch, position, value)
    return records.seal(bytes(batch))


@pytest.mark.parametrize(
    "change",
    [
        (0, ">q", -1),
        (0, ">q", (1 << 63) - 1),
        (8, ">i", 48),
        (8, ">i", 1 << 30),
        (8, ">i", -1),
        (16, ">b", 3),
        (23, ">i", -1),
        (23, ">i", 10),
        (57, ">i", -1),
        (57, ">i", 49),
        (57, ">i", 51),
        (57, ">i", (1 << 31) - 1),
    ],
    ids=str,
)
def test_a_wrong_header_is_refused(change: tuple[int, str, int]) -> None:
    """Its sizes, counts and offsets are compared with the content."""
    with pytest.raises(ValueError, match=r"record|bytes|batch"):
        split(broken(change), EvenCut(2))


RECORD = records.build_batch(0, [Record(b"k", b"v", [("h", b"x")])])[61:]


@pytest.mark.parametrize(
    "body",
    [
        b"\0" + RECORD[1:],
        b"\x01" + RECORD[1:],
        bytes([RECORD[0] + 2]) + RECORD[1:],
        bytes([RECORD[0] - 2]) + RECORD[1:],
        b"\xff" * 9 + b"\x01" + RECORD[1:],
        b"\x80" * 10 + RECORD[1:],
        RECORD[:3] + b"\x01" + RECORD[4:],
        RECORD[:3] + b"\x02" + RECORD[4:],
        RECORD[:4] + b"\x03" + RECORD[5:],
        RECORD[:4] + b"\x20" + RECORD[5:],
        RECORD[:6] + b"\x05" + RECORD[7:],
        RECORD[:8] + b"\x01" + RECORD[9:],
        RECORD[:8] + b"\x04" + RECORD[9:],
        RECORD[:9] + b"\x01" + RECORD[10:],
        RECORD[:-1],
        RECORD + b"\0",
    ],
    ids=lambda body: body.hex(),
)
def test_a_wrong_record_is_refused(body: bytes) -> None:
    """No length leads out of its record, and nothing is left over."""
    source = records.build_batch(0, [Record(b"k", b"v", [("h", b"x")])])
    batch = slicing_in_python.rebuilt(source, body, 1)
    with pytest.raises(ValueError, match=r"."):
        split(batch, EvenCut(2))


def test_wrong_checksums_and_stumps_are_refused() -> None:
    """A batch that was damaged on its way is never signed anew."""
    batch = sample(9)
    for position in range(17, len(batch), 97):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        with pytest.raises(ValueError, match="checksum"):
            split(bytes(damaged), EvenCut(2))
    for size in (0, 11, 12, 60, 61, len(batch) - 1):
        with pytest.raises(ValueError, match="batch"):
            split(batch[:size], EvenCut(2))


def test_parts_keep_the_order_of_the_source() -> None:
    """Per key and in all: offsets ascend."""
    for part, _, _ in split(sample(10, 200, gaps=True), EvenCut(4)):
        assert part is not None
        offsets = [record.offset for record in records.decode_records(part)]
        assert all(one < other for one, other in pairwise(offsets))
