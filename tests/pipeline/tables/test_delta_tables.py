"""Delta tables change as a whole, and other programs read them (pipeline/README.md rule 59)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.tables.delta_tables import DeltaTables
from kafka_share_proxy.pipeline.tables.files import LakeError
from kafka_share_proxy.pipeline.tables.lake import Lake

deltalake = pytest.importorskip("deltalake", reason="the extra [delta] is not installed")

pytestmark = pytest.mark.slow
COLUMNS = "offset bigint, timestamp timestamp, day string, batch string"
PARTITIONS = ("day", "batch")


def rows(spark: Any, *offsets: int, batch: str, day: str = "2026-11-23") -> Any:
    return spark.createDataFrame([(each, None, day, batch) for each in offsets], COLUMNS)


def read(folder: Path) -> list[int]:
    """Read as any other program does."""
    return sorted(deltalake.DeltaTable(folder).to_pyarrow_table()["offset"].to_pylist())


def test_a_batch_replaces_itself_and_readers_see_all_of_it_or_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, folder = Lake(spark, str(tmp_path), "delta"), tmp_path / "records"
    assert not lake.has("records")
    lake.overwrite(rows(spark, 1, 2, batch="a-0").repartition(2), "records", PARTITIONS)
    lake.overwrite(rows(spark, 3, batch="a-1", day="2026-11-24"), "records", PARTITIONS)
    assert read(folder) == [1, 2, 3]
    lake.overwrite(rows(spark, 1, 2, 4, batch="a-0"), "records", PARTITIONS)
    frame = Lake(spark, str(tmp_path)).read("records")
    assert sorted((row["offset"], row["day"]) for row in frame.collect()) == [
        (1, "2026-11-23"), (2, "2026-11-23"), (3, "2026-11-24"), (4, "2026-11-23"),
    ]  # fmt: skip
    with monkeypatch.context() as dying:
        dying.setattr(deltalake.DeltaTable, "create_write_transaction", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            lake.overwrite(rows(spark, 7, batch="a-0"), "records", PARTITIONS)
    assert read(folder) == [1, 2, 3, 4], "what was not committed is not there"
    assert list((folder / "_new").iterdir()) == []
    table = deltalake.DeltaTable(folder)
    assert deltalake.DeltaTable(folder, version=table.version() - 1).count() == 3, "versions stay"


def test_columns_may_be_added_and_a_table_may_be_empty(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path), "delta")
    lake.overwrite(rows(spark, batch="a-0"), "records", PARTITIONS)
    assert lake.read("records").count() == 0
    lake.overwrite(rows(spark, 1, batch="a-0"), "records", PARTITIONS)
    lake.overwrite(rows(spark, 2, batch="a-1").selectExpr("*", "7 as more"), "records", PARTITIONS)
    assert sorted((row["offset"], row["more"]) for row in lake.read("records").collect()) == [(1, None), (2, 7)]


def test_rows_that_are_not_all_there_replace_nothing(spark: Any, tmp_path: Path) -> None:
    tables, path = DeltaTables(spark), str(tmp_path / "t")
    tables.replace(rows(spark, 1, batch="a"), path, PARTITIONS)
    with pytest.raises(LakeError, match="3 rows became 1: nothing was replaced"):
        tables.replace(rows(spark, 2, batch="b"), path, PARTITIONS, [("2026-11-23", "a")], 3)
    assert read(tmp_path / "t") == [1]


def test_an_unusable_delta_table_is_reported_before_anything_is_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lake(spark, str(tmp_path)).overwrite(rows(spark, 1, batch="a"), "records", PARTITIONS)
    with pytest.raises(LakeError, match="is of format parquet: leave --format out"):
        Lake(spark, str(tmp_path), "delta").check_writable("records")
    Lake(spark, str(tmp_path)).check_writable("records")
    with pytest.raises(LakeError, match="local and mounted file systems only"):
        DeltaTables(spark).check("hdfs://127.0.0.1:1/lake/records")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(LakeError, match=r"install kafka-share-proxy\[delta\]"):
        Lake(spark, str(tmp_path / "other"), "delta").check_writable("records")
