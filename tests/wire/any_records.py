"""Records of all kinds for the tests of those who read them, and damage for their batches."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from kafka_share_proxy.wire.codec import layouts
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record

EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_CONTENT = (
    st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=70) | st.binary(min_size=130, max_size=140)
)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _CONTENT), max_size=3).map(tuple)
_TIMESTAMPS = st.integers(-1, 1 << 62)


@st.composite
def batches_of_records(draw: st.DrawFn) -> tuple[int, list[Record], int]:
    """Base offset, records with gaps between them, last offset of the batch."""
    base = draw(st.integers(0, 1 << 40))
    gaps = draw(st.lists(st.integers(0, 200), max_size=12))
    drawn, offset = [], base
    for gap in gaps:
        offset += gap
        drawn.append(Record(draw(_CONTENT), draw(_CONTENT), draw(_HEADERS), draw(_TIMESTAMPS), offset))
        offset += 1
    return base, drawn, max(base, offset - 1 + draw(st.integers(0, 5)))


def as_construct_reads_them(batch: bytes) -> list[Record]:
    """The records of an uncompressed batch, by the declared layout."""
    parsed = layouts.plain(layouts.RECORD_BATCH.parse(batch))
    (header,) = records.iter_batches(batch)
    return [
        Record(
            one["key"]["data"],
            one["value"]["data"],
            tuple((entry["name"]["data"].decode(errors="replace"), entry["value"]["data"]) for entry in one["headers"]),
            header.max_timestamp if header.is_log_append_time else parsed["base_timestamp"] + one["timestamp_delta"],
            parsed["base_offset"] + one["offset_delta"],
            header.timestamp_type,
        )
        for one in layouts.plain(layouts.records(header.records_count).parse(parsed["records"]))
    ]


def some_batch(dice: random.Random, codec: int = 0, *, least: int = 0, **options: Any) -> bytes:
    """A batch of up to 12 records, with gaps."""
    batch_records, offset = [], 1000
    for number in range(dice.randrange(least, 12)):
        key = dice.choice((None, b"", b"%d" % number, dice.randbytes(dice.randrange(70))))
        value = dice.choice((None, b"", dice.randbytes(dice.randrange(200))))
        headers = [("h", dice.choice((None, b"", b"x" * 80))) for _ in range(dice.choice((0, 0, 0, 1, 3)))]
        batch_records.append(Record(key, value, headers, 1_700_000_000_000 + dice.randrange(-5000, 5000), offset))
        offset += dice.choice((1, 1, 2, 100))
    return records.build_batch(1000, batch_records, codec=codec, last_offset=offset, **options)


def damaged(dice: random.Random, area: bytes) -> bytes:
    """Some bytes changed, taken out or put in."""
    bytes_of = bytearray(area)
    for _ in range(dice.choice((1, 1, 2, 5))):
        at = dice.randrange(len(bytes_of) + 1)
        kind = dice.randrange(5)
        if kind == 0 and at < len(bytes_of):
            bytes_of[at] ^= 1 << dice.randrange(8)
        elif kind == 1 and at < len(bytes_of):
            bytes_of[at] = dice.choice(EXTREMES)
        elif kind == 2:
            del bytes_of[at : at + dice.randrange(30)]
        elif kind == 3:
            bytes_of[at:at] = dice.randbytes(dice.randrange(30))
        elif kind == 4:
            bytes_of[at:at] = b"\xff" * dice.randrange(12)
    return bytes(bytes_of)


def with_fields(batch: bytes, fields: Sequence[tuple[int, str, int]]) -> bytes:
    """Other numbers in its header, at (position, format), and a right checksum."""
    changed = bytearray(batch)
    for position, code, value in fields:
        struct.pack_into(code, changed, position, value)
    return records.seal(bytes(changed))
