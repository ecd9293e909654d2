"""Tables that are overwritten by partition (pipeline/README.md rule 34)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka_share_proxy.pipeline.tables.lake import Lake, LakeError, NoLake

pytestmark = pytest.mark.slow


def test_only_partitions_that_come_are_replaced(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, f"{tmp_path}/lake/")
    with pytest.raises(NoLake, match="run kafka-share-proxy pipeline audit --out"):
        lake.read("t")
    lake.overwrite(spark.createDataFrame([(1, "a"), (2, "b")], "n int, day string"), "t", ["day"])
    lake.overwrite(spark.createDataFrame([(3, "b")], "n int, day string"), "t", ["day"])
    assert {(row["n"], row["day"]) for row in lake.read("t").collect()} == {(1, "a"), (3, "b")}


def test_a_table_is_replaced_by_what_was_read_from_it(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    lake.overwrite(spark.createDataFrame([(1, "a")], "n int, day string"), "t", ["day"])
    more = lake.read("t").selectExpr("n + 1 as n", "day")
    lake.overwrite(lake.staged(more, "more"), "t", ["day"])
    lake.drop_staged()
    assert [(row["n"], row["day"]) for row in lake.read("t").collect()] == [(2, "a")]
    assert [each.name for each in tmp_path.iterdir()] == ["t"]


def test_a_table_without_rows_has_its_columns_and_takes_others_later(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    lake.overwrite(spark.createDataFrame([], "n int, day string"), "t", ["day"])
    assert (lake.read("t").columns, lake.read("t").count()) == (["n", "day"], 0)
    lake.overwrite(spark.createDataFrame([(1, "a", 2.5)], "n int, day string, share double"), "t", ["day"])
    assert [row["share"] for row in lake.read("t").collect()] == [2.5]


def test_files_reported_by_tasks_are_used_unchanged(spark: Any, tmp_path: Path) -> None:
    """An unreported one is of an attempt that failed."""
    lake = Lake(spark, str(tmp_path))
    folder = lake.local_staging("written")
    for number in range(4):
        pq.write_table(pa.table({"n": pa.array([number], pa.int32())}), f"{folder}/{number}.parquet")
    files = [("2026-11-21", "0.parquet"), ("2026-11-22", "1.parquet")]
    rows = lake.collected("written", files, "events", "n int, day string")
    assert {tuple(row) for row in rows.collect()} == {(0, "2026-11-21"), (1, "2026-11-22")}
    assert lake.days("events") == ("2026-11-21", "2026-11-22")
    assert [row["n"] for row in lake.collected("written", [(None, "2.parquet")], "others", "n int").collect()] == [2]
    assert (lake.collected("written", [], "none", "n int").count(), lake.days("none")) == (0, ())
    with pytest.raises(LakeError, match=r"9\.parquet was written by a task and is not here: mount"):
        lake.collected("written", [(None, "9.parquet")], "more", "n int")
    lake.overwrite(spark.createDataFrame([], "n int, day string"), "t", ["day"])
    lake.adopt("events", "t", ["2026-11-22"])
    assert [row["n"] for row in lake.read("t").collect()] == [1]
