"""Many small files become few, and no row is lost or doubled (pipeline/README.md rules 57 and 58)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.tables import compact_job
from kafka_share_proxy.pipeline.tables.files import Files, LakeError
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.pipeline.tables.record_claims import RecordClaims

pytestmark = pytest.mark.slow
COLUMNS = "offset bigint, day string, batch string"


@pytest.fixture
def lake(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Lake:
    """Two streams with four batches each, and two backfills, on two days; one row of each on each day."""
    table_format = getattr(request, "param", "parquet")
    if table_format == "delta":
        pytest.importorskip("deltalake", reason="the extra [delta] is not installed")
    table_lake = Lake(spark, str(tmp_path), table_format)
    names = [f"{stream}-{number:010d}" for stream in ("a", "b") for number in range(4)]
    names += ["backfill-orders-0-1234", "backfill-orders-0-5678"]
    rows = [(number * 2 + day, f"2026-11-2{day}", name) for number, name in enumerate(names) for day in range(2)]
    table_lake.overwrite(spark.createDataFrame(rows, COLUMNS).repartition(4), "records", ["day", "batch"])
    return table_lake


def offsets(lake: Lake) -> list[int]:
    return sorted(row["offset"] for row in lake.read("records").collect())


def batches(lake: Lake) -> set[str]:
    return {row["batch"] for row in lake.read("records").collect()}


def compact(spark: Any, lake: Lake, day: str | None = None) -> list[compact_job.Compacted]:
    return compact_job.run(spark, lake.root, "records", day, print)


@pytest.mark.parametrize("lake", ["parquet", "delta"], indirect=True)
def test_batches_are_merged_but_for_the_last_one_of_each_stream(spark: Any, lake: Lake) -> None:
    done = compact(spark, lake)
    assert [(each.day, each.batches, each.files_before, each.files_after, each.rows) for each in done] == [
        ("2026-11-20", 8, 8, 1, 8), ("2026-11-21", 8, 8, 1, 8),
    ]  # fmt: skip
    assert offsets(lake) == list(range(20))
    (compacted,) = {name for name in batches(lake) if name.startswith("compact-")}
    assert batches(lake) == {compacted, "a-0000000003", "b-0000000003"}
    assert compact(spark, lake) == [], "there is nothing to do any more"
    more = [(99, "2026-11-20", "a-0000000004")]
    lake.overwrite(spark.createDataFrame(more, COLUMNS), "records", ["day", "batch"])
    (again,) = compact(spark, lake, "2026-11-20")
    assert (again.files_before, again.files_after, again.rows) == (2, 1, 9)
    assert offsets(lake) == [*range(20), 99]
    assert not list(Path(lake.root).rglob("_compact*"))


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_run_that_was_killed_is_finished_by_the_next(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """It dies at the first deletion or later, among those of the batches that were merged."""
    delete, left = Files.delete, [calls]

    def die(files: Files, path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        delete(files, path)

    with monkeypatch.context() as dying:
        dying.setattr(Files, "delete", die)
        with pytest.raises(KeyboardInterrupt):
            compact(spark, lake)
    compact(spark, lake)
    assert offsets(lake) == list(range(20))
    assert len(batches(lake)) == 3


def test_a_run_whose_merged_files_another_run_has_deleted_replaces_nothing(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run that starts before the moves are stored takes the merged files for those of a killed run."""
    write = Files.write

    def write_late(files: Files, path: str, text: str) -> None:
        if path.endswith(compact_job.MOVES):
            compact_job.recover(files, lake.path("records"))
        write(files, path, text)

    with monkeypatch.context() as late:
        late.setattr(Files, "write", write_late)
        with pytest.raises(LakeError, match="nothing was replaced; run the job again"):
            compact(spark, lake)
    assert offsets(lake) == list(range(20))
    compact(spark, lake)
    assert offsets(lake) == list(range(20))
    assert len(batches(lake)) == 3


def test_a_batch_that_is_large_is_left_as_it_is() -> None:
    sizes = (1, compact_job.FILE_BYTES, 2, compact_job.FILE_BYTES - 1)
    day_batches = [compact_job.DayBatch("d", f"compact-{number}", 1, size) for number, size in enumerate(sizes)]
    assert [each.size for each in compact_job.mergeable(day_batches, None)["d"]] == [1, 2, compact_job.FILE_BYTES - 1]
    assert compact_job.mergeable(day_batches, "e") == {}
    assert compact_job.mergeable(day_batches[:2], None) == {}, "one file is no fewer than one"


def test_compact_and_backfill_do_not_run_at_the_same_time(spark: Any, lake: Lake) -> None:
    claims = RecordClaims(spark, lake)
    with claims.backfilling("one"), pytest.raises(LakeError, match="a backfill loads into"):
        compact(spark, lake)
    with pytest.raises(LakeError, match="share_records is not there"):
        compact_job.run(spark, lake.root, "share_records", None, print)
