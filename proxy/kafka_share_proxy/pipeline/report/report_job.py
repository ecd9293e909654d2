"""The job `report`: a readable summary of the audit tables (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.pipeline.report import queue_totals
from kafka_share_proxy.pipeline.report.queue_totals import QueueTotals
from kafka_share_proxy.pipeline.tables.lake import Lake, NoLake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEAT_COLUMNS = 64
"""Number of key ranges of the heat map, of equal width."""
HEAT_ROWS_MAX = 120
"""Maximum number of time steps of the heat map."""
BARS_MAX = 90
STEPS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400)
"""Lengths of time steps in seconds. Longer steps are whole days."""
RANGE, UNIFORM = "range", "uniform"
"""Assignors: Kafka's default in classic groups, and in groups of KIP-848."""
MEMBERS_MAX, HOT_MAX, ABUSE_MAX, READERS_MAX = 30, 15, 15, 40


ViewReads = dict[str, dict[str, list[Any]]]
"""Rows (`partition`, `slot`, `rows`) of what was read, by view and client id."""


class MemberTotals(NamedTuple):
    """Totals of one member of a group, over all hours."""

    group: str
    member: str
    deliveries: int
    redelivery_rate: float
    timeout_rate: float
    renews: int
    blocked_ms: int
    hold_ms: float
    """Median, rounded down to the histogram's bucket: a power of two."""
    client: str = "-"


class Blocked(NamedTuple):
    """A range of offsets whose renewals blocked its group."""

    group: str
    partition: str
    """Topic and partition, for example orders-0."""
    member: str
    offsets: str
    blocked_ms: int
    later_settled: int


class HotKey(NamedTuple):
    """A heavy key of one topic, on the day when it was heaviest."""

    topic: str
    hash: int
    share: float
    key: str = "-"
    share_low: float | None = None
    """The 95 % interval of the share is `share_low` to `share_high`. None for tables of an earlier version."""
    share_high: float | None = None
    sampled: int = 0


class Heat(NamedTuple):
    """Load of one topic by time and key range."""

    topic: str
    times: tuple[datetime, ...]
    cells: tuple[tuple[float, ...], ...]
    """A row for each time step, HEAT_COLUMNS wide."""
    balance: float
    step_s: int = 60
    sampled: int = 0


class Deliveries(NamedTuple):
    """Offsets that were delivered, by time."""

    step_s: int
    steps: tuple[tuple[datetime, int, int], ...]
    """(start, deliveries, redeliveries among them) of each step. Steps without deliveries are left out."""


class ViewClient(NamedTuple):
    """Records of a view that one client read. Clients with the same client id are one."""

    view: str
    client: str
    cells: int
    """Number of pairs of base partition and slot that it read."""
    whole_bases: bool
    """True if it read every slot of its base partitions, and other clients read others."""
    records: int
    to_mean: float
    """Records as a multiple of the mean of all clients of the view."""


class ViewGroup(NamedTuple):
    """A group that reads a view, with its assignor as of the last member that joined."""

    group: str
    view: str
    assignor: str
    members: int
    """Members of the group, or members seen if the events do not have the number."""
    to_mean: float | None
    """Records of its heaviest member as a multiple of the mean. None if unknown: members share client ids."""
    offered: tuple[str, ...] = ()
    """Assignors that every member supports."""


class Report(NamedTuple):
    """Content of a report."""

    days: tuple[str, ...]
    deliveries: Deliveries
    members: tuple[MemberTotals, ...]
    blocked: tuple[Blocked, ...]
    hot_keys: tuple[HotKey, ...]
    heats: tuple[Heat, ...]
    rejects: int
    readers: tuple[ViewClient, ...] = ()
    view_groups: tuple[ViewGroup, ...] = ()
    queues: tuple[QueueTotals, ...] = ()


def gather(lake: Lake, group: str | None) -> Report:
    """Collect the content of a report from the tables of a lake. Load by key always covers all groups.

    Raises NoLake if the tables are missing, or have nothing about this group.
    """
    hours = _of_group(lake.read("group_member_hour"), group)
    members = _members(hours)
    events = lake.read("audit_events")
    reads = _view_reads(events)
    view_groups = _view_groups(_of_group(events, group), reads)
    queues = queue_totals.gather(_of_group(events, group))
    if group is not None and not (members or view_groups or queues):
        raise NoLake(f"{lake.root} has no delivery of group {group}, and no member of it on a view")
    return Report(
        days=tuple(sorted(row["day"] for row in events.select("day").distinct().collect())),
        deliveries=_deliveries(_of_group(events.where("kind = 'settle'"), group)),
        members=_with_clients(members, events),
        blocked=_blocked(_of_group(lake.read("renew_abuse"), group)),
        hot_keys=_hot_keys(lake.read("hot_keys")),
        heats=_heats(lake.read("key_range_load")),
        readers=_readers(reads),
        view_groups=view_groups,
        queues=queues,
        rejects=lake.read("audit_rejects").count() if lake.has("audit_rejects") else 0,
    )


