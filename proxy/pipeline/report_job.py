"""The job `report`: what the tables tell, for a person (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from proxy.pipeline.lake import Lake, NoLake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEAT_COLUMNS = 64
"""Key ranges of the heat map, of equal width."""
HEAT_ROWS_MAX = 120
"""Of time; longer tables are put together."""
MEMBERS_MAX, HOT_MAX, ABUSE_MAX = 30, 15, 15
"""Rows that are shown, the worst first."""


class MemberTotals(NamedTuple):
    """Of one group, over all hours."""

    group: str
    member: str
    deliveries: int
    redelivery_rate: float
    timeout_rate: float
    renews: int
    blocked_ms: int
    hold_ms: float
    """The median, as the histogram's bucket has it: a power of two."""


class Blocked(NamedTuple):
    """A range that held its group up."""

    group: str
    place: str
    member: str
    offsets: str
    blocked_ms: int
    later_settled: int


class HotKey(NamedTuple):
    """Of one topic."""

    topic: str
    hash: int
    share: float


class Heat(NamedTuple):
    """Load of one topic by time and key range."""

    topic: str
    times: tuple[str, ...]
    cells: tuple[tuple[float, ...], ...]
    """A row for each time, HEAT_COLUMNS wide."""
    balance: float
    """Heaviest to mean of the ranges, over all times."""


class Report(NamedTuple):
    """All of it."""

    days: tuple[str, ...]
    deliveries_by_hour: tuple[tuple[str, int, int], ...]
    """Hour, deliveries, redeliveries; in offsets."""
    members: tuple[MemberTotals, ...]
    blocked: tuple[Blocked, ...]
    hot_keys: tuple[HotKey, ...]
    heats: tuple[Heat, ...]
    rejects: int


def gathered(lake: Lake, group: str | None) -> Report:
    """What the tables of a lake tell.

    Args:
        lake: what the job `audit` made.
        group: only this one; load by key is of all groups.

    Raises:
        NoLake: no table is there, or none of this group.
    """
    hours = _of(lake.read("group_member_hour"), group)
    members = _members(hours)
    if group is not None and not members:
        raise NoLake(f"{lake.root} has no delivery of group {group}")
    return Report(
        days=tuple(sorted(row["day"] for row in lake.read("audit_events").select("day").distinct().collect())),
        deliveries_by_hour=_by_hour(hours),
        members=members,
        blocked=_blocked(_of(lake.read("renew_abuse"), group)),
        hot_keys=_hot_keys(lake.read("hot_keys")),
        heats=_heats(lake.read("key_range_load")),
        rejects=lake.read("audit_rejects").count() if lake.has("audit_rejects") else 0,
    )


def _of(table: DataFrame, group: str | None) -> DataFrame:
    return table if group is None else table.where(table["group"] == group)


def _by_hour(hours: DataFrame) -> tuple[tuple[str, int, int], ...]:
    found = hours.groupBy("hour").sum("deliveries", "redeliveries").orderBy("hour").collect()
    return tuple((f"{row[0]:%m-%d %H}", row[1], row[2]) for row in found)


def _members(hours: DataFrame) -> tuple[MemberTotals, ...]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    sums = ["deliveries", "redeliveries", "timeouts", "renews", "blocked_ms"]
    totals = hours.groupBy("group", "member").agg(
        *(F.sum(name).alias(name) for name in sums), F.collect_list("hold_histogram").alias("histograms")
    )
    found = totals.orderBy(F.desc("blocked_ms"), F.desc("timeouts"), F.desc("deliveries")).limit(MEMBERS_MAX).collect()
    return tuple(
        MemberTotals(
            row["group"] or "-",
            row["member"] or "-",
            row["deliveries"],
            row["redeliveries"] / row["deliveries"],
            row["timeouts"] / row["deliveries"],
            row["renews"],
            row["blocked_ms"],
            _median(row["histograms"]),
        )
        for row in found
    )


def _median(histograms: Sequence[dict[int, int]]) -> float:
    """The lower end of the bucket in which the middle one lies; histograms add up."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for power, count in histogram.items():
            counts[power] = counts.get(power, 0) + count
    below, total = 0, sum(counts.values())
    for power, count in sorted(counts.items()):
        below += count
        if below * 2 >= total:
            return float(1 << power)
    return 0.0


def _blocked(table: DataFrame) -> tuple[Blocked, ...]:
    found = table.orderBy(table["blocked_ms"].desc()).limit(ABUSE_MAX).collect()
    return tuple(
        Blocked(
            row["group"] or "-",
            f"{row['topic']}-{row['partition']}",
            row["member"] or "-",
            f"{row['first']}-{row['last']}",
            row["blocked_ms"],
            row["later_settled"],
        )
        for row in found
    )


def _hot_keys(table: DataFrame) -> tuple[HotKey, ...]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    best = table.groupBy("topic", "hash").agg(F.max("share").alias("share")).orderBy(F.desc("share")).limit(HOT_MAX)
    return tuple(HotKey(row["topic"] or "-", row["hash"], row["share"]) for row in best.collect())


def _heats(table: DataFrame) -> tuple[Heat, ...]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from proxy.pipeline.audit_tables import BUCKETS

    column = F.expr(f"bucket div {BUCKETS // HEAT_COLUMNS}").alias("column")
    known = table.where("bucket >= 0 and topic is not null")
    cells = known.groupBy("topic", "minute", column).agg(F.sum("rows").alias("rows")).orderBy("topic", "minute")
    by_topic: dict[str, dict[str, list[float]]] = {}
    for row in cells.collect():
        times = by_topic.setdefault(row["topic"], {})
        times.setdefault(f"{row['minute']:%m-%d %H:%M}", [0.0] * HEAT_COLUMNS)[row["column"]] += row["rows"]
    return tuple(_heat(topic, times) for topic, times in by_topic.items())


def _heat(topic: str, times: dict[str, list[float]]) -> Heat:
    """Times put together where there are too many."""
    step = -(-len(times) // HEAT_ROWS_MAX)
    names, rows = list(times), list(times.values())
    cells = [tuple(map(sum, zip(*rows[start : start + step], strict=True))) for start in range(0, len(rows), step)]
    sums = [sum(each) for each in zip(*cells, strict=True)]
    return Heat(topic, tuple(names[::step]), tuple(cells), max(sums) * HEAT_COLUMNS / sum(sums))
