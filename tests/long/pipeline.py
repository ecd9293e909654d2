"""The pipeline for a long time, by its commands; run by tests/long/run_pipeline.

Each command starts a new JVM, which takes 10 s and more.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.source.log_reader import LogReader
from kafka_share_proxy.pipeline.source.options import read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead

from tests.support.brokers import NEW, VIEWS, Running
from tests.support.raw import Raw, Topic, until
from tests.support.stock_spark import stock_class_path

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3000)]
Fresh = Callable[[str], str]
COMMAND = [sys.executable, "-m", "kafka_share_proxy"]
RECORDS = 200_000
STEP = 10_000
"""Offsets of one batch of a stream."""
COMMAND_S = 600.0
SLOTS = 8
READS = 4
"""Number of reads of all records: a sample of 100,000 keys gives the share of a range to 1 %."""
SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / "internal" / "AuditEvent.json"


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(NEW)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap, VIEWS)


@pytest.fixture(scope="module")
def audit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture
def audited(running: Running, kafka: Cluster, audit_folder: Path) -> Front:
    """Return a proxy that reports each second, and samples keys as it does by default."""
    audit = {"file": str(audit_folder / "audit.jsonl"), "load_interval_s": 1}
    return running.front(kafka.bootstrap, VIEWS | {"audit": audit})


@pytest.fixture
def raw(front: Front) -> Iterator[Raw]:
    with Raw(front.bootstrap) as opened:
        yield opened


@pytest.fixture
def zipf(kafka: Cluster, raw: Raw, fresh: Fresh) -> Topic:
    """Keys of which a few are hot."""
    topic = raw.create_topic(fresh("zipf"), 2)
    draw = random.Random(11)
    weights = [rank**-1.05 for rank in range(1, 20_001)]
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": RECORDS + 1}
    )
    for number, key in enumerate(draw.choices(range(20_000), weights, k=RECORDS)):
        producer.produce(topic.name, b"value %d" % number, b"key-%d" % key)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return topic


def run(*arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


@pytest.mark.skipif(not SCHEMA.exists(), reason="audit events of version 2 are not written by this proxy")
def test_the_whole_loop_keeps_its_promise(
    kafka: Cluster, front: Front, audited: Front, audit_folder: Path, zipf: Topic, tmp_path: Path
) -> None:
    """Traffic -> audit -> plan -> stored -> consumers of the view: the balance is as planned, within 5 %."""
    options = read_options({"bootstrap": audited.bootstrap, "topic": zipf.name, "keyRanges": "2"})
    with BlockingClusterClient(options) as cluster:
        planned = PlannedRead(cluster, options)
        splits = planned.splits(planned.batch())
    for _ in range(READS):
        assert sum(len(piece) for split in splits for piece in LogReader(options, split).records()) == RECORDS
    until(lambda: any(b'"load"' in each.read_bytes() for each in audit_folder.iterdir()), "load events")
    time.sleep(3)  # those of the last interval
    lake, file = str(tmp_path / "lake"), tmp_path / "plan.json"
    output = run("pipeline", "audit", "--in", str(audit_folder), "--out", lake, "--master", "local[2]")
    assert "; 0 lines rejected" in output
    assert "are missing" not in output
    stored = ["--store", "two", "--upstream", kafka.bootstrap]
    run("pipeline", "plan", "--from", lake, "--topic", zipf.name, "-n", str(SLOTS), "-o", str(file), *stored)
    assert balance_of_view(kafka, front, "two", zipf) <= promise_of(file)


def test_a_plan_is_served_with_the_balance_that_it_promised(
    kafka: Cluster, front: Front, zipf: Topic, tmp_path: Path
) -> None:
    """Records -> plan -> stored -> consumers of the view: no slot is heavier than promised."""
    file = tmp_path / "plan.json"
    source = ["--from", zipf.name, "-n", str(SLOTS), "--sample", "0.3", "--bootstrap", front.bootstrap]
    stored = ["--store", "one", "--upstream", kafka.bootstrap]
    output = run("pipeline", "plan", *source, "-o", str(file), *stored, "--master", "local[2]")
    assert f"views migrate GROUP --from {zipf.name} --to __view.pone.{zipf.name}" in output
    assert balance_of_view(kafka, front, "one", zipf) <= promise_of(file)


def promise_of(file: Path) -> float:
    return float(json.loads(file.read_text())["bound"]["at_most"])


def balance_of_view(kafka: Cluster, front: Front, plan: str, topic: Topic) -> float:
    """Heaviest to mean of the slots, as consumers of the view count records."""
    view = f"__view.p{plan}.{topic.name}"
    run("views", "create", view, "--upstream", kafka.bootstrap)
    shares = Counter[int]()
    for partition in range(2 * SLOTS):
        shares[partition % SLOTS] += read_to_end(front, view, partition)
    assert sum(shares.values()) == RECORDS
    return max(shares.values()) * SLOTS / RECORDS


def read_to_end(front: Front, view: str, partition: int) -> int:
    """How many records a consumer gets from one partition of a view."""
    consumer = Consumer(
        {
            "bootstrap.servers": front.bootstrap,
            "group.id": "x",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(view, partition, 0)])
        count, end = 0, time.monotonic() + COMMAND_S
        while time.monotonic() < end:
            message = consumer.poll(1.0)
            if message is not None and (error := message.error()) is not None:
                assert error.name() == "_PARTITION_EOF"
                return count
            count += message is not None
        raise TimeoutError(f"{view}-{partition} has no end")
    finally:
        consumer.close()


def test_four_kills_with_other_ranges_each_time_lose_nothing_and_repeat_nothing(
    front: Front, zipf: Topic, tmp_path: Path
) -> None:
    """G10: what a batch wrote before the kill it replaces when it is repeated."""
    arguments = [
        "pipeline",
        "ingest",
        "--topic",
        zipf.name,
        "--out",
        str(tmp_path / "lake"),
        "--checkpoint",
        str(tmp_path / "cp"),
    ]
    arguments += ["--bootstrap", front.bootstrap, "--option", f"maxOffsetsPerTrigger={STEP}", "--master", "local[2]"]
    commits = tmp_path / "cp" / "commits"
    for number, ranges in enumerate(["4", "2", "8", "3"]):
        before = len(list(commits.glob("[0-9]*")))
        log = (tmp_path / f"log-{number}").open("wb")
        command = [*COMMAND, *arguments, "--ranges", ranges]
        with log, subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as process:
            try:
                until(partial(has_batches, commits, before + 2), "two batches", COMMAND_S)
                time.sleep(0.13 * number)  # within a batch, at another place of it each time
            finally:
                os.killpg(process.pid, signal.SIGKILL)
    run(*arguments, "--ranges", "5", "--once")
    table = pyarrow.dataset.dataset(tmp_path / "lake" / "records", partitioning="hive").to_table()
    assert table.num_rows == RECORDS
    assert len(set(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))) == RECORDS
    assert {*table["ranges"].to_pylist()} >= {"4", "2", "8", "3"}
    assert_keys_have_one_range(table)


def has_batches(commits: Path, count: int) -> bool:
    return len(list(commits.glob("[0-9]*"))) >= count


def assert_keys_have_one_range(table: Any) -> None:
    homes: dict[tuple[str, bytes], int] = {}
    for ranges, key, home in zip(
        table["ranges"].to_pylist(), table["key"].to_pylist(), table["range_id"].to_pylist(), strict=True
    ):
        assert homes.setdefault((ranges, key), home) == home


STOCK = """
import json, sys
from kafka_share_proxy.pipeline import session
bootstrap, view, jars, folder = sys.argv[1:]
with session.session_of("stock", "local[2]", {"spark.driver.extraClassPath": jars}) as spark:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": view, "startingOffsets": "earliest"}
    rows = spark.read.format("kafka").options(**options).load()
    counts = {row["partition"]: row["count"] for row in rows.groupBy("partition").count().collect()}
    writer = spark.readStream.format("kafka").options(**options).load().writeStream.format("parquet")
    writer = writer.option("path", folder + "/rows").option("checkpointLocation", folder + "/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    streamed = spark.read.parquet(folder + "/rows").selectExpr("cast(value as string) as value").distinct().count()
print(json.dumps({"counts": counts, "streamed": streamed}))
"""


def test_the_stock_source_reads_a_view_without_any_change(
    kafka: Cluster, front: Front, zipf: Topic, tmp_path: Path
) -> None:
    """Batch and stream: partition p * 4 + r of the view is slot r of partition p, and all of it is every record."""
    view = f"__view.r4.{zipf.name}"
    run("views", "create", view, "--upstream", kafka.bootstrap)
    command = [sys.executable, "-c", STOCK, front.bootstrap, view, stock_class_path(), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    output = json.loads(done.stdout.splitlines()[-1])
    assert sum(output["counts"].values()) == output["streamed"] == RECORDS
    for partition, count in output["counts"].items():
        assert read_to_end(front, view, int(partition)) == count
