"""The job `audit`: events of proxies made into tables (pipeline/README.md rules 26 to 34)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proxy.pipeline import audit_tables
from proxy.pipeline.audit_events import KEY, read_lines
from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.lake import Lake
from proxy.pipeline.options import BadOption, read_options
from proxy.pipeline.planning import PlannedRead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Lines(NamedTuple):
    """What was written by proxies."""

    frame: DataFrame
    """A column `value`."""
    batch: str
    """Names exactly this input: the same again has the same name."""


class LostEvents(NamedTuple):
    """Of one proxy."""

    proxy_id: str
    missing: int
    last_seq: int


class AuditResult(NamedTuple):
    """What a run did."""

    events: int
    """In the tables of these days, each once."""
    rejects: int
    days: tuple[str, ...]
    lost: tuple[LostEvents, ...]
    """Proxies of whose events some are missing."""


def lines_of_folder(spark: SparkSession, folder: str) -> Lines:
    """All files in a folder, rotated ones as well. Raises BadOption: it has none."""
    files = sorted(each for each in Path(folder).iterdir() if each.is_file() and each.name[0] not in "._")
    if not files:
        raise BadOption(f"--in {folder}: no file is in it")
    said = "".join(f"{each.name} {each.stat().st_size} {each.stat().st_mtime_ns}\n" for each in files)
    return Lines(spark.read.text([str(each) for each in files]), _name(said))


def lines_of_topic(spark: SparkSession, options: Mapping[str, str]) -> Lines:
    """All records of a topic, up to where it ends now. Raises ProxyError."""
    checked = read_options(options)
    with ClusterClient(checked) as cluster:
        said = repr(sorted(PlannedRead(cluster, checked).batch()))
    reader = spark.read.format("keyrange").options(**{**options, "columns": "value"})
    return Lines(reader.load().selectExpr("cast(value as string) as value"), _name(said))


def _name(said: str) -> str:
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def run(spark: SparkSession, lines: Lines, out: str, day: str | None, progress: Callable[[str], None]) -> AuditResult:
    """Add the events of the lines to the tables, and make the tables of those days anew.

    Args:
        spark: a session.
        lines: what proxies wrote; events that are known already change nothing.
        out: the lake.
        day: only events of that day (2026-11-22, UTC).
        progress: is given a line for each step.
    """
    lake = Lake(spark, out)
    read = read_lines(lines.frame)
    events = read.events if day is None else read.events.where(read.events["day"] == day)
    days = _add(lake, events, lines.batch, progress)
    rejects = _add_rejects(lake, read.rejects, lines.batch)
    progress(f"audit_rejects: {rejects} lines")
    whole = lake.read("audit_events")
    chosen = whole.where(whole["day"].isin(list(days))).cache()
    try:
        count = chosen.count()
        for table, make in audit_tables.tables(chosen).items():
            lake.overwrite(make(), table, ["day"])
            progress(f"{table}: written")
    finally:
        chosen.unpersist()
    lost = _lost(whole)
    return AuditResult(count, rejects, days, lost)


def _add(lake: Lake, events: DataFrame, batch: str, progress: Callable[[str], None]) -> tuple[str, ...]:
    """Merge events into their table; the days that changed."""
    from pyspark.sql import functions

    fresh = events.withColumn("ingest_batch", functions.lit(batch))
    if not lake.has("audit_events"):
        lake.overwrite(fresh.dropDuplicates(list(KEY)), "audit_events", ["day"])
        days = tuple(sorted(row["day"] for row in lake.read("audit_events").select("day").distinct().collect()))
        progress(f"audit_events: {', '.join(days) or 'no event'}")
        return days
    staged = lake.staged(fresh, batch)
    days = tuple(sorted(row["day"] for row in staged.select("day").distinct().collect()))
    known = lake.read("audit_events").where(functions.col("day").isin(list(days)))
    # An event that is known keeps the batch it came with.
    ranked = known.withColumn("is_new", functions.lit(0)).unionByName(staged.withColumn("is_new", functions.lit(1)))
    merged = ranked.groupBy(*KEY).agg(functions.min_by(functions.struct(*known.columns), "is_new").alias("event"))
    lake.overwrite(lake.staged(merged.select("event.*"), f"{batch}-merged"), "audit_events", ["day"])
    lake.drop_staged()
    progress(f"audit_events: {', '.join(days) or 'no event'}")
    return days


def _add_rejects(lake: Lake, rejects: DataFrame, batch: str) -> int:
    from pyspark.sql import functions

    kept = rejects.withColumn("ingest_batch", functions.lit(batch)).cache()
    try:
        count: int = kept.count()
        if count:
            lake.overwrite(kept, "audit_rejects", ["ingest_batch"])
    finally:
        kept.unpersist()
    return count


def _lost(events: DataFrame) -> tuple[LostEvents, ...]:
    events.createOrReplaceTempView("events")
    found = events.sparkSession.sql(audit_tables.GAPS).where("missing > 0").orderBy("proxy_id").collect()
    return tuple(LostEvents(row["proxy_id"], row["missing"], row["last_seq"]) for row in found)


def lines_of(result: AuditResult) -> list[str]:
    """What a person is told."""
    told = [f"{result.events} events of {', '.join(result.days) or 'no day'}; {result.rejects} lines rejected"]
    lost = [f"proxy {each.proxy_id}: {each.missing} of {each.last_seq} events are missing" for each in result.lost]
    return [*told, *lost]
