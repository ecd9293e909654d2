"""Measure the cost of reading records: `python -m tests.bench.record_decoding`. A minute; ends with status 1 where a
must fails.

Ratios in one run, rounds interleaved, medians of CPU time over different batches in turn. "positions": the columns of a
batch; "built": columns, and all records made of them; "lazily": the complete path of a consumer, with checksum, every
record built when an iteration requests it; "untouched": the same without looking at a record; "twin": positions in
plain Python; "aiokafka" and "kafka-python": their decoders with their checksum, every record made, of which their
consumers make another object.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kafka_share_proxy.wire.records import record_positions, records
from kafka_share_proxy.wire.records.fetched_records import fetched_records
from kafka_share_proxy.wire.records.record_positions import RecordPositions
from kafka_share_proxy.wire.records.records import Record
from rich.console import Console
from rich.table import Table

from tests.bench.slicing import COUNT, Work, batch, medians, ratio
from tests.wire.clients import MEMORY_RECORDS

ROUNDS = 15
SIZES = {100: 60, 1024: 16}
"""Bytes of a record -> different batches."""
MUSTS = {("positions", 100): 3.0, ("lazily", 100): 1.0}
"""Millions of records a second, at least."""


def numbers(source: memoryview) -> tuple[int, int, int, int, None]:
    """Numbers of the header, in the form that the kernels take."""
    header = records.read_header(source)
    return header.records_count, header.base_offset, header.last_offset, header.base_timestamp, None


def positions(find: Any, source: memoryview) -> bytes:
    """Header and columns."""
    columns: bytes = find(source[records.HEADER.size :], *numbers(source))
    return columns


def built(source: memoryview) -> list[Record]:
    """And all records of them; no checksum."""
    columns = positions(record_positions._find, source)
    return RecordPositions(columns).build(source[records.HEADER.size :], Record, 0)


def lazily(source: memoryview) -> int:
    """Read as a consumer that keeps no record."""
    size = 0
    for fetched_batch in fetched_records(source, 0):
        for record in fetched_batch.records:
            size += record.offset
    return size


def untouched(source: memoryview) -> list[int]:
    """Read as a consumer whose application has not accessed the records."""
    return [fetched_batch.next_offset for fetched_batch in fetched_records(source, 0)]


def by_client(client: str, source: memoryview) -> int:
    """Every record of another client's decoder."""
    size, batches = 0, MEMORY_RECORDS[client](bytes(source))
    while batches.has_next():
        fetched_batch = batches.next_batch()
        assert fetched_batch.validate_crc()
        for record in fetched_batch:
            size += record.offset
    return size


def singles(seed: int) -> memoryview:
    """The same records of 100 bytes, each in a separate batch, as producers that do not linger write them."""
    decoded = records.decode_records(batch(seed, 100))
    return memoryview(b"".join([records.build_batch(record.offset, [record]) for record in decoded]))


def add_row(table: Table, name: str, timings: Mapping[str, Sequence[float]], works: Sequence[str]) -> None:
    """Millions of records a second of each, and what they are of one another."""
    rates = [f"{COUNT / statistics.median(timings[work]):.2f}" if work in timings else "-" for work in works]
    over = [f"{ratio(timings[work], timings['lazily']):.1f}" for work in ("aiokafka", "kafka-python")]
    gain = f"{ratio(timings['twin'], timings['positions']):.0f}" if "twin" in timings else "-"
    table.add_row(name, *rates, *over, gain)


def missed(size: int, timings: Mapping[str, Sequence[float]]) -> list[str]:
    """The musts that do not hold."""
    rates = {work: COUNT / statistics.median(costs) for work, costs in timings.items()}
    return [
        f"{work} of {size} B: {rates[work]:.2f} M/s, at least {least}"
        for (work, of), least in MUSTS.items()
        if of == size and rates[work] < least
    ]


def main() -> int:
    """Run as a command."""
    if record_positions.KERNEL != "c":
        print("error: the extension is not built here", file=sys.stderr)
        return 2
    works: dict[str, Work] = {
        "positions": partial(positions, record_positions._find),
        "built": built,
        "lazily": lazily,
        "untouched": untouched,
        "twin": partial(positions, record_positions._python_find),
        "aiokafka": partial(by_client, "aiokafka"),
        "kafka-python": partial(by_client, "kafka-python"),
    }
    table = Table("million records/s", *works, "lazily / aiokafka", "lazily / kafka-python", "positions / twin")
    wrong = []
    for size, different in SIZES.items():
        timings = medians(works, [batch(seed, size) for seed in range(different)], ROUNDS)
        add_row(table, f"{size} B, {COUNT} a batch", timings, list(works))
        wrong += missed(size, timings)
    whole = {name: work for name, work in works.items() if name in ("lazily", "untouched", "aiokafka", "kafka-python")}
    add_row(table, "100 B, 1 a batch", medians(whole, [singles(seed) for seed in range(4)], ROUNDS), list(works))
    Console(width=150).print(table)
    print("\n".join(wrong) if wrong else "every must holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
