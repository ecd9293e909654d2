"""G4, G5 and G6: micro-batches of the source compared with Spark's own, and the cost of key ranges on the wire."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.bench.pipeline_goals import Figure, cpu_of_tree
from tests.bench.pipeline_reads import COLUMNS, TOPIC, Scene

MICRO_ROWS = 20_000
MOST = {1: 1.25, 4: 1.4, 16: 1.8}
"""Key ranges -> maximum duration of a batch as a multiple of the stock source's."""
WARM_BATCHES = 5
TASKS, SLOTS = 200, 2
TASK_ROWS = 20_000
WIRE_ROWS = 100_000
"""Rows of one batch in which bytes are counted."""
RANGES = 16


@dataclass
class Streamed:
    """Batches of one kind of stream."""

    batch_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    """CPU milliseconds of each run, per batch."""

    @property
    def p50(self) -> float:
        """Milliseconds."""
        return statistics.median(self.batch_ms)


class Streams:
    """Streams of one session."""

    def __init__(self, spark: Any, scene: Scene) -> None:
        self.spark, self.scene = spark, scene
        self.jvm = spark.sparkContext._gateway.proc.pid

    def figures(self) -> Iterator[Figure]:
        """Micro-batches, streams in one batch, and single tasks."""
        yield from self._micro()
        yield from self._whole()
        yield from self._tasks()

    def ours(self, count: int, proxy: str, rows: int) -> Streamed:
        """Run the source with this many key ranges."""
        options = {"bootstrap": proxy, "topic": TOPIC, "columns": COLUMNS, "keyRanges": str(count)}
        return self._run("keyrange", rows, **options)

    def stock(self, count: int, rows: int) -> Streamed:
        """Run Spark's own source in this many tasks."""
        options = {"subscribe": TOPIC, "startingOffsets": "earliest", "minPartitions": str(count)}
        return self._run("kafka", rows, **{"kafka.bootstrap.servers": self.scene.brokers}, **options)

    def _run(self, kind: str, rows: int, **options: str) -> Streamed:
        frame = self.spark.readStream.format(kind).options(maxOffsetsPerTrigger=str(rows), **options).load()
        writer = frame.select(*COLUMNS.split(",")).writeStream.format("noop").trigger(availableNow=True)
        cpu_before = cpu_of_tree(self.jvm)
        query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=self.scene.folder)).start()
        query.awaitTermination()
        done = [each for each in query.recentProgress if each["numInputRows"]]
        cpu = (cpu_of_tree(self.jvm) - cpu_before) * 1000 / len(done)
        return Streamed([each["batchDuration"] for each in done[WARM_BATCHES:] or done], [cpu])

    def _pairs(self, ours: Callable[[], Streamed], stock: Callable[[], Streamed]) -> tuple[Streamed, Streamed]:
        """Both in turn; the first of each warms up."""
        both = Streamed(), Streamed()
        for number in range(self.scene.rounds + 1):
            for sums, run in zip(both, (ours, stock), strict=True):
                streamed = run()
                if number:
                    sums.batch_ms += streamed.batch_ms
                    sums.cpu_ms += streamed.cpu_ms
        return both

    def _micro(self) -> Iterator[Figure]:
        results = {}
        for count, most in MOST.items():
            ours, stock = results[count] = self._pairs(
                partial(self.ours, count, self.scene.proxy, MICRO_ROWS),
                partial(self.stock, count, MICRO_ROWS),
            )
            cpu = statistics.median(ours.cpu_ms), statistics.median(stock.cpu_ms)
            beside = f"{ours.p50:.0f} / {stock.p50:.0f} ms; CPU {cpu[0]:.0f} / {cpu[1]:.0f} ms a batch"
            description = f"micro-batch of {MICRO_ROWS} rows, {count} ranges, p50"
            yield Figure("G4", description, ours.p50 / stock.p50, "x stock", at_most=most, beside=beside)
        ratios = [results[RANGES][at].p50 / results[1][at].p50 for at in (0, 1)]
        beside = f"stock {ratios[1]:.2f}"
        yield Figure("G5", f"ranges x {RANGES}, {MICRO_ROWS} rows", ratios[0], "x time", at_most=2.5, beside=beside)

    def _whole(self) -> Iterator[Figure]:
        """All of the topic as one batch of a stream: no goal, but the stock source streams by another path."""
        rows = self.scene.records
        ours, stock = self._pairs(lambda: self.ours(1, self.scene.brokers, rows), lambda: self.stock(1, rows))
        rates = [rows / statistics.median(each.cpu_ms) / 1000 for each in (ours, stock)]
        beside = f"stock {rates[1]:.2f}; {ours.p50 / 1000:.2f} / {stock.p50 / 1000:.2f} s"
        yield Figure("G2", "stream, one batch, no-op sink, start included", rates[0], "M rows/s/core", beside=beside)
        yield Figure("G3", "stream, rows per CPU s, start included", rates[0] / rates[1], "x stock")

    def _tasks(self) -> Iterator[Figure]:
        """Run many tasks of a hundred rows: the cost of a task, regardless of its input."""
        walls, cpu = [], []
        for _ in range(self.scene.rounds + 1):
            used, started_at = cpu_of_tree(self.jvm), time.perf_counter()
            ending = f'{{"{TOPIC}": {{"0": {TASK_ROWS}}}}}'
            options = {"bootstrap": self.scene.proxy, "topic": TOPIC, "columns": COLUMNS, "endingOffsets": ending}
            frame = self.spark.read.format("keyrange").options(offsetSplits=str(TASKS), **options).load()
            frame.write.format("noop").mode("overwrite").save()
            walls.append((time.perf_counter() - started_at) * 1000 * SLOTS / TASKS)
            cpu.append((cpu_of_tree(self.jvm) - used) * 1000 / TASKS)
        beside = f"CPU {statistics.median(cpu[1:]):.1f} ms"
        description = f"slot time of a task of {TASK_ROWS // TASKS} rows"
        yield Figure("G4", description, statistics.median(walls[1:]), "ms", at_most=12.0, beside=beside)


def wire_figures(spark: Any, scene: Scene, proxy: str, bytes_now: Callable[[], tuple[int, int]]) -> Iterator[Figure]:
    """G6: each batch read by 16 ranges, against one read of it.

    Args:
        spark: a session.
        scene: of the other benches.
        proxy: bootstrap of a proxy whose bytes are counted.
        bytes_now: those that brokers sent to it, and those that it sent to Spark, so far.
    """
    streams, spent = Streams(spark, scene), {}
    for count in (1, RANGES):
        before = bytes_now()
        streams.ours(count, proxy, WIRE_ROWS)
        spent[count] = [after - was for after, was in zip(bytes_now(), before, strict=True)]
    ratios = [many / one for many, one in zip(spent[RANGES], spent[1], strict=True)]
    description, beside = f"{RANGES} ranges, batches of {WIRE_ROWS} rows", f"{spent[1][0] / 1e6:.0f} MB"
    yield Figure("G6", f"{description}: broker bytes", ratios[0], "x one read", at_most=1.05, beside=beside)
    yield Figure("G6", f"{description}: bytes to Spark", ratios[1], "x one read", at_most=1.03)
