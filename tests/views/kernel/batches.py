"""Record batches for the tests of the kernel, and their expected parts, by a simple implementation."""

from __future__ import annotations

import random

from kafka_share_proxy.views.model.slots import Cut, EvenCut, KeyFilterCut, NullKeys, RangeCut, StripeCut
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import Record

CUTS: tuple[Cut, ...] = (
    EvenCut(1),
    EvenCut(2),
    EvenCut(8),
    EvenCut(1024),
    StripeCut(3),
    RangeCut((0, 1 << 30, 3 << 30)),
    RangeCut((0, 7, 1 << 31, 3 << 30), (1, 0, 1, 2)),
    KeyFilterCut(((0, 1 << 31),), (b"7", b"key-3"), NullKeys.DROP),
    KeyFilterCut((), (b"7", b""), NullKeys.KEEP),
    KeyFilterCut(((5, (1 << 32) - 1),), (), NullKeys.BY_OFFSET),
)

REFUSALS = (ValueError, RemoteProtocolError, compression.CodecMissing)
"""Errors for batches that cannot be decompressed or converted."""


def sample(seed: int, count: int = 50, base_offset: int = 1000, *, gaps: bool = False, codec: int = 0) -> bytes:
    """A batch of mixed records: null, empty, short and long keys; values of all sizes; some headers."""
    dice = random.Random(seed)
    sampled, offset = [], base_offset
    for number in range(count):
        key = dice.choice([None, b"", b"%d" % number, b"key-%d" % (number % 7), dice.randbytes(dice.randrange(70))])
        value = dice.choice([None, b"", dice.randbytes(dice.randrange(300))])
        headers = [("h", dice.choice([None, b"", b"x" * 80])) for _ in range(dice.choice([0, 0, 0, 1, 3]))]
        sampled.append(Record(key, value, headers, 1_700_000_000_000 + dice.randrange(-5000, 5000), offset))
        offset += dice.choice([1, 1, 2, 100]) if gaps else 1
    last = max(base_offset, offset + (dice.randrange(5) if gaps else -1))
    return records.build_batch(base_offset, sampled, leader_epoch=seed % 5, codec=codec, last_offset=last)


def reading(batch: bytes, cut: Cut, slot: int, from_offset: int = 0) -> list[Record]:
    """The records of a slot, by the decoder that the kernel has nothing in common with."""
    decoded = records.decode_records(batch)
    return [r for r in decoded if r.offset >= from_offset and cut.slot_of(r.key, r.offset) == slot]
