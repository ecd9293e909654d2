"""Any bytes against the filter kernel: a batch out, or a refusal; never anything else (tests/fuzz/harness.py).

Kernel and twin get damaged batches of every codec; the core alone tries some hundred thousand batches a second.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kafka_share_proxy.views.kernel import slicing, slicing_in_python
from kafka_share_proxy.views.model.slots import Cut, EvenCut
from kafka_share_proxy.wire.records import legacy, records
from kafka_share_proxy.wire.records.records import Record

from tests.fuzz.harness import Kernel
from tests.fuzz.sanitized import CHECKOUT
from tests.views.kernel.batches import CUTS, REFUSALS, sample

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
DECOMPRESSED_MAX = 1 << 18


def damaged(dice: random.Random) -> bytes:
    """A batch with some bytes changed; mostly with a right size and checksum again."""
    if dice.random() < 0.02:
        return dice.randbytes(dice.randrange(200))
    codec = dice.choice((0, 0, 0, 1, 2, 3, 4))
    kind = dice.random()
    if kind < 0.2:
        batch = bytearray((long_records if kind < 0.1 else records_of_one_size)(dice.randrange(1000)))
    else:
        batch = bytearray(sample(dice.randrange(1000), dice.randrange(40), gaps=dice.random() < 0.5, codec=codec))
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        at = dice.randrange(len(batch) if dice.random() < 0.7 else 90) % len(batch)
        kind = dice.randrange(6)
        if kind == 0:
            batch[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            batch[at] = dice.randrange(256)
        elif kind == 2 and at + 4 <= len(batch):
            struct.pack_into(">I", batch, at, dice.choice(EXTREMES))
        elif kind == 3:
            del batch[at : at + dice.randrange(30)]
        elif kind == 4:
            batch[at:at] = dice.randbytes(dice.randrange(30))
        elif kind == 5:
            del batch[at:]
        if not batch:
            return b""
    if len(batch) >= records.HEADER.size and dice.random() < 0.95:
        struct.pack_into(">i", batch, 8, len(batch) - records.LOG_OVERHEAD)
        return records.seal(bytes(batch))
    return bytes(batch)


def outcome(kernel: Any, batch: memoryview, cut: Cut, slots: Sequence[int], from_offset: int) -> Any:
    """Return the outcome; None: it is refused."""
    try:
        body = slicing.decompressed_records(batch, DECOMPRESSED_MAX)
    except REFUSALS:
        body = None
    try:
        return kernel(batch, body, cut, slots, from_offset)
    except ValueError:
        return None


def compare(kernel: Any, seed: int, seconds: float) -> str:
    """Damaged batches through both kernels; raises AssertionError where they differ."""
    dice = random.Random(seed)
    deadline = time.monotonic() + seconds
    turns = good = 0
    while time.monotonic() < deadline:
        batch = memoryview(damaged(dice))
        cut = dice.choice(CUTS)
        slots = dice.sample(range(cut.slots), dice.randrange(min(cut.slots, 9) + 1))
        from_offset = dice.choice((0, 0, 1010, 1 << 62))
        mine = outcome(kernel, batch, cut, slots, from_offset)
        its = outcome(slicing_in_python.split, batch, cut, slots, from_offset)
        assert mine == its, f"seed {seed}, turn {turns}: the kernels differ over {bytes(batch).hex()} with {cut}"
        for part in its or ():
            if part[0] is not None and part[0] is not batch:
                assert slicing_in_python.split(memoryview(part[0]), None, EvenCut(1), [0], 0) == [part]
        with suppress(*REFUSALS):
            legacy.as_batch(batch, DECOMPRESSED_MAX)
        turns, good = turns + 1, good + (its is not None)
    return f"{turns} batches, {good} of them taken apart, the others refused by both"


def kernel_of(module: Any) -> Any:
    """Return the kernel as the proxy calls it."""

    def kernel(batch: Any, body: Any, cut: Cut, slots: Sequence[int], from_offset: int) -> Any:
        return module.split(batch, body, cut.packed, slots, from_offset)

    return kernel


def sound(number: int) -> bytes:
    """With and without gaps, with long records, with records of one size, and what compaction leaves."""
    if number == 0:
        return records.build_batch(0, [], last_offset=5)
    if number % 6 == 4:
        return records_of_one_size(number)
    return long_records(number) if number % 6 == 5 else sample(number, 5 + number, gaps=number % 2 == 1)


def records_of_one_size(seed: int) -> bytes:
    """Records whose lengths are the same but for a few of them."""
    dice = random.Random(seed)
    size = dice.choice((3, 20, 90))
    sizes = [size if dice.random() < 0.95 else dice.randrange(100) for _ in range(dice.randrange(100))]
    alike = [Record(b"%04d" % dice.randrange(10_000), bytes(of), (), 0, number) for number, of in enumerate(sizes)]
    return records.build_batch(0, alike, last_offset=max(0, len(alike) - 1))


def long_records(seed: int) -> bytes:
    """A few records whose checksums are made in several turns, of up to several pieces."""
    dice = random.Random(seed)
    sizes = [dice.choice((200, 1000, 3000, 9000)) + dice.randrange(400) for _ in range(5)]
    batch_records = [Record(b"key-%d" % size, dice.randbytes(size), (), 0, number) for number, size in enumerate(sizes)]
    return records.build_batch(0, batch_records)


if __name__ == "__main__":
    source = CHECKOUT / "proxy" / "kafka_share_proxy" / "views" / "kernel" / "_slicing.c"
    Kernel("slicing", source, sound, kernel_of, compare, slicing.KERNELS.get("c")).run()
