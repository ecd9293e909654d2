"""Any bytes against the kernel that finds records: positions within them, or a refusal (tests/fuzz/harness.py)."""

from __future__ import annotations

import random
import struct
import time
from typing import Any

from kafka_share_proxy.wire.records import record_positions, record_runs, records
from kafka_share_proxy.wire.records.record_headers import RecordHeaders
from kafka_share_proxy.wire.records.record_positions import ROW_BYTES
from kafka_share_proxy.wire.records.records import Record

from tests.fuzz.harness import Kernel
from tests.fuzz.sanitized import CHECKOUT
from tests.wire.any_records import damaged, some_batch, with_fields

OFFSETS = (0, 0, 1000, (1 << 63) - 1, -1)
DELTAS = (0, 5, 2000, (1 << 31) - 1, 1 << 31, -1)


def outcome(find: Any, build: Any, area: bytes, numbers: tuple[int, int, int, int, int | None], other: bytes) -> Any:
    """Columns, the records made of them, and what they would be in other bytes; or why there are none."""
    try:
        columns = find(area, *numbers)
        rows = len(columns) // ROW_BYTES
        built_records = build(area, columns, 0, rows, Record, 0, RecordHeaders, ())
    except ValueError as error:
        return str(error)
    try:
        return columns, built_records, build(other, columns, 0, rows, Record, 0, RecordHeaders, ())
    except ValueError as error:
        return columns, built_records, str(error)


def order_keys_of(order_keys: Any, area: bytes, columns: bytes, first: int, last: int) -> Any:
    """Return offsets and hashes of the rows with a key, or why there are none."""
    try:
        return order_keys(area, columns, first, last)
    except ValueError as error:
        return str(error)


def compare_order_keys(extension: Any, dice: random.Random, area: bytes, other: bytes, columns: bytes) -> None:
    """Request the keys of the area, of other bytes and by damaged columns. Raises AssertionError if kernels differ."""
    rows = len(columns) // ROW_BYTES
    some = bytearray(columns)
    for _ in range(dice.randrange(4) if some else 0):
        some[dice.randrange(len(some))] = dice.randrange(256)
    rows_of = (dice.randrange(-1, rows + 2), dice.randrange(-1, rows + 2))
    for data, rows_columns, first, last in (
        *((area, columns, 0, rows), (other, columns, 0, rows)),
        *((area, bytes(some), 0, rows), (area, columns[: dice.randrange(len(columns) + 1)], *rows_of)),
    ):
        mine = order_keys_of(extension.order_keys, data, rows_columns, first, last)
        its = order_keys_of(record_positions._python_order_keys, data, rows_columns, first, last)
        assert mine == its, f"the keys of {data.hex()} by {rows_columns.hex()} {first}-{last} differ"


def outcome_of_run(find_run: Any, data: bytes, start: int, is_checked: bool) -> Any:
    """Columns, how far it went, and whether something is wrong there."""
    columns, behind, wrong = find_run(data, start, len(data), is_checked)
    return columns, behind, wrong is None


def damaged_run(dice: random.Random) -> bytes:
    """Neighbouring batches, some of them with changed bytes, most of those with a right checksum again."""
    batches = []
    for number in range(dice.randrange(5)):
        batch = struct.pack(">q", 500 * number) + some_batch(dice)[8:]
        if dice.random() < 0.4:
            batch = damaged(dice, batch)
            if len(batch) >= records.HEADER.size and dice.random() < 0.8:
                batch = with_fields(batch, [(8, ">i", len(batch) - records.LOG_OVERHEAD)])
        batches.append(batch)
    return b"".join(batches)


def compare(extension: Any, seed: int, seconds: float) -> str:
    """Damaged records through both kernels; raises AssertionError where they differ."""
    dice = random.Random(seed)
    deadline = time.monotonic() + seconds
    turns = good = 0
    while time.monotonic() < deadline:
        batch = some_batch(dice)
        (header,) = records.iter_batches(batch)
        area = batch[records.HEADER.size :]
        area = damaged(dice, area) if dice.random() < 0.9 else area
        count = max(-1, header.records_count + dice.choice((0, 0, 0, 0, 1, -1, 1 << 30)))
        base, last, time_of = header.base_offset, header.last_offset, header.base_timestamp
        if dice.random() < 0.1:
            base = dice.choice(OFFSETS)
            last = min(base + dice.choice(DELTAS), (1 << 63) - 1)
        numbers = (count, base, last, time_of, dice.choice((None, None, 5)))
        other = damaged(dice, area)
        mine = outcome(extension.find, extension.build, area, numbers, other)
        its = outcome(record_positions._python_find, record_positions._python_build, area, numbers, other)
        assert mine == its, f"seed {seed}, turn {turns}: the kernels differ over {area.hex()} with {numbers}"
        if not isinstance(mine, str):
            iterated = extension.records(area, mine[0], 0, len(mine[1]), Record, 0, RecordHeaders, (), None)
            assert list(iterated) == mine[1], f"seed {seed}, turn {turns}: other records are iterated of {area.hex()}"
            compare_order_keys(extension, dice, area, other, mine[0])
        run, is_checked = damaged_run(dice), dice.random() < 0.5
        mine = outcome_of_run(extension.find_run, run, 0, is_checked)
        run_of_python = outcome_of_run(record_runs._python_find_run, run, 0, is_checked)
        assert mine == run_of_python, f"seed {seed}, turn {turns}: the kernels differ over the run {run.hex()}"
        turns, good = turns + 1, good + (not isinstance(its, str))
    return f"{turns} areas and as many runs, {good} of the areas read, the others refused by both"


def sound(number: int) -> bytes:
    """A batch with a record at least."""
    return some_batch(random.Random(number), least=1)


if __name__ == "__main__":
    source = CHECKOUT / "proxy" / "kafka_share_proxy" / "wire" / "records" / "_record_positions.c"
    Kernel("record_positions", source, sound, lambda module: module, compare, record_positions.EXTENSION).run()
