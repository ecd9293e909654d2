"""The commands that docs/spark.md lists, run one after the other as they are written; run by tests/long/run_pipeline.

The two that are left out have tests of their own: the demonstration and `package`, in pipeline_installed.py.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset
import pytest
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.pipeline.kafka.test_group_commits import begin
from tests.support import audit_story, documents
from tests.support.brokers import NEW, QUICK, VIEWS, Running
from tests.support.raw import Raw, Topic

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(3000)]
COMMAND_S = 300.0
RECORDS, HOLE = 2_000, 50
"""Records of the topic, and those that a group has skipped."""
NOON_MS = 1_795_262_400_000
"""2026-11-21 12:00 UTC: the day of the page, and that of the audit story."""
LISTED = ["audit", "plan", "ingest", "share", "backfill", "compact", "report", "demo", "package"]


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(NEW)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    shares = {"serve": "local", "state": "memory", "broker": QUICK}
    return running.front(kafka.bootstrap, VIEWS | {"commits": {"state": "memory"}, "share_groups": shares})


@pytest.fixture
def orders(front: Front, fresh: Callable[[str], str]) -> Topic:
    with Raw(front.bootstrap) as raw:
        topic = raw.create_topic(fresh("orders"), 2, {"retention.ms": "-1"})
        raw.configure_group("lake", {"share.auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": front.bootstrap, "linger.ms": 5, "batch.num.messages": 100})
    for number in range(RECORDS):
        key = b"key-%d" % (number % 100)
        producer.produce(topic.name, b"%d" % number, key, number % 2, timestamp=NOON_MS + number)
    assert producer.flush(60) == 0
    return topic


def listed() -> dict[str, str]:
    """Return the line of each command."""
    text = documents.block(documents.SPARK, "text", "pipeline compact")
    return dict(re.findall(r"^kafka-share-proxy pipeline (\w+) *([^#\n]*)", text, re.MULTILINE))


def test_every_listed_command_does_its_work(kafka: Cluster, front: Front, orders: Topic, tmp_path: Path) -> None:
    audit_story.write(tmp_path / "audited", "audit.jsonl", audit_story.blocked_events() + audit_story.load_events())
    begin(front, "etl", orders, 100, "ic/1;150-299")
    lines = listed()
    assert list(lines) == LISTED

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "kafka_share_proxy", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        assert done.returncode == 0, f"{words}\n{done.stdout[-2_000:]}{done.stderr[-3_000:]}"
        return done.stdout

    def run_listed(name: str, *more: str, **by: str) -> str:
        """Run a line of the page with its options, and a choice of this test where it offers several."""
        line = lines[name].replace("[", "").replace("]", "")
        for written, own in by.items():
            assert written in line, (written, line)
            line = line.replace(written, own)
        return run("pipeline", name, *shlex.split(line), *more, "--master", "local[2]")

    proxy = ("--bootstrap", front.bootstrap)
    assert "; 0 lines rejected" in run_listed("audit", **{"AUDIT_DIR|topic": "audited"})
    own = {"LAKE|topic": orders.name, "rows|bytes|hold": "bytes", "0.01": "0.5", "-n 16": "-n 4", "ID": "listed"}
    assert "views migrate" in run_listed("plan", *proxy, "--upstream", kafka.bootstrap, **own)
    (tmp_path / "holes.json").write_text(run("commits", "etl", "--holes", "--json", *proxy))
    assert f"{HOLE} rows of {HOLE} offsets" in run_listed("backfill", *proxy)
    assert json.loads(run("commits", "etl", "--holes", "--json", *proxy))["holes"] == []
    own_topic = {"--topic orders": f"--topic {orders.name}"}
    ingested = run_listed("ingest", *proxy, **own_topic, **{"8|range_plan.json": "range_plan.json", "CP": "ingested"})
    assert f"{RECORDS - HOLE} rows in " in ingested
    small = ("--option", "maxOffsetsPerTrigger=500")  # several batches, for the last one is not merged
    assert f"; {RECORDS} offsets acknowledged" in run_listed("share", *proxy, *small, **own_topic, CP="shared")
    assert re.search(r"1 days: ([2-9]|\d\d) files became 1\b", run_listed("compact"))
    assert "report.html: written" in run_listed("report", **{"--group G": "--group g"})
    assert "<!doctype html>" in (tmp_path / "report.html").read_text()
    every = [(partition, offset) for partition in range(2) for offset in range(RECORDS // 2)]
    assert offsets(tmp_path / "LAKE" / "records") == offsets(tmp_path / "LAKE" / "share_records") == every


def offsets(table: Path) -> list[tuple[int, int]]:
    rows = pyarrow.dataset.dataset(table, partitioning="hive").to_table(columns=["partition", "offset"]).to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows)
