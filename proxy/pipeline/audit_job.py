"""The job `audit`: events of proxies made into tables (pipeline/README.md rules 26 to 34)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proxy.pipeline import audit_events, audit_tables
from proxy.pipeline.audit_events import KEY
from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.lake import Lake
from proxy.pipeline.options import BadOption, read_options
from proxy.pipeline.planning import PlannedRead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


EVENTS = "audit_events"
COMMON, OTHERS, NEW = "common", "others", "new"
"""Names of what is staged."""


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
    staged = _staged(lake, lines)
    days = _add(lake, staged, day)
    progress(f"{EVENTS}: {', '.join(days) or 'no event'}")
    rejects = _add_rejects(lake, staged)
    progress(f"audit_rejects: {rejects} lines")
    whole = lake.read(EVENTS)
    chosen = whole.where(whole["day"].isin(list(days)))
    _make_tables(lake, chosen, progress)
    lake.drop_staged()
    return AuditResult(chosen.count(), rejects, days, _lost(whole))


def _make_tables(lake: Lake, events: DataFrame, progress: Callable[[str], None]) -> None:
    marks = lake.staged(audit_tables.marks(events), "marks")
    blocked = lake.staged(audit_tables.blocked(events, marks), "blocked")
    for table, make in audit_tables.tables(events, blocked).items():
        lake.overwrite(make(), table, ["day"])
        progress(f"{table}: written")


def _staged(lake: Lake, lines: Lines) -> dict[str, DataFrame]:
    """What the lines are, beside the tables; each line is parsed once, and rare ones once more."""
    common = lake.staged(audit_events.common(lines.frame, lines.batch), COMMON, ["day"])
    others = common.where("day is null").selectExpr("line as value")
    return {COMMON: common, OTHERS: lake.staged(audit_events.judged(others, lines.batch), OTHERS, ["day"])}


def _add(lake: Lake, staged: Mapping[str, DataFrame], day: str | None) -> tuple[str, ...]:
    """Add what is new to the events that are known; the days that the lines tell of.

    The files of what was read become files of the table as they are, unless an event is in them twice, or known.
    """
    parts = [
        part.where("day is not null" if day is None else f"day = '{day}'").drop("line") for part in staged.values()
    ]
    chosen = parts[0].unionByName(parts[1].drop("reason"), allowMissingColumns=True)
    days = tuple(sorted(row["day"] for row in chosen.select("day").distinct().collect()))
    if not lake.has(EVENTS):
        lake.overwrite(chosen.limit(0), EVENTS, ["day"])
    known = lake.read(EVENTS)
    known = known.where(known["day"].isin(list(days)))
    keys = chosen.select(*KEY).unionAll(known.select(*KEY))
    if audit_tables.numbers(keys).where("events != different").isEmpty():
        for name in staged:
            lake.adopt(name, EVENTS, days)
        return days
    lake.staged(chosen.join(known, list(KEY), "left_anti").dropDuplicates(list(KEY)), NEW, ["day"])
    lake.adopt(NEW, EVENTS, days)
    return days


def _add_rejects(lake: Lake, staged: Mapping[str, DataFrame]) -> int:
    """Lines that are no events have no day."""
    rejects = staged[OTHERS].where("day is null").select("line", "reason", "ingest_batch")
    count: int = rejects.count()
    if count:
        lake.overwrite(rejects, "audit_rejects", ["ingest_batch"])
    return count


def _lost(events: DataFrame) -> tuple[LostEvents, ...]:
    found = audit_tables.numbers(events).selectExpr("proxy_id", "last_seq - different as missing", "last_seq")
    rows = found.where("missing > 0").orderBy("proxy_id").collect()
    return tuple(LostEvents(row["proxy_id"], row["missing"], row["last_seq"]) for row in rows)


def lines_of(result: AuditResult) -> list[str]:
    """What a person is told."""
    told = [f"{result.events} events of {', '.join(result.days) or 'no day'}; {result.rejects} lines rejected"]
    lost = [f"proxy {each.proxy_id}: {each.missing} of {each.last_seq} events are missing" for each in result.lost]
    return [*told, *lost]
