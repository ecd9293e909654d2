"""The job `audit`: events of proxies made into tables (pipeline/README.md rules 26 to 34)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proxy.pipeline import audit_tables, event_staging
from proxy.pipeline.audit_events import KEY
from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.event_staging import JUDGED, DirectInput, Lines
from proxy.pipeline.files import Files
from proxy.pipeline.lake import Lake
from proxy.pipeline.options import BadOption, read_options
from proxy.pipeline.planning import PlannedRead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


EVENTS = "audit_events"
NEW = "new"
"""Name of what is staged of events that are not all new."""
TABLES_AT_ONCE = 2
"""Each leaves cores idle while it begins and ends."""


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
    found = sorted(each for each in Path(folder).iterdir() if each.is_file() and each.name[0] not in "._")
    if not found:
        raise BadOption(f"--in {folder}: no file is in it")
    status = {each: each.stat() for each in found}
    said = "".join(f"{each.name} {seen.st_size} {seen.st_mtime_ns}\n" for each, seen in status.items())
    sizes = {str(each): seen.st_size for each, seen in status.items()}
    return Lines(_name(said), spark.read.text(list(sizes)), _direct(spark, sizes))


def _direct(spark: SparkSession, sizes: Mapping[str, int]) -> DirectInput:
    """Of files."""
    from proxy.pipeline.event_input import blocks_of_files, shares_of

    files, mounted, others = Files(spark), {}, []
    for path, size in sizes.items():
        local = None if files.is_compressed(path) else files.local(path)
        if local is None:
            others.append(path)
        else:
            mounted[local] = size
    shares = shares_of(mounted, spark.sparkContext.defaultParallelism)
    return DirectInput(shares, blocks_of_files, spark.read.text(others) if others else None)


def lines_of_topic(spark: SparkSession, options: Mapping[str, str]) -> Lines:
    """All records of a topic, up to where it ends now. Raises ProxyError."""
    from proxy.pipeline.event_input import blocks_of_split

    checked = read_options({**options, "columns": "value"})
    with ClusterClient(checked) as cluster:
        planned = PlannedRead(cluster, checked)
        spans = planned.batch()
        direct = DirectInput(planned.splits(spans), partial(blocks_of_split, checked), None)
    reader = spark.read.format("keyrange").options(**{**options, "columns": "value"})
    frame = reader.load().selectExpr("cast(value as string) as value")
    return Lines(_name(repr(sorted(spans))), frame, direct)


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
    staged = event_staging.staged(spark, lake, lines)
    days, numbers = _add(lake, staged, day)
    progress(f"{EVENTS}: {', '.join(days) or 'no event'}")
    rejects = _add_rejects(lake, staged)
    progress(f"audit_rejects: {rejects} lines")
    events = lake.read(EVENTS)
    chosen = events.where(events["day"].isin(list(days)))
    _make_tables(lake, chosen, progress)
    lake.drop_staged()
    return AuditResult(chosen.count(), rejects, days, _lost(numbers))


def _make_tables(lake: Lake, events: DataFrame, progress: Callable[[str], None]) -> None:
    marks = lake.staged(audit_tables.marks(events), "marks")
    blocked = lake.staged(audit_tables.blocked(events, marks), "blocked")
    made = audit_tables.tables(events, blocked)
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        for table in pool.map(lambda table: _make(lake, table, made[table]), made):
            progress(f"{table}: written")


def _make(lake: Lake, table: str, make: Callable[[], DataFrame]) -> str:
    lake.overwrite(make(), table, ["day"])
    return table


def _add(lake: Lake, staged: Mapping[str, DataFrame], day: str | None) -> tuple[tuple[str, ...], list[Row]]:
    """Add what is new to the events that are known; the days that the lines tell of, and the numbers of all events.

    The files of what was read become files of the table as they are, unless an event is in them twice, or known.
    """
    days = tuple(sorted({each for name in staged for each in lake.days(name) if day in (None, each)}))
    events = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), staged.values())
    chosen = events.where(events["day"].isin(list(days))).drop("line", "reason")
    if not lake.has(EVENTS):
        lake.overwrite(chosen.limit(0), EVENTS, ["day"])
    known = lake.read(EVENTS)
    numbers = audit_tables.numbers(chosen.select(*KEY).unionAll(known.select(*KEY))).collect()
    if all(row["events"] == row["different"] for row in numbers):
        for name in staged:
            lake.adopt(name, EVENTS, days)
        return days, numbers
    known = known.where(known["day"].isin(list(days)))
    lake.staged(chosen.join(known, list(KEY), "left_anti").dropDuplicates(list(KEY)), NEW, ["day"])
    lake.adopt(NEW, EVENTS, days)
    return days, audit_tables.numbers(lake.read(EVENTS)).collect()


def _add_rejects(lake: Lake, staged: Mapping[str, DataFrame]) -> int:
    """Lines that are no events have no day."""
    rejects = staged[JUDGED].where("day is null").select("line", "reason", "ingest_batch")
    count: int = rejects.count()
    if count:
        lake.overwrite(rejects, "audit_rejects", ["ingest_batch"])
    return count


def _lost(numbers: Iterable[Row]) -> tuple[LostEvents, ...]:
    found = [LostEvents(row["proxy_id"], row["last_seq"] - row["different"], row["last_seq"]) for row in numbers]
    return tuple(sorted(each for each in found if each.missing > 0))


def lines_of(result: AuditResult) -> list[str]:
    """What a person is told."""
    told = [f"{result.events} events of {', '.join(result.days) or 'no day'}; {result.rejects} lines rejected"]
    lost = [f"proxy {each.proxy_id}: {each.missing} of {each.last_seq} events are missing" for each in result.lost]
    return [*told, *lost]
