"""The Spark source beside Spark's own Kafka source: same data, same session, interleaved. Run: tests/bench/pipeline.py

CPU is that of the JVM and of the Python workers it started, without brokers and proxy; figures are medians of ROUNDS.
Ratios of one run count, figures of two runs do not. Each line says what the goal is.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "deploy")]
os.environ["PYTHONPATH"] = str(CHECKOUT)

from confluent_kafka import Producer  # noqa: E402 - found through the path set above

from proxy.pipeline import session  # noqa: E402
from proxy.pipeline.cluster import ClusterClient  # noqa: E402
from proxy.pipeline.columns import BatchMaker  # noqa: E402
from proxy.pipeline.log_reader import LogReader  # noqa: E402
from proxy.pipeline.options import read_options  # noqa: E402
from proxy.pipeline.planning import PlannedRead  # noqa: E402
from tests.support.brokers import NEW, VIEWS, Running  # noqa: E402
from tests.support.raw import Raw  # noqa: E402
from tests.support.stock_spark import stock_class_path  # noqa: E402

RECORDS = int(os.environ.get("KSP_BENCH_RECORDS", "1000000"))
ROUNDS = int(os.environ.get("KSP_BENCH_ROUNDS", "3"))
KEYS = 20_000
MICRO_ROWS = 20_000
TOPIC = "bench"
TICKS = os.sysconf("SC_CLK_TCK")
V1 = "spark.sql.sources.useV1SourceList"
COLUMNS = "key,value,offset"


def cpu_of_tree(root: int) -> float:
    """CPU seconds of a process and of all it started, those that ended included."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    found, total = {root}, 0.0
    while found:
        total += sum(used.get(pid, 0.0) for pid in found)
        found = {pid for pid, parent in parents.items() if parent in found}
    return total


@dataclass
class Job:
    """One way to do one thing."""

    name: str
    run: Callable[[], Any]
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def rows_per_core(self) -> float:
        return RECORDS / statistics.median(self.cpu)


def measure(jobs: list[Job], jvm: int) -> None:
    """Each once to warm up, then in turn."""
    for number in range(ROUNDS + 1):
        for job in jobs:
            cpu, begun = cpu_of_tree(jvm), time.perf_counter()
            job.run()
            if number:
                job.wall.append(time.perf_counter() - begun)
                job.cpu.append(cpu_of_tree(jvm) - cpu)


def show(title: str, jobs: list[Job], goal: str) -> None:
    print(f"\n{title} (goal: {goal})")
    for job in jobs:
        ratios = "  ".join(f"{job.rows_per_core / other.rows_per_core:5.2f} x {other.name}" for other in jobs[1:])
        wall, cpu = statistics.median(job.wall), statistics.median(job.cpu)
        print(f"  {job.name:26} {wall:6.2f} s {cpu:6.2f} CPU s {job.rows_per_core / 1e6:5.2f} M rows/s/core  {ratios}")


def produce(bootstrap: str) -> None:
    with Raw(bootstrap) as raw:
        raw.create_topic(TOPIC, 1)
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 100, "batch.num.messages": 500,
        "queue.buffering.max.messages": RECORDS + 1,
    })  # fmt: skip
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%0100d" % number, b"key-%07d" % (number * 7919 % KEYS))
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0


def decode(bootstrap: str) -> None:
    """G1: fetched and made into columns by one process, without Spark."""
    options = read_options({"bootstrap": bootstrap, "topic": TOPIC, "columns": COLUMNS})
    with ClusterClient(options) as cluster:
        planned = PlannedRead(cluster, options)
        (split,) = planned.splits(planned.batch())
    rates = []
    for _ in range(ROUNDS + 1):
        begun = time.process_time()
        batches = BatchMaker(options.columns, split.place, options.ranges).batches(LogReader(options, split).records())
        rows = sum(batch.num_rows for batch in batches)
        rates.append(rows / (time.process_time() - begun))
    print(f"\nG1 Fetch and decode alone: {statistics.median(rates[1:]) / 1e6:.2f} M rows/s/core (goal: 2.5)")


