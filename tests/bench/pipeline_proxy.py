"""G1 and G7: records made into columns by one process, and what the proxy pays when it looks at them first."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator

from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.source.columns import BatchMaker
from kafka_share_proxy.pipeline.source.log_reader import LogReader
from kafka_share_proxy.pipeline.source.options import SourceOptions, read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.source.splits import Split
from kafka_share_proxy.wire.codec.varints import read_varlong
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import HEADER, Record

from tests.bench.measuring import cpu_seconds
from tests.bench.pipeline_goals import Figure
from tests.bench.pipeline_reads import COLUMNS, TOPIC, Scene

TOUCHED = 100_000
"""Offsets that are read at first touch: they fit into the proxy's cache."""
TUPLES = 100_000


def decoding(scene: Scene) -> Iterator[Figure]:
    """G1: fetched and made into Arrow columns, against tuples."""
    options, (split,) = _planned(scene.brokers)

    def columns() -> int:
        maker = BatchMaker(options.columns, split.topic_partition, options.ranges)
        return sum(batch.num_rows for batch in maker.batches(LogReader(options, split).records()))

    batch = memoryview(
        records.build_batch(0, [Record(b"key-%07d" % at, b"%0100d" % at, offset=at) for at in range(500)])
    )

    def tuples() -> int:
        return sum(len(_tuples(batch)) for _ in range(TUPLES // 500))

    def lazily() -> int:
        pieces = LogReader(options, split).records()
        return sum(len([(each.key, each.value, each.offset) for each in piece]) for piece in pieces)

    rates = [[_rate(work) for _ in range(scene.rounds + 1)][1:] for work in (columns, tuples, lazily)]
    arrow, loop, lazy = (statistics.median(work_rates) / 1e6 for work_rates in rates)
    yield Figure("G1", "Fetch and Arrow columns alone", arrow, "M rows/s/core", at_least=2.5)
    beside = f"{loop:.2f} M by the loop, {lazy:.2f} M tuples by the kernel, Fetch included"
    yield Figure("G1", "columns against a loop that makes tuples", arrow / loop, "x", at_least=4.0, beside=beside)


def _tuples(batch: memoryview) -> list[tuple[bytes, bytes, int]]:
    """Key, value and offset of each record, by a loop in plain Python."""
    header, area, position, rows = records.read_header(batch), bytes(batch[HEADER.size :]), 0, []
    for _ in range(header.records_count):
        _, position = read_varlong(area, position)
        _, position = read_varlong(area, position + 1)
        delta, position = read_varlong(area, position)
        size, position = read_varlong(area, position)
        key, position = area[position : position + size], position + size
        size, position = read_varlong(area, position)
        value, position = area[position : position + size], position + size
        rows.append((key, value, header.base_offset + delta))
        _, position = read_varlong(area, position)
    return rows


def first_touch(scene: Scene, proxy: str, pid: int) -> Iterator[Figure]:
    """G7. `proxy`: bootstrap of one that has read none of it; `pid`: its process."""
    spent: dict[str, list[float]] = {"first": [], "next": []}
    rounds = min(scene.rounds, scene.records // TOUCHED)
    for number in range(rounds):
        ending = number * TOUCHED, (number + 1) * TOUCHED
        options, splits = _planned(proxy, ending)
        for name, split in zip(spent, splits, strict=True):
            before = cpu_seconds(pid)
            sum(len(piece) for piece in LogReader(options, split).records())
            spent[name].append((cpu_seconds(pid) - before) / TOUCHED * 1e6)
    first, later = (statistics.median(costs) for costs in spent.values())
    beside = f"{later:.2f} us for the next reader"
    yield Figure("G7", "proxy CPU at first touch of a row", first, "us", at_most=0.8, beside=beside)


def _rate(work: Callable[[], int]) -> float:
    cpu_before = time.process_time()
    return work() / (time.process_time() - cpu_before)


def _planned(bootstrap: str, offsets: tuple[int, int] | None = None) -> tuple[SourceOptions, list[Split]]:
    """`offsets`: from and to; these are read by two key ranges."""
    source_options = {"bootstrap": bootstrap, "topic": TOPIC, "columns": COLUMNS}
    if offsets is not None:
        places = (json.dumps({TOPIC: {"0": each}}) for each in offsets)
        source_options |= {"keyRanges": "2"} | dict(zip(("startingOffsets", "endingOffsets"), places, strict=True))
    options = read_options(source_options)
    with BlockingClusterClient(options) as cluster:
        planned = PlannedRead(cluster, options)
        return options, planned.splits(planned.batch())
