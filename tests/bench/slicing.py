"""Measure the cost of the filter kernel: `python -m tests.bench.slicing`. About a minute; ends with status 1 where a
must fails.

Ratios in one run, rounds interleaved, medians of CPU time. The limit is a plain copy of the whole batch and a CRC-32C
of it by the crc32c package; for comparison, also by the kernel's own checksum, which is faster. The kernel verifies the
input checksum, walks and hashes, copies, and computes the output checksum. Half kept: R = 2, one slot. "Hot": the same
batch again and again; "fresh": 60 (100 B) or 16 (1 KiB) different ones in turn, the honest figure. "Varied": the same
as "fresh" with values of 40 to 104 bytes, because the kernel reads records of one size faster.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from crc32c import crc32c
from kafka_share_proxy.views.kernel import _slicing, slicing, slicing_in_python
from kafka_share_proxy.views.model.slots import Cut, EvenCut
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.batches import split_complete
from kafka_share_proxy.wire.records.records import Record
from rich.console import Console
from rich.table import Table

COUNT = 1000
ROUNDS = 25
TWIN_ROUNDS = 5
ROUND_S = 0.004
SIZES = {100: 60, 1024: 16}
"""Bytes of a record -> different batches."""
MUSTS = {
    (100, "hot"): 4.0,
    (1024, "hot"): 2.0,
    (1024, "fresh"): 1.2,
}
"""Half kept, as a multiple of the limit: at most."""
TWIN_MUSTS = {
    (100, "hot"): 100.0,
    (100, "fresh"): 50.0,
    (100, "varied"): 50.0,
    (1024, "hot"): 25.0,
    (1024, "fresh"): 25.0,
}
"""The twin, as a multiple of the kernel: at least."""

Work = Callable[[memoryview], object]


def batch(seed: int, size: int, codec: int = compression.NONE, *, vary: int = 0) -> memoryview:
    """Build a thousand records with this many bytes of key and value, up to `vary` fewer or more; keys of 16 bytes,
    10,000 different ones.
    """
    dice = random.Random(seed)
    batch_records, timestamp = [], 1_700_000_000_000
    for number in range(COUNT):
        timestamp += dice.randrange(3)
        key = b"key-%012d" % dice.randrange(10_000)
        value_size = size - 28 + dice.randint(-vary, vary)
        value = dice.randbytes(value_size) if codec == compression.NONE else text(dice, value_size)
        batch_records.append(Record(key, value, (), timestamp, 5000 + number))
    return memoryview(records.build_batch(5000, batch_records, codec=codec))


def text(dice: random.Random, size: int) -> bytes:
    """Looks like JSON, and is compressed to about a fourth."""
    line = b""
    while len(line) < size:
        line += b'{"id":%d,"state":"%s","sum":%d},' % (
            dice.randrange(10**6),
            dice.choice((b"open", b"paid")),
            dice.randrange(999),
        )
    return line[:size]


def copied_by_package(source: memoryview) -> object:
    """The limit, by the package."""
    return crc32c(bytes(source))


def copied_by_kernel(source: memoryview) -> object:
    """The limit, by the kernel's own checksum."""
    return _slicing.crc32c(bytes(source))


def front(cut: Cut, slots: Sequence[int], source: memoryview) -> object:
    """All that a caller pays."""
    return slicing.split(source, cut, slots)


def by_python(cut: Cut, slots: Sequence[int], source: memoryview) -> object:
    """The kernel in Python."""
    return slicing_in_python.split(source, None, cut, slots, 0)


def microseconds(work: Work, batches: Sequence[memoryview], seconds: float = ROUND_S) -> float:
    """CPU time of one call, over the batches in turn: others on the machine do not count."""
    end, calls, start = 0.0, 0, time.thread_time()
    while calls == 0 or end - start < seconds:
        for source in batches:
            work(source)
        calls += len(batches)
        end = time.thread_time()
    return (end - start) / calls * 1e6


def medians(works: dict[str, Work], batches: Sequence[memoryview], rounds: int) -> dict[str, list[float]]:
    """Microseconds by round of each, in random order within a round, after one that does not count."""
    timings: dict[str, list[float]] = {name: [] for name in works}
    for round_number in range(rounds + 1):
        for name in random.sample(list(works), len(works)):
            cost = microseconds(works[name], batches)
            if round_number:
                timings[name].append(cost)
    return timings


def ratio(upper: Sequence[float], lower: Sequence[float]) -> float:
    """Median of the ratios of rounds."""
    return statistics.median(one / other for one, other in zip(upper, lower, strict=False))


