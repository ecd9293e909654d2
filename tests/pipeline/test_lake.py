"""Tables that are overwritten by partition (pipeline/README.md rule 34)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.pipeline.lake import Lake, NoLake

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
