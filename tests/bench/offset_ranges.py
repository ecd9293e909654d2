"""Measure the cost of ranges of done offsets: `python -m tests.bench.offset_ranges`. About 20 s; status 1 where a must
fails.

CPU time of one thread, medians of rounds; memory as the growth of what is resident. Ranges are merged into 10,000
others, as many as a partition may have: a third of them touches nothing, a third one neighbour, a third both.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kafka_share_proxy.offsets.commit_text import RANGES_MAX, parse_commit_text, write_commit_text
from kafka_share_proxy.offsets.ledger import OffsetLedger
from kafka_share_proxy.offsets.partition_commits import after_individual_commit
from kafka_share_proxy.offsets.ranges import OffsetRanges

ROUNDS = 15
MERGES = 1000
MILLION = 1_000_000
WIDTH = 5
"""Offsets from one range to the next: two are done, three are not."""
MERGE_US, MEMORY_MB, LOAD_S = 5.0, 300, 15.0
"""Musts: one range merged into 10,000; a million ranges held; a million ranges loaded one by one."""
MIB = 1 << 20

Span = tuple[int, int]


def stored(count: int, first: int = 1_000_000) -> list[Span]:
    """Return this many ranges that do not touch."""
    return [(first + n * WIDTH, first + n * WIDTH + 2) for n in range(count)]


def places(dice: random.Random) -> list[Span]:
    """Ranges to merge: in a gap, against the range before it, and from that one to the next."""
    spans = []
    for number, (_, end) in enumerate(dice.sample(stored(RANGES_MAX), MERGES)):
        spans.append([(end + 1, end + 2), (end, end + 1), (end, end + WIDTH - 2)][number % 3])
    return spans


def thread_us(work: Callable[[], object]) -> float:
    """CPU time of one call, in microseconds."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e6


def merged(dice: random.Random) -> float:
    """Microseconds to merge one range into 10,000."""
    ranges, spans = OffsetRanges(stored(RANGES_MAX)), places(dice)
    return thread_us(lambda: [ranges.merge(*span) for span in spans]) / MERGES


def committed(dice: random.Random) -> float:
    """Microseconds to decide about and apply a commit of one range."""
    ranges, spans = OffsetRanges(stored(RANGES_MAX)), places(dice)

    def work() -> None:
        for span in spans:
            ranges.apply(after_individual_commit(1000, ranges, None, [span]).change)

    return thread_us(work) / MERGES


def in_slices(_: random.Random) -> float:
    """The same for a commit of 10,000 ranges."""
    ranges = OffsetRanges(stored(RANGES_MAX))
    committed_ranges = OffsetRanges([(start + 3, start + 4) for start, _ in stored(RANGES_MAX)])
    return thread_us(lambda: ranges.apply(after_individual_commit(1000, ranges, None, committed_ranges).change))


def parsed(_: random.Random) -> float:
    """Microseconds to read a text of 10,000 ranges."""
    text = write_commit_text(stored(RANGES_MAX, 10**7))
    return thread_us(lambda: parse_commit_text(text))


def written(_: random.Random) -> float:
    """Microseconds to write it."""
    ranges = OffsetRanges(stored(RANGES_MAX, 10**7))
    return thread_us(lambda: write_commit_text(ranges))


def ledger_us(dice: random.Random) -> float:
    """Microseconds for a record that is delivered and done, of 10,000 at a time in any order."""
    ledger, offsets = OffsetLedger(0), list(range(RANGES_MAX))
    dice.shuffle(offsets)

    def work() -> None:
        for offset in range(RANGES_MAX):
            ledger.delivered(offset)
        for offset in offsets:
            ledger.done(offset)

    return thread_us(work) / RANGES_MAX


def resident() -> float:
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def loaded(sets: int, dice: random.Random) -> tuple[float, float]:
    """Return seconds and MiB for a million ranges, merged one by one in any order, in this many sets."""
    each = MILLION // sets
    order = list(range(each))
    dice.shuffle(order)
    gc.collect()
    before, began = resident(), time.thread_time()
    held = [OffsetRanges() for _ in range(sets)]
    for number in order:
        for ranges in held:
            ranges.merge(number * WIDTH, number * WIDTH + 2)
    took = time.thread_time() - began
    assert sum(map(len, held)) == MILLION
    return took, resident() - before


def main() -> int:
    """Run as a command."""
    dice = random.Random(7)
    medians_us = {}
    for name, work in (
        ("one range merged into 10,000", merged),
        ("a commit of one range decided and applied", committed),
        ("a commit of 10,000 ranges into 10,000", in_slices),
        (f"a text of 10,000 ranges ({len(write_commit_text(stored(RANGES_MAX, 10**7)))} bytes) read", parsed),
        ("that text written", written),
        ("a record delivered and done, 10,000 outstanding", ledger_us),
    ):
        medians_us[name] = statistics.median(work(dice) for _ in range(ROUNDS))
        print(f"{name}: {medians_us[name]:,.1f} us")
    good = medians_us["one range merged into 10,000"] <= MERGE_US
    for sets in (100, 10_000, 100_000):
        took, memory = loaded(sets, dice)
        good = good and took <= LOAD_S and memory <= MEMORY_MB
        print(f"1,000,000 ranges in {sets:,} sets: {took:.1f} s, {memory:.0f} MiB")
    print("every must holds" if good else f"a must does not hold: {MERGE_US} us, {LOAD_S} s, {MEMORY_MB} MiB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
