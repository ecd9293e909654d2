"""Queries of the tables; what they count is in test_audit_job.py (pipeline/README.md rules 28 to 33)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.audit import audit_job, audit_tables
from kafka_share_proxy.pipeline.audit.audit_events import parse_fully
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.source.log_reader import LogReader
from kafka_share_proxy.pipeline.source.options import read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.records.records import Record

from tests.support.brokers import VIEWS, Running
from tests.support.raw import Raw, Topic, until

pytestmark = pytest.mark.slow
BUSY, QUIET = 20_000, 2_000
"""Records of two partitions."""


def test_tables_of_no_events_are_empty_and_have_their_columns(spark: Any) -> None:
    events = parse_fully(spark.createDataFrame([], "value string"), "batch")
    blocked = audit_tables.blocked(events, audit_tables.last_renewals(events))
    frames = {name: make() for name, make in audit_tables.tables(events, blocked).items()}
    assert {name: frame.count() for name, frame in frames.items()} == dict.fromkeys(frames, 0)
    assert all("day" in frame.columns for frame in frames.values())
    load = ["day", "minute", "topic", "bucket", "rows", "bytes", "hold_ms", "sampled", "variance"]
    assert frames["key_range_load"].columns == load


def test_missing_and_repeated_sequence_numbers_are_counted(spark: Any) -> None:
    sequence_numbers = [
        ("p", 2),
        ("p", 2),
        ("p", 5),
        ("q", 1),
        *(("r", seq) for seq in range(1, 201) if seq not in (64, 127, 128)),
    ]
    numbered = audit_tables.sequence_numbers(
        spark.createDataFrame(sequence_numbers, "proxy_id string, seq bigint")
    ).collect()
    assert {row["proxy_id"]: tuple(row)[1:] for row in numbered} == {
        "p": (2, 5, 3, 2), "q": (1, 1, 1, 1), "r": (1, 200, 197, 197),
    }  # fmt: skip


@pytest.mark.broker
def test_a_hot_key_weighs_as_much_as_its_partition(
    spark: Any, running: Running, kafka_43: Cluster, raw: Raw, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """A tenth of the records of a busy partition, and half of those of a quiet one, which has a tenth of the records.

    Real records, read through a real proxy with the default settings: it samples either partition by its rows.
    """
    topic, file = raw.create_topic(fresh("uneven"), 2), tmp_path / "in" / "audit.jsonl"
    fill(raw, topic, 0, BUSY, lambda number: b"busy" if number % 10 == 0 else b"key-%d" % number)
    fill(raw, topic, 1, QUIET, lambda number: b"quiet" if number % 2 == 0 else b"other-%d" % number)
    file.parent.mkdir()
    audit = {"file": str(file), "load_interval_s": 1}
    front = running.front(kafka_43.bootstrap, VIEWS | {"audit": audit})
    read_all(front, topic)
    until(lambda: sum(load["rows"] for load in events_of(file, "load", topic)) >= BUSY + QUIET, "the load")
    sampled = Counter[int]()
    for load in events_of(file, "load", topic):
        sampled[load["partition"]] += load["sample_size"]
    assert sampled[0] > sampled[1] > 0
    audit_job.run(
        spark, audit_job.event_lines_in_folder(spark, str(file.parent)), str(tmp_path / "lake"), None, lambda _: None
    )
    table = Lake(spark, str(tmp_path / "lake")).read("hot_keys")
    hot_keys = {row["hash"]: row for row in table.where(table["topic"] == topic.name).collect()}
    for name, records_of_it in HOT.items():
        row = hot_keys[murmur2(name)]
        assert row["share"] == pytest.approx(records_of_it / (BUSY + QUIET), rel=0.25)
        assert row["share_low"] <= records_of_it / (BUSY + QUIET) <= row["share_high"]
        assert row["key"] == name.decode()
        assert row["estimate"] - row["error"] <= records_of_it * 1.25
        assert row["rows"] == BUSY + QUIET


HOT = {b"busy": BUSY // 10, b"quiet": QUIET // 2}
"""Key -> records that have it."""


def fill(raw: Raw, topic: Topic, partition: int, count: int, key_of: Callable[[int], bytes]) -> None:
    for base in range(0, count, 500):
        batch_records = [Record(key=key_of(base + at), value=b"v", offset=at) for at in range(500)]
        raw.append(topic, records.build_batch(0, batch_records), partition)


def read_all(front: Front, topic: Topic) -> None:
    options = read_options({"bootstrap": front.bootstrap, "topic": topic.name, "keyRanges": "2"})
    with BlockingClusterClient(options) as cluster:
        planned = PlannedRead(cluster, options)
        splits = planned.splits(planned.batch())
    assert sum(len(piece) for split in splits for piece in LogReader(options, split).records()) == BUSY + QUIET


def events_of(file: Path, kind: str, topic: Topic) -> list[dict[str, Any]]:
    """Return the events of complete lines."""
    reported = [json.loads(line) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [event for event in reported if event["kind"] == kind and event["topic"] == topic.name]
