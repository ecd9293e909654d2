"""Print the goals of the pipeline next to the measured values: `python -m tests.bench.pipeline [--only G4] [--records
N]`.

Spark's own Kafka source (batch by both its paths, and streaming) is measured in the same run, on the same data, in turn
with ours. Ratios of one run count, figures of two runs do not. CPU is that of the JVM and of the Python workers it
started, without brokers and proxy. G10, that kills lose and repeat nothing, is a test: tests/long/run_pipeline. The
exit status is 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "proxy")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))

from confluent_kafka import Producer  # noqa: E402 - found through the path set above
from kafka_share_proxy.localkafka.front import Front  # noqa: E402
from kafka_share_proxy.pipeline import session  # noqa: E402

from tests.bench import pipeline_audit, pipeline_plans, pipeline_proxy  # noqa: E402
from tests.bench.pipeline_goals import Figure, show  # noqa: E402
from tests.bench.pipeline_reads import TOPIC, Reads, Scene  # noqa: E402
from tests.bench.pipeline_streams import Streams, wire_figures  # noqa: E402
from tests.support.brokers import NEW, VIEWS, Running  # noqa: E402
from tests.support.raw import Raw  # noqa: E402
from tests.support.relay import Relay  # noqa: E402
from tests.support.stock_spark import stock_class_path  # noqa: E402

KEYS = 20_000
GOALS = tuple(f"G{number}" for number in range(1, 12) if number != 10)


def produce(bootstrap: str, records: int) -> None:
    """The topic: 500 records a batch, keys of 11 bytes, values of 100, not compressed."""
    with Raw(bootstrap) as raw:
        raw.create_topic(TOPIC, 1)
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 100, "batch.num.messages": 500,
        "queue.buffering.max.messages": records + 1,
    })  # fmt: skip
    for number in range(records):
        producer.produce(TOPIC, b"%0100d" % number, b"key-%07d" % (number * 7919 % KEYS))
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0


@contextmanager
def spark_session(*, streaming: bool) -> Iterator[Any]:
    """Session with two slots, with the stock source and ours; the JVM is the same for all of them."""
    more = {
        "spark.driver.extraClassPath": stock_class_path(),
        "spark.driver.memory": "3g",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    spark = session.open_spark_session("bench", "local[2]", more, streaming=streaming, show=lambda _: None)
    try:
        yield spark
    finally:
        spark.stop()


class Counted:
    """A proxy whose bytes are counted, on both sides."""

    def __init__(self, running: Running, relay: Relay) -> None:
        self._relay = relay
        upstream = {"bootstrap": relay.address, "nodes": {1: relay.address}}
        self.front: Front = running.front(relay.address, VIEWS | {"upstream": upstream})

    def bytes_now(self) -> tuple[int, int]:
        """Return bytes from brokers, and to clients."""
        figures = dict(
            line.rsplit(" ", 1) for line in self.front.send_request("/metrics")[1].splitlines() if line[:1] != "#"
        )
        return self._relay.response_bytes, int(float(figures["ksp_bytes_down_total"]))


def figures(goals: set[str], folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    """All that is wanted."""
    if "G8" in goals:
        yield from pipeline_plans.figures(options.records)
    if "G9" in goals:
        with spark_session(streaming=False) as spark:
            yield from pipeline_audit.figures(spark, folder, options.events, options.rounds)
    if not goals - {"G8", "G9"}:
        return
    running = Running(folder)
    try:
        yield from of_topic(goals, running, folder, options)
    finally:
        running.close()


def of_topic(goals: set[str], running: Running, folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    """Yield those for which records are read."""
    kafka = running.cluster(NEW)
    produce(kafka.bootstrap, options.records)
    front = running.front(kafka.bootstrap, VIEWS)
    assert front.child is not None
    scene = Scene(kafka.bootstrap, front.bootstrap, front.child.pid, folder, options.records, options.rounds)
    if "G1" in goals:
        yield from pipeline_proxy.decoding(scene)
    if "G7" in goals:
        fresh = running.front(kafka.bootstrap, VIEWS)
        assert fresh.child is not None
        yield from pipeline_proxy.first_touch(scene, fresh.bootstrap, fresh.child.pid)
    if goals & {"G2", "G3", "G5", "G11"}:
        with spark_session(streaming=False) as spark:
            yield from Reads(spark, scene).figures()
    if goals & {"G4", "G5", "G6"}:
        with spark_session(streaming=True) as spark, Relay(kafka.bootstrap) as relay:
            if goals & {"G4", "G5"}:
                yield from Streams(spark, scene).figures()
            if "G6" in goals:
                counted = Counted(running, relay)
                yield from wire_figures(spark, scene, counted.front.bootstrap, counted.bytes_now)


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=GOALS, help="may be given several times")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--events", type=int, default=4_000_000, help="of the audit, in the larger input")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    goals, shown_figures = set(options.only or GOALS), []
    with tempfile.TemporaryDirectory(prefix="ksp-bench-") as folder:
        for figure in figures(goals, Path(folder), options):
            if figure.goal in goals:
                shown_figures.append(figure)
                print(
                    f"{figure.goal} {figure.description}: {figure.value:.3g} {figure.unit} {figure.beside}", flush=True
                )
    sys.exit(not show(shown_figures))


if __name__ == "__main__":
    main()
