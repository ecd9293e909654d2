"""The job `compact`: merges the many small files of a day into few (pipeline/README.md rules 57 and 58)."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.pipeline.tables.files import Files, LakeError
from kafka_share_proxy.pipeline.tables.ingest_job import PARTITIONS
from kafka_share_proxy.pipeline.tables.lake import DAY, HIDDEN, NO_DAY, Lake
from kafka_share_proxy.pipeline.tables.record_claims import TABLE, RecordClaims
from kafka_share_proxy.wire.values import MIB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = (TABLE, "share_records")
BATCH, COMPACTED = "batch=", "compact-"
FILE_BYTES = 128 * MIB
"""Approximate size of a merged file. Batches that are as large are left as they are."""
MOVES, MADE = "_compacting.json", "_compacted"
"""Names inside the table: file with the pending moves, and folder in which merged files are written."""
STREAM_BATCH = re.compile(r"(?P<stream>.+)-(?P<number>\d{10})")


class Compacted(NamedTuple):
    """Result of merging one day."""

    day: str
    batches: int
    files_before: int
    files_after: int
    rows: int


def run(spark: SparkSession, out: str, table: str, day: str | None, progress: Callable[[str], None]) -> list[Compacted]:
    """Merge the small files of a table, by day.

    Raises LakeError if there is no such table, a backfill is running, or the rows could not be moved.
    """
    lake = Lake(spark, out)
    if not lake.has(table):
        raise LakeError(f"{lake.path(table)} is not there: ingest, backfill and share make it")
    with _alone(spark, lake, table):
        if not lake.is_delta(table):
            recover(Files(spark), lake.path(table))
        results = []
        for name, batches in mergeable(_batches(spark, lake, table), day).items():
            results.append(_merge(spark, lake, table, name, batches))
            progress(line_of(results[-1]))
        if lake.is_delta(table):
            lake.delta.vacuum(lake.path(table))
        return results


def line_of(done: Compacted) -> str:
    return f"{done.day}: {done.batches} batches, {done.files_before} files -> {done.files_after}, {done.rows} rows"


@contextmanager
def _alone(spark: SparkSession, lake: Lake, table: str) -> Iterator[None]:
    if table != TABLE:
        yield
        return
    with RecordClaims(spark, lake).backfilling("compact"):
        yield


def recover(files: Files, table: str) -> None:
    """Finish the moves of a run that was killed.

    Raises LakeError if the merged files could not be moved, or another run has deleted them.
    """
    path = f"{table}/{MOVES}"
    if not files.exists(path):
        files.delete(f"{table}/{MADE}")
        return
    moves = json.loads(files.read(path))
    day, merged_folder = (
        f"{table}/{DAY}{moves['day']}",
        f"{table}/{MADE}/{DAY}{moves['day']}/{BATCH}{moves['made']}",
    )
    if files.exists(merged_folder):
        if not files.move(merged_folder, day):
            raise LakeError(f"{merged_folder} cannot be moved to {day}: run the job again")
    elif not files.exists(f"{day}/{BATCH}{moves['made']}"):
        files.delete(path)
        raise LakeError(f"{merged_folder} was deleted by another run: nothing was replaced; run the job again")
    for batch in moves["merged"]:
        files.delete(f"{day}/{BATCH}{batch}")
    files.delete(path)
    files.delete(f"{table}/{MADE}")


class DayBatch(NamedTuple):
    """The files of one batch and day."""

    day: str
    name: str
    files: int
    size: int


def _batches(spark: SparkSession, lake: Lake, table: str, only: str | None = None) -> list[DayBatch]:
    """Return batches by day. Rows without a day are left out."""
    sizes: dict[tuple[str, str], list[int]] = defaultdict(list)
    if lake.is_delta(table):
        for each in lake.delta.files(lake.path(table), PARTITIONS):
            day, batch = each.place
            if day is not None and batch is not None:
                sizes[day, batch].append(each.size)
    else:
        files, path = Files(spark), lake.path(table)
        for day in files.names(path) if only is None else [DAY + only]:
            for batch in files.names(f"{path}/{day}") if day.startswith(DAY) and day != DAY + NO_DAY else ():
                folder = f"{path}/{day}/{batch}"
                listed = [f"{folder}/{name}" for name in files.names(folder) if not name.startswith(HIDDEN)]
                sizes[day.removeprefix(DAY), batch.removeprefix(BATCH)] = [files.size(each) for each in listed]
    return [
        DayBatch(day, batch, len(row_counts), sum(row_counts)) for (day, batch), row_counts in sorted(sizes.items())
    ]


def mergeable(batches: Sequence[DayBatch], only: str | None) -> dict[str, list[DayBatch]]:
    """Return the batches to merge by day, without the last batch of each stream, which Spark may write again."""
    last: dict[str, str] = defaultdict(str)
    for batch in batches:
        if match := STREAM_BATCH.fullmatch(batch.name):
            last[match["stream"]] = max(last[match["stream"]], match["number"])
    last_batches = {f"{stream}-{number}" for stream, number in last.items()}
    mergeable_batches: dict[str, list[DayBatch]] = defaultdict(list)
    for batch in batches:
        if only in (None, batch.day) and batch.name not in last_batches and batch.size < FILE_BYTES:
            mergeable_batches[batch.day].append(batch)
    return {day: listed for day, listed in mergeable_batches.items() if sum(each.files for each in listed) > 1}


def _merge(spark: SparkSession, lake: Lake, table: str, day: str, batches: list[DayBatch]) -> Compacted:
    from pyspark.sql import functions

    names = [each.name for each in batches]
    rows = lake.read(table)
    rows = rows.where((rows["day"] == day) & rows["batch"].isin(names))
    count, new_batch = rows.count(), COMPACTED + hashlib.sha256(",".join(sorted(names)).encode()).hexdigest()[:12]
    width = max(1, -(-sum(each.size for each in batches) // FILE_BYTES))
    labelled = rows.withColumn("batch", functions.lit(new_batch)).coalesce(width)
    if lake.is_delta(table):
        lake.delta.replace(labelled, lake.path(table), PARTITIONS, [(day, name) for name in names], count)
    else:
        _replace(spark, lake.path(table), labelled, {"day": day, "made": new_batch, "merged": names}, count)
    after = next(each.files for each in _batches(spark, lake, table, day) if (each.day, each.name) == (day, new_batch))
    return Compacted(day, len(batches), sum(each.files for each in batches), after, count)


def _replace(spark: SparkSession, path: str, rows: DataFrame, moves: Mapping[str, Any], count: int) -> None:
    """Write the merged rows outside the folder of the day, check their number, store the pending moves, and move."""
    rows.write.mode("overwrite").partitionBy(*PARTITIONS).parquet(f"{path}/{MADE}")
    written = spark.read.parquet(f"{path}/{MADE}/{DAY}{moves['day']}/{BATCH}{moves['made']}").count()
    if written != count:
        raise LakeError(f"{count} rows of {moves['day']} became {written}: nothing was replaced; run the job again")
    files = Files(spark)
    files.write(f"{path}/{MOVES}", json.dumps(moves))
    recover(files, path)
