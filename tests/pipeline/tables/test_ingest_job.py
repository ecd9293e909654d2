"""Each record of a topic is in the table once, whatever is repeated (pipeline/README.md rules 35 to 37)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.pipeline.tables import ingest_job
from kafka_share_proxy.pipeline.tables.lake import Lake

from tests.pipeline.conftest import PRODUCED_MS, produce_keys
from tests.support.raw import Raw, Topic

PLAN = '{"version": 1, "hash": "murmur2-32", "ranges": [[0, 1000000000], [1000000000, 4294967296]]}'


def ingest(spark: Any, front: Front, topic: Topic, folder: Path, ranges: str, **options: str) -> tuple[Any, list[str]]:
    lines: list[str] = []
    source_options = {"bootstrap": front.bootstrap, "topic": topic.name, **options}
    out, checkpoint = str(folder / "lake"), str(folder / "checkpoint")
    return ingest_job.run(spark, source_options, ranges, out, checkpoint, lines.append, once=True), lines


@pytest.mark.broker
@pytest.mark.slow
def test_a_batch_that_is_repeated_with_other_ranges_replaces_itself(
    spark: Any, views_front: Front, raw: Raw, orders: Topic, tmp_path: Path
) -> None:
    done, lines = ingest(spark, views_front, orders, tmp_path, "2", maxOffsetsPerTrigger="2000")
    assert done == (2, 3_000)
    assert [line.split(" in ")[0] for line in lines] == ["batch 0: 2000 rows", "batch 1: 1000 rows"]
    assert lines[-1].endswith("lag 0")
    assert len(list((tmp_path / "lake" / "records").rglob("*.parquet"))) == 2, "a small batch is one file"
    (tmp_path / "checkpoint" / "commits" / "1").unlink()  # as after a crash following the write of batch 1
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink()
    produce_keys(raw, orders, 50)
    (tmp_path / "plan.json").write_text(PLAN)
    ingest(spark, views_front, orders, tmp_path, str(tmp_path / "plan.json"))
    rows = Lake(spark, str(tmp_path / "lake")).read("records")
    assert rows.count() == rows.select("partition", "offset").distinct().count() == 3_050
    by_ranges = {
        (row["ranges"], row["batch"][-1]): row["count"] for row in rows.groupBy("ranges", "batch").count().collect()
    }
    plan = str(tmp_path / "plan.json")
    assert by_ranges == {("2", "0"): 2_000, (plan, "1"): 1_000, (plan, "2"): 50}
    produced_at = datetime.fromtimestamp(PRODUCED_MS / 1_000, UTC)
    assert {row["day"] for row in rows.select("day").distinct().collect()} == {f"{produced_at:%Y-%m-%d}"}


@pytest.mark.broker
@pytest.mark.slow
def test_a_topic_that_was_created_again_is_never_skipped(
    spark: Any, views_front: Front, raw: Raw, orders: Topic, tmp_path: Path
) -> None:
    """Its records have a key of their own: the topic id is part of it."""
    ingest(spark, views_front, orders, tmp_path, "2")
    raw.delete_topic(orders)
    produce_keys(raw, raw.create_topic(orders.name, 1), 50)
    with pytest.raises(Exception, match=f"{orders.name} was deleted and created again"):
        ingest(spark, views_front, orders, tmp_path, "2")
    for rows in (50, 0):
        assert ingest(spark, views_front, orders, tmp_path, "2", failOnDataLoss="false")[0].rows == rows
    assert ingest(spark, views_front, orders, tmp_path, "2")[0].rows == 0
    rows = Lake(spark, str(tmp_path / "lake")).read("records")
    assert rows.count() == rows.select("topic_id", "partition", "offset").distinct().count() == 3_050


def test_a_batch_is_reported_with_its_lag() -> None:
    report = {"batchId": 3, "numInputRows": 7, "batchDuration": 1_250}
    assert ingest_job.line_of(report, 11) == "batch 3: 7 rows in 1.2 s, lag 11"