class Bench:
    """The jobs in one session."""

    def __init__(self, spark: Any, brokers: str, proxy: str, folder: Path) -> None:
        self.spark, self.brokers, self.proxy, self.folder = spark, brokers, proxy, folder
        self.jvm = spark.sparkContext._gateway.proc.pid
        self.lists = spark.conf.get(V1)

    def ours(self, **options: str) -> Any:
        given = {"bootstrap": self.brokers, "topic": TOPIC, "columns": COLUMNS, **options}
        return self.spark.read.format("keyrange").options(**given).load()

    def stock(self, path: str) -> Any:
        names = [each for each in self.lists.split(",") if each != "kafka"]
        self.spark.conf.set(V1, ",".join(names + ["kafka"] * (path == "V1")))
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.brokers)
        return reader.option("subscribe", TOPIC).load().select("key", "value", "offset")

    @staticmethod
    def noop(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def parquet(self, frame: Any) -> None:
        frame.write.mode("overwrite").parquet(str(self.folder / "rows"))

    @staticmethod
    def ordered(frame: Any) -> Any:
        return frame.repartition(4, "key").sortWithinPartitions("offset")

    def batches(self) -> None:
        for title, sink, goal in (
            ("G2, G3 no-op", self.noop, "1.2 M; 1.2 x V1, 0.9 x DSv2"),
            ("G2, G3 Parquet", self.parquet, "0.65 M; 1.05 x V1"),
        ):
            jobs = [
                Job("keyrange", lambda sink=sink: sink(self.ours())),
                Job("stock V1", lambda sink=sink: sink(self.stock("V1"))),
                Job("stock DSv2", lambda sink=sink: sink(self.stock("DSv2"))),
            ]
            measure(jobs, self.jvm)
            show(title, jobs, goal)
        jobs = [
            Job("keyrange, 4 key ranges", lambda: self.noop(self.ours(bootstrap=self.proxy, keyRanges="4"))),
            Job("stock V1 + sort", lambda: self.noop(self.ordered(self.stock("V1")))),
            Job("keyrange offsets + sort", lambda: self.noop(self.ordered(self.ours(offsetSplits="4")))),
        ]
        measure(jobs, self.jvm)
        show("G11 rows of a key in order, in one task", jobs, "CPU 0.55 x of stock + sort: 1.82 x its rows/s/core")

    def micro(self) -> None:
        print("\nG4 micro-batches of 20,000 rows, p50 in ms (goal: 1.25 / 1.4 / 1.8 x stock at 1 / 4 / 16)")
        for count in (1, 4, 16):
            ours = self.stream("keyrange", bootstrap=self.proxy, topic=TOPIC, columns=COLUMNS, keyRanges=str(count))
            stock = self.stream("kafka", **{"kafka.bootstrap.servers": self.brokers, "subscribe": TOPIC,
                                            "startingOffsets": "earliest", "minPartitions": str(count)})  # fmt: skip
            print(f"  {count:3} ranges: keyrange {ours:5.0f}, stock {stock:5.0f}: {ours / stock:.2f} x")

    def stream(self, kind: str, **options: str) -> float:
        """The median time of a batch, the first ones left out."""
        given = {"maxOffsetsPerTrigger": str(MICRO_ROWS), **options}
        writer = self.spark.readStream.format(kind).options(**given).load().writeStream.format("noop")
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return statistics.median(each["batchDuration"] for each in query.recentProgress[5:-1])


def opened(folder: Path) -> Iterator[Bench]:
    running = Running(folder)
    with closing(running):
        kafka = running.cluster(NEW)
        front = running.front(kafka.bootstrap, VIEWS)
        produce(kafka.bootstrap)
        decode(kafka.bootstrap)
        more = {
            "spark.driver.extraClassPath": stock_class_path(),
            "spark.driver.memory": "3g",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        }
        spark = session.opened("bench", "local[2]", more, streaming=True)
        try:
            yield Bench(spark, kafka.bootstrap, front.bootstrap, folder)
        finally:
            spark.stop()


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="ksp-bench-"))
    try:
        for bench in opened(folder):
            bench.batches()
            bench.micro()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
