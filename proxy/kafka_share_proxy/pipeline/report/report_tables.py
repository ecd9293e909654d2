"""Tables of a report, as rows of cells for a terminal and for a page (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka_share_proxy.pipeline.report.queue_totals import QueueTotals
from kafka_share_proxy.pipeline.report.report_job import RANGE, Report, ViewClient, ViewGroup, utc_time
from kafka_share_proxy.wire.key_text import printable

ADVICE = "Use cooperative-sticky, roundrobin, or group.protocol=consumer with the assignor uniform."
WHOLE_PARTITIONS = (
    "Some clients read whole base partitions: their group uses the assignor range, or another that gives out runs of "
    f"partitions. No plan balances that. {ADVICE}"
)


class ReportTable(NamedTuple):
    """One table of the report."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_aligned: int
    """Number of leading columns with text."""
    note: str = ""


def tables(report: Report) -> Iterator[ReportTable]:
    """Yield the tables that have rows. Their cells have no control characters."""
    for table in (
        _members(report),
        _blocked(report),
        _queues(report.queues),
        _hot_keys(report),
        _readers(report.readers),
        _view_groups(report.view_groups),
    ):
        if table.rows:
            yield table._replace(rows=tuple(tuple(map(printable, row)) for row in table.rows))


def span(report: Report) -> str:
    days = " to ".join(dict.fromkeys((report.days[0], report.days[-1]))) if report.days else "no day"
    total = sum(count for _, count, _ in report.deliveries.steps)
    redelivered = sum(count for _, _, count in report.deliveries.steps)
    rejects = f", {report.rejects:,} lines rejected" if report.rejects else ""
    return f"{days}: {total:,} offsets delivered, {redelivered:,} of them again{rejects}"


def _members(report: Report) -> ReportTable:
    heads = (
        "group",
        "member",
        "client",
        "delivered",
        "again",
        "timed out",
        "renewals",
        "blocked (s)",
        "median held (ms)",
    )
    rows = tuple(
        (
            each.group,
            each.member,
            each.client,
            f"{each.deliveries:,}",
            f"{each.redelivery_rate:.1%}",
            f"{each.timeout_rate:.1%}",
            f"{each.renews:,}",
            f"{each.blocked_ms / 1000:,.1f}",
            f"{each.hold_ms:,.0f}",
        )
        for each in report.members
    )
    note = (
        "Offsets. Again: of the delivered ones, those that had been delivered before. Blocked: how long the member's "
        "renewals held the start offset up. The median of the time held is rounded down to a power of two."
    )
    return ReportTable("Members of share groups", heads, rows, 3, note)


def _blocked(report: Report) -> ReportTable:
    rows = tuple(
        (
            each.group,
            each.partition,
            each.offsets,
            each.member,
            f"{each.blocked_ms / 1000:,.1f}",
            f"{each.later_settled:,}",
        )
        for each in report.blocked
    )
    heads = ("group", "partition", "offsets", "member", "blocked (s)", "settled meanwhile")
    return ReportTable("Held up by renewals", heads, rows, 4, "Settled meanwhile: later offsets of the same partition.")


def _queues(queues: Sequence[QueueTotals]) -> ReportTable:
    rows = tuple(
        (
            each.group,
            each.hottest_key,
            f"{each.waiting:,}",
            f"{each.blocked_ms / 1000:,.1f}",
            f"{each.delayed:,}",
            f"{each.longest_delay_ms / 1000:,.1f}",
            f"{each.rejected:,}",
            f"{each.exhausted:,}",
            _minute(each.handed_over_ms),
            _minute(each.taken_back_ms),
            f"{each.held_back_ms / 1000:,.1f}",
        )
        for each in queues
    )
    heads = (
        "group",
        "hottest key (hash)",
        "waiting for it",
        "blocked (s)",
        "delayed",
        "longest delay (s)",
        "rejected",
        "delivery limit",
        "handed over (UTC)",
        "taken back (UTC)",
        "held back (s)",
    )
    note = (
        "Waiting for it: most records that waited for one record of this key. Delayed: offsets that waited for a "
        "redelivery, once for each wait. Rejected and delivery limit: dead letters by their cause. Held back: longest "
        "time without new records while the group was handed over or taken back."
    )
    return ReportTable("Queues", heads, rows, 2, note)


def _minute(time_ms: int | None) -> str:
    return "-" if time_ms is None else f"{utc_time(time_ms // 1000):%Y-%m-%d %H:%M}"


def _hot_keys(report: Report) -> ReportTable:
    rows = tuple(
        (
            each.topic,
            each.key,
            str(each.hash),
            f"{each.share:.2%}",
            "-"
            if each.share_low is None or each.share_high is None
            else f"{each.share_low:.2%} to {each.share_high:.2%}",
            f"{each.sampled:,}",
        )
        for each in report.hot_keys
    )
    heads = ("topic", "key", "hash", "of records", "95 % interval", "keys sampled")
    note = "Keys sampled: of the topic, on the day when the key was heaviest. A key is shown where the audit kept it."
    return ReportTable("Hot keys", heads, rows, 3, note)


def _readers(readers: Sequence[ViewClient]) -> ReportTable:
    rows = tuple(
        (
            each.view,
            each.client,
            "yes" if each.whole_bases else "no",
            f"{each.cells:,}",
            f"{each.records:,}",
            f"{each.to_mean:.2f}",
        )
        for each in readers
    )
    heads = ("view", "client id", "whole base partitions", "view partitions", "records", "times the mean")
    note = "Consumers with the same client id are one row."
    if any(each.whole_bases for each in readers):
        note = f"{WHOLE_PARTITIONS} {note}"
    return ReportTable("Readers of views", heads, rows, 3, note)


def _view_groups(groups: Sequence[ViewGroup]) -> ReportTable:
    rows = tuple(
        (
            each.group,
            each.view,
            each.assignor,
            ", ".join(each.offered) or "-",
            f"{each.members:,}",
            "-" if each.to_mean is None else f"{each.to_mean:.2f}",
        )
        for each in groups
    )
    heads = ("group", "view", "assignor", "all members offer", "consumers", "heaviest, times the mean")
    notes = [_range_note(each) for each in groups if each.assignor == RANGE and each.members > 1]
    note = " ".join([*notes, *([ADVICE] if notes else [])]) or "As of the last member that joined."
    return ReportTable("Groups on views", heads, rows, 4, note)


def _range_note(group: ViewGroup) -> str:
    heaviest = "" if group.to_mean is None else f": heaviest consumer {group.to_mean:.2f} x the mean"
    return printable(f"Group {group.group}: range; {group.members} consumers on {group.view}{heaviest}.")
