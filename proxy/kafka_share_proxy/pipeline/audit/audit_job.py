"""The job `audit`: makes tables from the audit events of proxies (pipeline/README.md rules 26 to 34)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafka_share_proxy.pipeline.audit import audit_tables, event_staging
from kafka_share_proxy.pipeline.audit.audit_events import KEY
from kafka_share_proxy.pipeline.audit.event_staging import JUDGED, DirectInput, Lines
from kafka_share_proxy.pipeline.audit.small_input import PACKED, SMALL_BYTES, SMALL_OFFSETS, plans_for
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.session import settings_for
from kafka_share_proxy.pipeline.source.options import BadOption, read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.tables.files import Files
from kafka_share_proxy.pipeline.tables.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


EVENTS, REJECTS = "audit_events", "audit_rejects"
NEW = "new"
PARALLEL_TABLES = 2
"""Number of tables written concurrently. Each leaves cores idle while it begins and ends."""


class LostEvents(NamedTuple):
    """Number of lost events of one proxy."""

    proxy_id: str
    missing: int
    last_seq: int


class AuditResult(NamedTuple):
    """Result of a run."""

    events: int
    rejects: int
    days: tuple[str, ...]
    lost: tuple[LostEvents, ...]


def event_lines_in_folder(spark: SparkSession, folder: str) -> Lines:
    """Return the lines of all files in a folder, rotated ones included. Raises BadOption if there are none."""
    from kafka_share_proxy.pipeline.audit.event_input import unfinished_line

    paths = sorted(each for each in Path(folder).iterdir() if each.is_file() and each.name[0] not in "._")
    if not paths:
        raise BadOption(f"--in {folder}: no file is in it")
    status = {each: each.stat() for each in paths}
    listing = "".join(f"{each.name} {stat.st_size} {stat.st_mtime_ns}\n" for each, stat in status.items())
    sizes = {str(each): stat.st_size for each, stat in status.items()}
    direct = _direct_input(spark, sizes)
    plain = [each for share in direct.shares for each in share if each.end == each.size]
    cut = [line for each in plain if (line := unfinished_line(each.path, each.size))]
    unfinished = frozenset(hashlib.sha256(line).hexdigest() for line in cut)
    files = Files(spark)
    opened = sum(size * (PACKED if files.is_compressed(path) else 1) for path, size in sizes.items())
    return Lines(_batch_name(listing), spark.read.text(list(sizes)), direct, unfinished, opened <= SMALL_BYTES)


def _direct_input(spark: SparkSession, sizes: Mapping[str, int]) -> DirectInput:
    """Return files that tasks can read. Spark reads compressed and remote files."""
    from kafka_share_proxy.pipeline.audit.event_input import blocks_of_files, shares_of

    files, mounted, spark_paths = Files(spark), {}, []
    for path, size in sizes.items():
        local = None if files.is_compressed(path) else files.local(path)
        if local is None:
            spark_paths.append(path)
        else:
            mounted[local] = size
    shares = shares_of(mounted, spark.sparkContext.defaultParallelism)
    return DirectInput(shares, blocks_of_files, spark.read.text(spark_paths) if spark_paths else None)


def event_lines_in_topic(spark: SparkSession, options: Mapping[str, str]) -> Lines:
    """Return the records of a topic, up to its current end. Raises ProxyError."""
    from kafka_share_proxy.pipeline.audit.event_input import blocks_of_split

    checked = read_options({**options, "columns": "value"})
    with BlockingClusterClient(checked) as cluster:
        planned = PlannedRead(cluster, checked)
        spans = planned.batch()
        direct = DirectInput(planned.splits(spans), partial(blocks_of_split, checked), None)
    reader = spark.read.format("keyrange").options(**{**options, "columns": "value"})
    frame = reader.load().selectExpr("cast(value as string) as value")
    offsets = sum(span.end - span.start for _, span in spans)
    return Lines(_batch_name(repr(sorted(spans))), frame, direct, is_small=offsets <= SMALL_OFFSETS)


def _batch_name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run(spark: SparkSession, lines: Lines, out: str, day: str | None, progress: Callable[[str], None]) -> AuditResult:
    """Add the events to the tables, and recompute the tables of their days. `day`: only this one (2026-11-22, UTC)."""
    lake = Lake(spark, out)
    lake.check_writable()
    small = lines.is_small and lake.size(EVENTS) <= SMALL_BYTES
    with plans_for(spark, settings_for("local", streaming=False), small=small):
        return _run(spark, lake, lines, day, progress, small=small)


def _run(
    spark: SparkSession, lake: Lake, lines: Lines, day: str | None, progress: Callable[[str], None], *, small: bool
) -> AuditResult:
    staged = event_staging.stage(spark, lake, lines)
    days, numbers = _add_events(lake, staged, day)
    progress(f"{EVENTS}: {', '.join(days) or 'no event'}")
    rejects, new = _add_rejects(lake, staged, lines)
    progress(f"audit_rejects: {rejects} lines, {new} of them new")
    events = lake.read(EVENTS)
    chosen = events.where(events["day"].isin(list(days)))
    if small:
        chosen = chosen.localCheckpoint()
    _make_tables(lake, chosen, progress, small=small)
    lake.drop_staged()
    return AuditResult(chosen.count(), rejects, days, _lost_events(numbers))


def _make_tables(lake: Lake, events: DataFrame, progress: Callable[[str], None], *, small: bool) -> None:
    if small:
        blocked = audit_tables.blocked(events, audit_tables.last_renewals(events)).localCheckpoint()
    else:
        renewals = lake.staged(audit_tables.last_renewals(events), "renewals")
        blocked = lake.staged(audit_tables.blocked(events, renewals), "blocked")
    frames = audit_tables.tables(events, blocked)
    with ThreadPoolExecutor(PARALLEL_TABLES) as pool:
        for table in pool.map(lambda table: _make(lake, table, frames[table]), frames):
            progress(f"{table}: written")


def _make(lake: Lake, table: str, make: Callable[[], DataFrame]) -> str:
    lake.overwrite(make(), table, ["day"])
    return table


def _add_events(lake: Lake, staged: Mapping[str, DataFrame], day: str | None) -> tuple[tuple[str, ...], list[Row]]:
    """Return the days of the lines and the sequence numbers of all events.

    The staged files become files of the table unchanged, unless an event is in them twice, or is known already.
    """
    days = tuple(sorted({each for name in staged for each in lake.days(name) if day in (None, each)}))
    events = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), staged.values())
    chosen = events.where(events["day"].isin(list(days))).drop("line", "line_hash", "reason")
    if not lake.has(EVENTS):
        lake.overwrite(chosen.limit(0), EVENTS, ["day"])
    known = lake.read(EVENTS)
    numbers = audit_tables.sequence_numbers(chosen.select(*KEY).unionAll(known.select(*KEY))).collect()
    if all(row["events"] == row["different"] for row in numbers):
        for name in staged:
            lake.adopt(name, EVENTS, days)
        return days, numbers
    known = known.where(known["day"].isin(list(days)))
    lake.staged(chosen.join(known, list(KEY), "left_anti").dropDuplicates(list(KEY)), NEW, ["day"])
    lake.adopt(NEW, EVENTS, days)
    return days, audit_tables.sequence_numbers(lake.read(EVENTS)).collect()


def _add_rejects(lake: Lake, staged: Mapping[str, DataFrame], lines: Lines) -> tuple[int, int]:
    """Add new rejects to the table, each line once. Return the numbers of rejects and of new ones.

    A last line without an end is counted and not added, because it may be an event once it is whole.
    """
    from pyspark.sql import functions

    rejects = staged[JUDGED].where("day is null").select("line", "reason", "line_hash", "ingest_batch")
    count: int = rejects.count()
    if not count:
        return 0, 0
    new = rejects.where(~rejects["line_hash"].isin(list(lines.unfinished))).dropDuplicates(["line_hash"])
    if lake.has(REJECTS):
        known = lake.read(REJECTS)
        known = known.where(known["ingest_batch"] != lines.batch)
        shown = functions.sha2("line", 256)  # tables of earlier releases lack the hash
        hashed = functions.coalesce("line_hash", shown) if "line_hash" in known.columns else shown
        new = new.join(known.select(hashed.alias("line_hash")), "line_hash", "left_anti").select(*rejects.columns)
    new = lake.staged(new, "rejects")
    added: int = new.count()
    if added:
        lake.overwrite(new, REJECTS, ["ingest_batch"])
    return count, added


def _lost_events(numbers: Iterable[Row]) -> tuple[LostEvents, ...]:
    proxies = [LostEvents(row["proxy_id"], row["last_seq"] - row["different"], row["last_seq"]) for row in numbers]
    return tuple(sorted(each for each in proxies if each.missing > 0))


def report_lines(result: AuditResult) -> list[str]:
    events = [f"{result.events} events of {', '.join(result.days) or 'no day'}; {result.rejects} lines rejected"]
    lost = [f"proxy {each.proxy_id}: {each.missing} of {each.last_seq} events are missing" for each in result.lost]
    return [*events, *lost]