def plain(table: Table) -> bool:
    """Uncompressed batches; whether all musts hold."""
    half = partial(front, EvenCut(2), [0])
    works: dict[str, Work] = {
        "package": copied_by_package,
        "own": copied_by_kernel,
        "half": half,
        "eight": partial(front, EvenCut(8), range(8)),
    }
    good = True
    for size, different in SIZES.items():
        batches = [batch(seed, size) for seed in range(different)]
        heats = {"hot": batches[:1], "fresh": batches}
        if (size, "varied") in TWIN_MUSTS:
            heats["varied"] = [batch(seed, size, vary=32) for seed in range(different)]
        for heat, used in heats.items():
            timings = medians(works, used, ROUNDS)
            slow = medians({"twin": partial(by_python, EvenCut(2), [0]), "half": half}, used[:4], TWIN_ROUNDS)
            limit = timings["package"]
            times, gain = ratio(timings["half"], limit), ratio(slow["twin"], timings["half"])
            must, least = MUSTS.get((size, heat)), TWIN_MUSTS[size, heat]
            good = good and (must is None or times <= must) and gain >= least
            cost = statistics.median(timings["half"])
            table.add_row(
                f"{size} B, {heat}",
                f"{statistics.median(limit):.1f}",
                f"{cost:.1f}",
                f"{COUNT / cost:.1f} M/s, {len(batches[0]) / cost / 1000:.1f} GB/s",
                f"{times:.2f}" + (f" (<= {must})" if must else ""),
                f"{ratio(timings['half'], timings['own']):.2f}",
                f"{statistics.median(timings['eight']):.1f}",
                f"{ratio(timings['eight'], limit):.2f}",
                f"{gain:.0f} (>= {least:.0f})",
            )
    return good


def parts(table: Table) -> None:
    """Show where the time of half kept goes at 100 B, as a multiple of the limit.

    No kernel can avoid the checksum of the input. Nor can it avoid copy and checksum of the output. Both are measured
    by the kernel's own checksum over whole batches. The last column is what 1.5 leaves for the walk, hashes and slots.
    """
    for heat in ("hot", "fresh"):
        batches = [batch(seed, 100) for seed in range(SIZES[100] if heat == "fresh" else 1)]
        batch_parts = [memoryview(bytes(slicing.split(source, EvenCut(2), [0])[0].batch or b"")) for source in batches]
        own = _slicing.crc32c
        works: dict[str, Work] = {
            "limit": copied_by_package,
            "in": own,
            "none": partial(front, EvenCut(2), []),
            "half": partial(front, EvenCut(2), [0]),
        }
        timings = medians(works, batches, ROUNDS)
        limit = timings["limit"]
        out = ratio(medians({"out": copied_by_kernel}, batch_parts, ROUNDS)["out"], limit)
        of = {name: ratio(times, limit) for name, times in timings.items()}
        least = of["in"] + out
        figures = (of["in"], out, of["none"] - of["in"], of["half"] - of["none"] - out, of["half"], least, 1.5 - least)
        table.add_row(f"100 B, {heat}", *(f"{figure:.2f}" for figure in figures))


def packed(table: Table) -> None:
    """Compressed batches, all eight slots, and what was predicted for them."""
    for codec in range(5):
        for size in SIZES:
            sources = [batch(seed, size, codec) for seed in range(4)]
            (header,) = split_complete(sources[0])[0]
            row: list[Any] = [f"{compression.NAMES[codec]}, {size} B", f"{header.size / COUNT:.0f}"]
            for response in (compression.NONE, compression.LZ4, compression.ZSTD):
                work = partial(slicing.split, cut=EvenCut(8), codec=response)
                row.append(f"{statistics.median(microseconds(work, sources) for _ in range(5)):.0f}")
            table.add_row(*row, f"{slicing.cost_estimate(header) * 1e6:.0f}")


def main() -> int:
    """Run as a command."""
    if slicing.KERNEL != "c":
        print("error: the extension is not built here", file=sys.stderr)
        return 2
    console = Console(width=150)
    table = Table(
        "1000 records of",
        "limit us",
        "half us",
        "half",
        "half / limit",
        "half / own",
        "R=8 all us",
        "R=8 / limit",
        "twin / half",
    )
    good = plain(table)
    console.print(table)
    shares = Table("half kept, x limit", "checksum in", "checksum and copy out", "walk, hashes, slots", "records apart")
    for column in ("sum", "least", "1.5 leaves"):
        shares.add_column(column)
    parts(shares)
    console.print(shares)
    codecs = Table("R=8, all slots", "bytes each", "plain us", "as lz4 us", "as zstd us", "predicted us")
    packed(codecs)
    console.print(codecs)
    print(f"checksum by {_slicing.CHECKSUM}; every must holds" if good else "a must does not hold")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
