"""Measure the cost of the share partition engine: `python -m tests.bench.share_engine`.

Prints each figure next to a plain dict operation of the same run, because machines differ and that ratio does not.
Targets: acquire + acknowledge of 500 records at most 20 us (aim 3), 1,000,000 locked records below 300 MB.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from kafka_share_proxy.sharegroups.model.acquiring import ReadRecords
from kafka_share_proxy.sharegroups.model.offset_runs import LockIndex, OffsetRun
from kafka_share_proxy.sharegroups.model.partition import SharePartition, Transition

ROUNDS = 5
RECORDS = 500
LOCKED_RECORDS = 1_000_000
LOCKS_PER_PARTITION = 4000


@dataclass(frozen=True)
class Settings:
    lock_duration_s: float = 30.0
    delivery_count_limit: int = 5
    max_record_locks: int = 200_000
    renew_enabled: bool = True


SETTINGS = Settings()


def log_batch(first: int, last: int) -> SimpleNamespace:
    return SimpleNamespace(base_offset=first, last_offset=last)


def seconds_per(operations: int, work: Callable[[], object]) -> float:
    """Time of one operation, with the collector out of the way as `timeit` has it."""
    gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        work()
        return (time.process_time() - started) / operations
    finally:
        gc.enable()


def dict_operation(operations: int = 200_000) -> float:
    """Set a key and delete one that was set 1000 operations earlier."""

    def work() -> None:
        table: dict[int, float] = {}
        for number in range(operations):
            table[number] = 1.0
            if number >= 1000:
                del table[number - 1000]

    return seconds_per(operations, work)


def window(in_flight: int) -> tuple[SharePartition, int]:
    """A partition whose window already holds `in_flight` records, in log batches of 500."""
    partition = SharePartition(0)
    partition.offsets_max = SETTINGS.max_record_locks  # nothing is stored here
    for first in range(0, in_flight, RECORDS):
        read = ReadRecords(first, [log_batch(first, first + RECORDS - 1)])
        partition.acquire("other", read, RECORDS, RECORDS, False, SETTINGS, 0.0)
    return partition, in_flight


def accept(partition: SharePartition, first: int, last: int, types: list[int]) -> None:
    transition = partition.decide_acknowledge("member", [(first, last, types)], True, SETTINGS, 0.0)
    assert isinstance(transition, Transition), transition
    partition.apply(transition)


def acquire_and_acknowledge(in_flight: int, types: list[int], batches: int = 100) -> float:
    """Acquire one log batch of 500 records and accept it, after `in_flight` held records."""
    partition, offset = window(in_flight)
    reads = [
        ReadRecords(first, [log_batch(first, first + RECORDS - 1)])
        for first in range(offset, offset + batches * RECORDS, RECORDS)
    ]

    def work() -> None:
        for read in reads:
            first = partition.next_fetch_offset()
            acquisition = partition.acquire("member", read, RECORDS, RECORDS, False, SETTINGS, 0.0)
            assert acquisition.acquired == RECORDS
            accept(partition, first, first + RECORDS - 1, types)

    return seconds_per(batches, work)


def acknowledge_singly(batches: int = 20) -> float:
    """Acquire 500 records and accept them one request at a time."""
    partition, _ = window(0)
    reads = [ReadRecords(n * RECORDS, [log_batch(n * RECORDS, (n + 1) * RECORDS - 1)]) for n in range(batches)]

    def work() -> None:
        for read in reads:
            partition.acquire("member", read, RECORDS, RECORDS, False, SETTINGS, 0.0)
            for offset in range(read.fetch_offset, read.fetch_offset + RECORDS):
                accept(partition, offset, offset, [1])

    return seconds_per(batches, work)


def lock_operations(live: int) -> dict[str, float]:
    """Costs of the deadline index alone, with `live` locks in it."""
    index = LockIndex()
    runs = [OffsetRun(None, offset, offset, 1, 1) for offset in range(live)]
    figures = {}

    def add() -> None:
        for number, run in enumerate(runs):
            index.add(run, 30.0, number * 1e-3)

    figures["add"] = seconds_per(live, add)
    some = runs[:: max(1, live // 20_000)]

    def renew() -> None:
        for run in some:
            index.renew(run, 30.0, live * 1e-3)

    figures["renew"] = seconds_per(len(some), renew)
    sampled_runs = runs[1 :: max(1, live // 20_000)]

    def cancel() -> None:
        for run in sampled_runs:
            run.unlock()

    figures["cancel"] = seconds_per(len(sampled_runs), cancel)
    left = len(index)

    def expire() -> None:
        assert len(index.expired(live * 1e-3 + 60.0)[None]) == left

    figures["expire"] = seconds_per(left, expire)
    return figures


def locked_records_memory(records: int = LOCKED_RECORDS) -> int:
    """Resident bytes that `records` records take when each was acquired, and so is locked, by itself."""
    settings = Settings(max_record_locks=LOCKS_PER_PARTITION)
    index = LockIndex()
    before = resident_bytes()
    partitions = []
    for number in range(records // LOCKS_PER_PARTITION):
        partition = SharePartition(10_000_000, locks=index, key=number)
        partitions.append(partition)
        for offset in range(10_000_000, 10_000_000 + LOCKS_PER_PARTITION):
            read = ReadRecords(offset, [log_batch(offset, offset)])
            partition.acquire("member", read, 1, 1, True, settings, offset * 1e-4)
    assert len(index) == records
    return resident_bytes() - before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def medians() -> dict[str, float]:
    cases: dict[str, Callable[[], float]] = {
        "dict: set + delete": dict_operation,
        "acquire + accept 500": lambda: acquire_and_acknowledge(0, [1]),
        "... 500 types, all equal": lambda: acquire_and_acknowledge(0, [1] * RECORDS),
        "... 500 types, every tenth other": lambda: acquire_and_acknowledge(0, ([1] * 9 + [3]) * (RECORDS // 10)),
        "... behind 2,000 held": lambda: acquire_and_acknowledge(2000, [1]),
        "... behind 100,000 held": lambda: acquire_and_acknowledge(100_000, [1]),
        "... one request per record": acknowledge_singly,
    }
    figures = {name: statistics.median(case() for _ in range(ROUNDS)) for name, case in cases.items()}
    for live in (100_000, 1_000_000):
        rounds = [lock_operations(live) for _ in range(3)]
        for name in rounds[0]:
            figures[f"lock {name}, {live:,} live"] = statistics.median(one[name] for one in rounds)
    return figures


def main() -> None:
    if sys.argv[1:] == ["memory"]:
        print(locked_records_memory())
        return
    figures = medians()
    plain = figures["dict: set + delete"]
    for name, seconds in figures.items():
        print(f"{name:32} {seconds * 1e6:9.3f} us  {seconds / plain:9.1f} x dict")
    memory = subprocess.run([sys.executable, "-m", __spec__.name, "memory"], check=True, capture_output=True, text=True)
    print(f"{LOCKED_RECORDS:,} records locked singly: {int(memory.stdout) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
