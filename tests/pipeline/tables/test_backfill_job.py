"""Offsets that a group has skipped are loaded once, and then committed (pipeline/README.md rules 38 and 39)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient, TopicReplaced
from kafka_share_proxy.pipeline.kafka.group_commits import CommitsOfGroup
from kafka_share_proxy.pipeline.source.options import BadOption, read_options
from kafka_share_proxy.pipeline.tables import backfill_job, ingest_job
from kafka_share_proxy.pipeline.tables.lake import Lake, LakeError
from kafka_share_proxy.wire.topic_ids import parse_topic_id, topic_id_text
from kafka_share_proxy.wire.values import TopicPartition

from tests.pipeline.conftest import produce_keys
from tests.pipeline.kafka.test_group_commits import begin
from tests.support.raw import Raw, Topic

Fresh = Callable[[str], str]
HOLE = {"topic": "orders", "partition": 0, "first": 5, "last": 9}


@pytest.mark.broker
@pytest.mark.slow
def test_holes_and_live_reads_are_every_offset_once(
    spark: Any, views_front: Front, orders: Topic, fresh: Fresh, tmp_path: Path
) -> None:
    group, options = fresh("group"), {"bootstrap": views_front.bootstrap}
    begin(views_front, group, orders, 100, "ic/1;150-299,400-1499")
    holes = [
        {"topic": orders.name, "partition": 0, "first": first, "last": last} for first, last in ((100, 149), (300, 399))
    ]
    tokens = backfill_job.read_tokens(json.dumps({"group": group, "holes": holes}))
    lines: list[str] = []
    first = backfill_job.run(spark, options, tokens, str(tmp_path), lines.append, commit=False)
    assert first == (150, 150, 0, False)
    again = backfill_job.run(spark, options, tokens, str(tmp_path), lines.append, commit=True)
    assert again == (150, 150, 0, True)
    assert lines[-1] == f"committed for group {group}"
    live = {*range(100), *range(150, 300), *range(400, 1_500)}
    rows = [row["offset"] for row in Lake(spark, str(tmp_path)).read("records").collect()]
    assert sorted([*live, *rows]) == list(range(1_500))
    with BlockingClusterClient(read_options({**options, "topic": orders.name})) as cluster:
        assert CommitsOfGroup(cluster, group).states()[TopicPartition(orders.name, 0)].offset == 1_500
    assert backfill_job.run(spark, options, tokens, str(tmp_path), lines.append, commit=True) == (0, 0, 0, False)


@pytest.mark.broker
@pytest.mark.slow
def test_overlapping_holes_are_loaded_once_though_the_group_finishes_a_part_in_between(
    spark: Any, views_front: Front, orders: Topic, fresh: Fresh, tmp_path: Path
) -> None:
    group, options = fresh("group"), {"bootstrap": views_front.bootstrap}
    begin(views_front, group, orders, 100, "ic/1;300-399")
    tokens = tokens_of(group, orders, (100, 299))
    assert backfill_job.run(spark, options, tokens, str(tmp_path), print, commit=False).rows == 200
    begin(views_front, group, orders, 100, "ic/1;149-199")
    assert backfill_job.run(spark, options, tokens, str(tmp_path), print, commit=True).is_committed
    wider = tokens_of(group, orders, (50, 120), (250, 350))
    assert backfill_job.run(spark, options, wider, str(tmp_path), print, commit=False).rows == 101
    rows = [row["offset"] for row in Lake(spark, str(tmp_path)).read("records").collect()]
    assert sorted(rows) == list(range(50, 351))


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_backfill_and_ingest_into_one_table_are_each_record_once(
    spark: Any, views_front: Front, raw: Raw, orders: Topic, fresh: Fresh, tmp_path: Path, table_format: str
) -> None:
    """Backfill before the first start of the stream, then offsets that it has read, then offsets still to be read."""
    group, options = fresh("group"), {"bootstrap": views_front.bootstrap}
    begin(views_front, group, orders, 100, "ic/1;300-399")
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"
    lines: list[str] = []

    def fill(*holes: tuple[int, int], commit: bool = False) -> backfill_job.Backfilled:
        lines.clear()
        tokens, shape = tokens_of(group, orders, *holes), table_format
        return backfill_job.run(spark, options, tokens, str(lake), lines.append, commit=commit, table_format=shape)

    def load(folder: Path) -> ingest_job.Ingested:
        lines.clear()
        starting = {"topic": orders.name, "startingOffsets": json.dumps({orders.name: {"0": 200}})}
        return ingest_job.run(spark, options | starting, "2", str(lake), str(folder), lines.append, once=True)

    assert fill((150, 249)).rows == 100
    assert load(checkpoint).rows == 1_500 + 1_300 - 50
    assert lines[0] == "50 records are in the table already"
    assert fill((140, 160), (290, 299), commit=True) == (21, 10, 0, True)
    assert lines[0] == "10 offsets are in the table already, by a stream"
    produce_keys(raw, orders, 100)
    assert fill((1_490, 1_509)).rows == 0
    assert lines[1].startswith("10 offsets are left to the stream that loads them: ")
    assert str(checkpoint) in lines[1]
    assert load(checkpoint).rows == 100
    rows = [row for row in Lake(spark, str(lake)).read("records").collect() if row["partition"] == 0]
    assert sorted(row["offset"] for row in rows) == list(range(140, 1_550))
    assert {row["topic_id"] for row in rows} == {topic_id_text(orders.topic_id)}
    with pytest.raises(LakeError, match=f"from the stream with the checkpoint file:{checkpoint}, and a second"):
        load(tmp_path / "other")
    next((lake / "records" / "_streams").glob("*.json")).unlink()
    assert load(tmp_path / "third").rows == 0  # it loads what is not in the table


@pytest.mark.broker
@pytest.mark.slow
def test_holes_of_a_topic_that_was_created_again_are_refused(
    spark: Any, views_front: Front, raw: Raw, orders: Topic, fresh: Fresh, tmp_path: Path
) -> None:
    tokens = tokens_of(fresh("group"), orders, (10, 19))
    raw.delete_topic(orders)
    produce_keys(raw, raw.create_topic(orders.name, 2), 100)
    options = {"bootstrap": views_front.bootstrap}
    with pytest.raises(TopicReplaced, match="deleted and created again"):
        backfill_job.run(spark, options, tokens, str(tmp_path), print, commit=False)
    loses = options | {"failOnDataLoss": "false"}
    assert backfill_job.run(spark, loses, tokens, str(tmp_path), print, commit=False).rows == 0


def tokens_of(group: str, topic: Topic, *holes: tuple[int, int]) -> backfill_job.Tokens:
    ids = {"topic": topic.name, "topic_id": topic_id_text(topic.topic_id), "partition": 0}
    listed = [{**ids, "first": first, "last": last} for first, last in holes]
    return backfill_job.read_tokens(json.dumps({"group": group, "holes": listed}))


def test_tokens_are_what_the_command_commits_prints() -> None:
    tokens = backfill_job.read_tokens(json.dumps({"group": "g", "holes": [HOLE, {**HOLE, "first": 10, "last": 10}]}))
    assert tokens == ("g", {TopicPartition("orders", 0): [OffsetSpan(5, 11)]}, {})
    text = "AQABAgMEBQYHCAkKCwwN_w"
    with_id = backfill_job.read_tokens(json.dumps({"group": "g", "holes": [{**HOLE, "topic_id": text}]}))
    assert with_id.ids == {"orders": parse_topic_id(text)}
    assert backfill_job.read_tokens('{"group": "g", "holes": []}').holes == {}


@pytest.mark.parametrize("text", ["", "[]", '{"group": "g"}', '{"holes": []}', '{"group": "", "holes": []}',
                                  json.dumps({"group": "g", "holes": [{"topic": "orders"}]}),
                                  json.dumps({"group": "g", "holes": [{**HOLE, "topic_id": "x"}]})])  # fmt: skip
def test_a_text_that_is_no_list_of_tokens_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="--tokens: "):
        backfill_job.read_tokens(text)


def test_the_same_holes_have_the_same_name_and_no_others() -> None:
    place = TopicPartition("orders", 0)
    names = {
        backfill_job.batch_of(place, [OffsetSpan(0, 5)]),
        backfill_job.batch_of(place, [OffsetSpan(0, 5)]),
        backfill_job.batch_of(place, [OffsetSpan(0, 6)]),
        backfill_job.batch_of(place._replace(partition=1), [OffsetSpan(0, 5)]),
    }
    assert len(names) == 3
