"""Staging of the lines of audit events as typed rows (pipeline/README.md rules 26 and 27)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.pipeline.audit.audit_events import COMMON, parse_common, parse_fully
from kafka_share_proxy.pipeline.tables.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafka_share_proxy.pipeline.audit.event_files import Written
    from kafka_share_proxy.pipeline.audit.event_lines import Block

WRITTEN, LEFT = "written", "left"
DIRECT, PARSED, JUDGED = "direct", "parsed", "judged"
"""Staging folders: events of common kinds that tasks wrote, those that Spark parsed, and all other lines."""
EVENT_ROWS = f"{COMMON}, ingest_batch string, day string"
"""Columns of the files that `event_files` writes, as DDL."""


class DirectInput(NamedTuple):
    """Lines that tasks can read themselves."""

    shares: Sequence[Any]
    read: Callable[[Any], Iterator[Block]]
    rest: DataFrame | None
    """Lines in no share, in a column `value`."""


class Lines(NamedTuple):
    """Lines that proxies wrote."""

    batch: str
    """Name of exactly this input."""
    frame: DataFrame
    """All lines, in a column `value`."""
    direct: DirectInput
    """The lines that tasks can read themselves."""
    unfinished: frozenset[str] = frozenset()
    """SHA-256 of last lines without an end: proxies may be writing them."""
    is_small: bool = False


def stage(spark: SparkSession, lake: Lake, lines: Lines) -> dict[str, DataFrame]:
    """Parse the lines into staged rows, by the name of the staging folder.

    If possible, tasks read lines and write files themselves, for half of the CPU. Only files reported by successful
    tasks are used, because another attempt may have left files as well.
    """
    lake.drop_staged()
    folder = lake.local_staging(WRITTEN)
    if folder is None:
        return _through_spark(lake, lines.frame, lines.batch)
    events, spark_lines = _write_files(spark, lake, folder, lines)
    spark_rows = spark_lines if lines.direct.rest is None else spark_lines.unionAll(lines.direct.rest)
    return {DIRECT: events} | _through_spark(lake, spark_rows, lines.batch)


def _write_files(spark: SparkSession, lake: Lake, folder: str, lines: Lines) -> tuple[DataFrame, DataFrame]:
    from kafka_share_proxy.pipeline.audit.event_files import write_files

    shares = lines.direct.shares
    write = partial(write_files, lines.direct.read, folder, lines.batch)
    if lines.is_small:
        return _read_files(lake, list(write(shares)))
    tasks = spark.sparkContext.parallelize(shares, max(1, len(shares)))
    return _read_files(lake, tasks.mapPartitions(write).collect())


def _read_files(lake: Lake, files: Sequence[Written]) -> tuple[DataFrame, DataFrame]:
    events = lake.collected(WRITTEN, [each for each in files if each.day is not None], DIRECT, EVENT_ROWS)
    other_lines = lake.collected(WRITTEN, [each for each in files if each.day is None], LEFT, "value binary")
    return events, other_lines.selectExpr("cast(value as string) as value")


def _through_spark(lake: Lake, lines: DataFrame, batch: str) -> dict[str, DataFrame]:
    parsed = lake.staged(parse_common(lines, batch), PARSED, ["day"])
    other_lines = parsed.where("day is null").selectExpr("line as value")
    return {PARSED: parsed.drop("line"), JUDGED: lake.staged(parse_fully(other_lines, batch), JUDGED, ["day"])}