def _of_group(table: DataFrame, group: str | None) -> DataFrame:
    return table if group is None else table.where(table["group"] == group)


def step_for(seconds: float, steps_max: int, least: int = 1) -> int:
    """Return the length of a time step in seconds, so that at most `steps_max` cover this duration."""
    shortest = max(seconds / steps_max, least)
    return next((step for step in STEPS_S if step >= shortest), -(-int(shortest) // 86_400) * 86_400)


def _deliveries(settles: DataFrame) -> Deliveries:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    (first, last) = settles.agg(F.min("ts_ms"), F.max("ts_ms")).collect()[0]
    if first is None:
        return Deliveries(STEPS_S[0], ())
    step = step_for((last - first) / 1000, BARS_MAX)
    offsets, begin = F.expr("last - first + 1"), F.expr(f"ts_ms div {step * 1000} * {step}")
    redelivered = F.sum(F.when(F.col("attempt") > 1, offsets).otherwise(0))
    steps = settles.groupBy(begin.alias("begin")).agg(F.sum(offsets), redelivered).orderBy("begin").collect()
    return Deliveries(step, tuple((utc_time(row[0]), row[1], row[2]) for row in steps))


def utc_time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _with_clients(members: Sequence[MemberTotals], events: DataFrame) -> tuple[MemberTotals, ...]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if "host" not in events.columns or not members:
        return tuple(members)
    known = events.where("kind = 'member'").groupBy("group", "member")
    rows = known.agg(F.max_by("client", "ts_ms").alias("client"), F.max_by("host", "ts_ms").alias("host")).collect()
    clients = {(row["group"], row["member"]): f"{row['client'] or '-'} {row['host'] or ''}".strip() for row in rows}
    return tuple(each._replace(client=clients.get((each.group, each.member), each.client)) for each in members)


def _view_reads(events: DataFrame) -> ViewReads:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    cells = events.where("kind = 'fetch' and reader = 'view' and view is not null and slot is not null")
    by_view: ViewReads = {}
    for row in cells.groupBy("view", "client", "partition", "slot").agg(F.sum("rows_out").alias("rows")).collect():
        by_view.setdefault(row["view"], {}).setdefault(row["client"] or "-", []).append(row)
    return by_view


def _readers(reads: ViewReads) -> tuple[ViewClient, ...]:
    return tuple(reader for view in sorted(reads) for reader in _readers_of(view, reads[view]))


def _view_groups(events: DataFrame, reads: ViewReads) -> tuple[ViewGroup, ...]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if "group_protocol" not in events.columns:  # tables of earlier versions
        return ()
    latest = [F.max_by(name, "ts_ms").alias(name) for name in ("group_protocol", "assignor")]
    rows = (
        events.where("kind = 'view_member'")
        .groupBy("group", "view")
        .agg(
            *latest,
            F.expr("max_by(members, ts_ms) filter (where members is not null)").alias("members"),
            F.count_distinct("member").alias("seen"),
            F.collect_set("client").alias("clients"),
            F.collect_set("offered").alias("offered"),
        )
    )
    return tuple(
        _view_group(row, reads.get(row["view"], {}))
        for row in rows.orderBy("view", "group").limit(READERS_MAX).collect()
    )


def _view_group(row: Any, clients: Mapping[str, list[Any]]) -> ViewGroup:
    """Return the group of a row. Client ids identify its members if each has a different one."""
    members = row["members"] or row["seen"]
    assignor = row["assignor"] or ("-" if row["group_protocol"] == "classic" else UNIFORM)
    loads = [sum(each["rows"] for each in clients.get(client, ())) for client in row["clients"]]
    if len(loads) != members:
        cells = [cell for rows in clients.values() for cell in rows]
        loads = range_loads(cells, members) if assignor == RANGE else []
    to_mean = max(loads) * len(loads) / sum(loads) if sum(loads) else None
    common = [name for name in row["offered"][0] if all(name in each for each in row["offered"])]
    return ViewGroup(row["group"], row["view"], assignor, members, to_mean, tuple(common))


def range_loads(cells: Iterable[Any], members: int) -> list[int]:
    """Return the records of each member if partitions of a view are divided by RangeAssignor (clients 4.3)."""
    rows = {(cell["partition"], cell["slot"]): 0 for cell in cells}
    for cell in cells:
        rows[cell["partition"], cell["slot"]] += cell["rows"]
    slots = max((slot for _, slot in rows), default=0) + 1
    count = (max((base for base, _ in rows), default=0) + 1) * slots
    loads = [0] * members
    for (base, slot), records in rows.items():
        loads[_range_member(base * slots + slot, count, members)] += records
    return loads


def _range_member(partition: int, partitions: int, members: int) -> int:
    """Return the member with this partition: the first ones have one more if the division leaves a remainder."""
    each, more = divmod(partitions, members)
    longer = more * (each + 1)
    return partition // (each + 1) if partition < longer else more + (partition - longer) // each


def _readers_of(view: str, clients: dict[str, list[Any]]) -> list[ViewClient]:
    slots = _slots_read(row for rows in clients.values() for row in rows)
    is_shared = len(clients) > 1 and any(len(each) > 1 for each in slots.values())
    mean = sum(row["rows"] for rows in clients.values() for row in rows) / len(clients) or 1.0
    clients_of_view = []
    for client, rows in clients.items():
        mine = _slots_read(rows)
        whole = is_shared and all(mine[partition] == slots[partition] for partition in mine)
        records = sum(row["rows"] for row in rows)
        clients_of_view.append(ViewClient(view, client, len(rows), whole, records, records / mean))
    return sorted(clients_of_view, key=lambda each: -each.records)[:READERS_MAX]


def _slots_read(rows: Iterable[Any]) -> dict[int, set[int]]:
    slots: dict[int, set[int]] = {}
    for row in rows:
        slots.setdefault(row["partition"], set()).add(row["slot"])
    return slots


def _members(hours: DataFrame) -> tuple[MemberTotals, ...]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    sums = ["deliveries", "redeliveries", "timeouts", "renews", "blocked_ms"]
    totals = hours.groupBy("group", "member").agg(
        *(F.sum(name).alias(name) for name in sums), F.collect_list("hold_histogram").alias("histograms")
    )
    members = (
        totals.orderBy(F.desc("blocked_ms"), F.desc("timeouts"), F.desc("deliveries")).limit(MEMBERS_MAX).collect()
    )
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
        for row in members
    )


def _median(histograms: Sequence[dict[int, int]]) -> float:
    """Return the median of all histograms together, as the lower end of its bucket."""
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
    ranges = table.orderBy(table["blocked_ms"].desc()).limit(ABUSE_MAX).collect()
    return tuple(
        Blocked(
            row["group"] or "-",
            f"{row['topic']}-{row['partition']}",
            row["member"] or "-",
            f"{row['first']}-{row['last']}",
            row["blocked_ms"],
            row["later_settled"],
        )
        for row in ranges
    )


def _hot_keys(table: DataFrame) -> tuple[HotKey, ...]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    for name in ("key", "share_low", "share_high"):  # tables of earlier versions lack these columns
        if name not in table.columns:
            table = table.withColumn(name, F.lit(None))
    of_day = [F.max_by(name, "share").alias(name) for name in ("share_low", "share_high", "sampled")]
    sums = table.groupBy("topic", "hash").agg(F.max("share").alias("share"), F.max("key").alias("key"), *of_day)
    best = sums.orderBy(F.desc("share")).limit(HOT_MAX).collect()
    return tuple(
        HotKey(
            row["topic"] or "-",
            row["hash"],
            row["share"],
            "-" if row["key"] is None else row["key"],
            row["share_low"],
            row["share_high"],
            row["sampled"],
        )
        for row in best
    )


def _heats(table: DataFrame) -> tuple[Heat, ...]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from kafka_share_proxy.pipeline.audit.audit_tables import BUCKETS

    column = F.expr(f"bucket div {BUCKETS // HEAT_COLUMNS}").alias("column")
    known = table.where("bucket >= 0 and topic is not null")
    if "sampled" not in known.columns:
        known = known.withColumn("sampled", F.lit(0))
    minute = F.unix_timestamp("minute").alias("minute")
    sums = (F.sum("rows").alias("rows"), F.sum(F.coalesce("sampled", F.lit(0))).alias("sampled"))
    by_topic: dict[str, list[Any]] = {}
    for row in known.groupBy("topic", minute, column).agg(*sums).orderBy("topic", "minute").collect():
        by_topic.setdefault(row["topic"], []).append(row)
    return tuple(_heat(topic, rows) for topic, rows in by_topic.items())


def _heat(topic: str, rows: Sequence[Any]) -> Heat:
    """Return the heat map of one topic. Time steps without load are rows of zeros."""
    first, last = rows[0]["minute"], rows[-1]["minute"]
    step = step_for(last - first + 60, HEAT_ROWS_MAX, 60)
    begin = first // step * step
    cells = [[0.0] * HEAT_COLUMNS for _ in range((last - begin) // step + 1)]
    for row in rows:
        cells[(row["minute"] - begin) // step][row["column"]] += row["rows"]
    sums = [sum(each) for each in zip(*cells, strict=True)]
    balance = max(sums) * HEAT_COLUMNS / sum(sums) if sum(sums) else 1.0
    times = tuple(utc_time(begin + number * step) for number in range(len(cells)))
    sampled = round(sum(row["sampled"] for row in rows))
    return Heat(topic, times, tuple(map(tuple, cells)), balance, step, sampled)
