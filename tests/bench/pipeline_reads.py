"""G2, G3, G5 and G11: batches read by the source and by Spark's own Kafka source, of the same topic, in turn."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.measuring import cpu_seconds
from tests.bench.pipeline_goals import Figure, cpu_of_tree

TOPIC = "bench"
COLUMNS = "key,value,offset"
V1 = "spark.sql.sources.useV1SourceList"
TIMES = 4
"""Factor between the smaller and the larger read."""


class Scene(NamedTuple):
    """Environment of a bench."""

    brokers: str
    """Bootstrap."""
    proxy: str
    proxy_pid: int
    folder: Path
    records: int
    """Records of TOPIC."""
    rounds: int


@dataclass
class Job:
    """One way to do one thing."""

    name: str
    run: Callable[[], Any]
    rows: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    proxy_cpu: list[float] = field(default_factory=list)

    @property
    def per_core(self) -> float:
        """Million rows a second of CPU."""
        return self.rows / statistics.median(self.cpu) / 1e6

    def against(self, other: Job) -> float:
        """Rows per CPU second as a multiple of the other's, the median over rounds."""
        pairs = zip(self.cpu, other.cpu, strict=True)
        return statistics.median((self.rows / mine) / (other.rows / theirs) for mine, theirs in pairs)


class Reads:
    """Jobs of one session."""

    def __init__(self, spark: Any, scene: Scene) -> None:
        self.spark, self.scene = spark, scene
        self.jvm = spark.sparkContext._gateway.proc.pid
        self._lists = spark.conf.get(V1)

    def figures(self) -> Iterator[Figure]:
        """All of them."""
        yield from self._sinks()
        yield from self._larger()
        yield from self._ordered()

    def measure(self, jobs: Sequence[Job]) -> None:
        """Each once to warm up, then in turn."""
        for number in range(self.scene.rounds + 1):
            for job in jobs:
                cpu, proxy, started_at = cpu_of_tree(self.jvm), cpu_seconds(self.scene.proxy_pid), time.perf_counter()
                job.run()
                if number:
                    job.wall.append(time.perf_counter() - started_at)
                    job.cpu.append(cpu_of_tree(self.jvm) - cpu)
                    job.proxy_cpu.append(cpu_seconds(self.scene.proxy_pid) - proxy)

    def ours(self, **options: str) -> Any:
        """Rows of the source."""
        source_options = {"bootstrap": self.scene.brokers, "topic": TOPIC, "columns": COLUMNS, **options}
        return self.spark.read.format("keyrange").options(**source_options).load()

    def stock(self, path: str) -> Any:
        """Rows of Spark's own source, by its old relation (V1, as shipped) or by DSv2."""
        names = [each for each in self._lists.split(",") if each != "kafka"]
        self.spark.conf.set(V1, ",".join(names + ["kafka"] * (path == "V1")))
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.scene.brokers)
        return reader.option("subscribe", TOPIC).load().select("key", "value", "offset")

    @staticmethod
    def noop(frame: Any) -> None:
        """Rows are made and let go."""
        frame.write.format("noop").mode("overwrite").save()

    def parquet(self, frame: Any) -> None:
        """Rows are stored."""
        frame.write.mode("overwrite").parquet(str(self.scene.folder / "rows"))

    @staticmethod
    def _into(sink: Callable[[Any], None], frame: Callable[[], Any]) -> None:
        sink(frame())

    def _sinks(self) -> Iterator[Figure]:
        for name, sink, least, least_v1, least_v2 in (
            ("no-op", self.noop, 1.2, 1.2, 0.9),
            ("Parquet", self.parquet, 0.65, 1.05, None),
        ):
            rows = self.scene.records
            ours = Job("keyrange", partial(self._into, sink, self.ours), rows)
            shipped = Job("V1", partial(self._into, sink, partial(self.stock, "V1")), rows)
            newer = Job("DSv2", partial(self._into, sink, partial(self.stock, "DSv2")), rows)
            self.measure([ours, shipped, newer])
            beside = f"stock V1 {shipped.per_core:.2f}, DSv2 {newer.per_core:.2f}; {_walls(ours, shipped, newer)}"
            yield Figure("G2", f"{name} sink", ours.per_core, "M rows/s/core", at_least=least, beside=beside)
            yield Figure("G3", f"{name} sink, rows per CPU s", ours.against(shipped), "x stock V1", at_least=least_v1)
            yield Figure("G3", f"{name} sink, rows per CPU s", ours.against(newer), "x DSv2", at_least=least_v2)

    def _larger(self) -> Iterator[Figure]:
        few = self.scene.records // TIMES
        ending = json.dumps({TOPIC: {"0": few}})
        small = Job("few", lambda: self.noop(self.ours(endingOffsets=ending)), few)
        large = Job("all", lambda: self.noop(self.ours()), self.scene.records)
        self.measure([small, large])
        walls = statistics.median(b / a for a, b in zip(small.wall, large.wall, strict=True))
        cpu = statistics.median(b / a for a, b in zip(small.cpu, large.cpu, strict=True))
        yield Figure("G5", f"rows x {TIMES}", walls, "x time", at_most=4.4, beside=f"{cpu:.2f} x the CPU")

    def _ordered(self) -> Iterator[Figure]:
        rows = self.scene.records
        ours = Job("ranges", lambda: self.noop(self.ours(bootstrap=self.scene.proxy, keyRanges="4")), rows)
        stock = Job("stock", lambda: self.noop(_ordered(self.stock("V1"))), rows)
        splits = Job("splits", lambda: self.noop(_ordered(self.ours(offsetSplits="4"))), rows)
        self.measure([ours, stock, splits])
        sorted_here = 1 / splits.against(stock)
        description = "rows of a key in order: 4 key ranges"
        beside = f"keyrange by offset + sort: {sorted_here:.2f} x"
        yield Figure("G11", description, 1 / ours.against(stock), "x stock V1 + sort, CPU", at_most=0.55, beside=beside)
        both = zip(ours.cpu, ours.proxy_cpu, stock.cpu, strict=True)
        whole = statistics.median((cpu + proxy) / theirs for cpu, proxy, theirs in both)
        yield Figure(
            "G11", f"{description}, with the proxy's CPU", whole, "x", at_most=0.75, beside=_walls(ours, stock)
        )


def _ordered(frame: Any) -> Any:
    return frame.repartition(4, "key").sortWithinPartitions("offset")


def _walls(*jobs: Job) -> str:
    return " / ".join(f"{statistics.median(job.wall):.2f}" for job in jobs) + " s"
