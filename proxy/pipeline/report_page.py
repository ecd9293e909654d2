"""A report as one HTML file that needs nothing else, and as text (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from proxy.pipeline.planner import RangePlan
from proxy.pipeline.report_job import HEAT_COLUMNS, Heat, Report

WIDTH, BAR_HEIGHT, CELL = 960, 160, 12
SHADES = " .:-=+*#%@"
"""Of the heat map in a terminal, from none to the heaviest."""
TERMINAL_ROWS = 12

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1020px; color: #1c2430; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } th { text-align: left; color: #5b6675; font-weight: 600 }
td, th { padding: .25rem .6rem; border-bottom: 1px solid #e4e8ee } td.n, th.n { text-align: right }
svg { display: block; max-width: 100% } .note { color: #5b6675 }
"""


def page(report: Report, plans: Sequence[tuple[str, RangePlan]] = ()) -> str:
    """The whole file; `plans` by topic are drawn below their load."""
    parts = [
        f"<h1>Deliveries and load by key</h1><p class=note>{escape(_span(report))}</p>",
        "<h2>Deliveries by hour</h2>",
        _bars(report),
        "<h2>Members</h2>",
        _table(*_member_rows(report)),
        "<h2>Held up by renewals</h2>",
        _table(*_blocked_rows(report)) if report.blocked else "<p>Nothing was.</p>",
        "<h2>Load by key range</h2>",
        *(_heat(heat) for heat in report.heats),
        *(_plan(topic, plan, report) for topic, plan in plans),
        "<h2>Hot keys</h2>",
        _table(*_hot_rows(report)) if report.hot_keys else "<p>None was seen.</p>",
    ]
    return f"<!doctype html><meta charset=utf-8><title>Deliveries</title><style>{STYLE}</style>{''.join(parts)}\n"


def text(report: Report) -> list[str]:
    """The same on one screen."""
    lines = [_span(report), ""]
    for title, (heads, rows) in (
        ("MEMBERS", _member_rows(report)),
        ("HELD UP BY RENEWALS", _blocked_rows(report)),
        ("HOT KEYS", _hot_rows(report)),
    ):
        if rows:
            lines += [title, *_columns([heads, *rows[:TERMINAL_ROWS]]), ""]
    for heat in report.heats:
        lines += [f"LOAD OF {heat.topic} BY KEY RANGE, heaviest {heat.balance:.2f} x the mean", *_shades(heat), ""]
    return lines


def _span(report: Report) -> str:
    days = f"{report.days[0]} to {report.days[-1]}" if report.days else "no day"
    total = sum(count for _, count, _ in report.deliveries_by_hour)
    again = sum(count for _, _, count in report.deliveries_by_hour)
    rejects = f", {report.rejects} lines rejected" if report.rejects else ""
    return f"{days}: {total} offsets delivered, {again} of them again{rejects}"


# Tables

Cells = tuple[Sequence[str], Sequence[Sequence[str]]]


def _member_rows(report: Report) -> Cells:
    heads = ("GROUP", "MEMBER", "DELIVERED", "AGAIN", "TIMED OUT", "RENEWED", "BLOCKED s", "HELD ms")
    rows = [
        (
            each.group,
            each.member,
            str(each.deliveries),
            f"{each.redelivery_rate:.1%}",
            f"{each.timeout_rate:.1%}",
            str(each.renews),
            f"{each.blocked_ms / 1000:.1f}",
            f"{each.hold_ms:.0f}",
        )
        for each in report.members
    ]
    return heads, rows


def _blocked_rows(report: Report) -> Cells:
    rows = [
        (each.group, each.place, each.offsets, each.member, f"{each.blocked_ms / 1000:.1f}", str(each.later_settled))
        for each in report.blocked
    ]
    return ("GROUP", "PARTITION", "OFFSETS", "MEMBER", "BLOCKED s", "DONE MEANWHILE"), rows


def _hot_rows(report: Report) -> Cells:
    rows = [(each.topic, str(each.hash), f"{each.share:.2%}") for each in report.hot_keys]
    return ("TOPIC", "HASH", "OF RECORDS"), rows


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each.capitalize())}" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


# Drawings


def _bars(report: Report) -> str:
    """Deliveries of each hour, those that were not the first in another colour."""
    hours = report.deliveries_by_hour
    most = max((count for _, count, _ in hours), default=1) or 1
    width = WIDTH / max(len(hours), 12)
    drawn = []
    for number, (hour, count, again) in enumerate(hours):
        for value, colour in ((count, "#4c7dbf"), (again, "#d2603a")):
            height = BAR_HEIGHT * value / most
            tip = f"<title>{escape(hour)} h: {count} delivered, {again} again</title>"
            drawn.append(_rect(number * width, BAR_HEIGHT - height, width - 2, height, colour, tip))
        if number % max(1, len(hours) // 12) == 0:
            drawn.append(f'<text x="{number * width:.0f}" y="{BAR_HEIGHT + 14}" font-size="10">{escape(hour)}</text>')
    return _svg(WIDTH, BAR_HEIGHT + 20, drawn)


def _heat(heat: Heat) -> str:
    """A row for each time, a cell for each key range."""
    most = max(map(max, heat.cells)) or 1
    width = WIDTH / HEAT_COLUMNS
    drawn = [
        _rect(
            column * width,
            row * CELL,
            width,
            CELL,
            _colour(value / most),
            f"<title>{escape(heat.times[row])}, range {column}: {value:.0f} records</title>",
        )
        for row, cells in enumerate(heat.cells)
        for column, value in enumerate(cells)
    ]
    note = f"{heat.topic}: {HEAT_COLUMNS} even ranges, time downwards; heaviest {heat.balance:.2f} x the mean"
    return f"<p class=note>{escape(note)}</p>{_svg(WIDTH, CELL * len(heat.cells), drawn)}"


def _plan(topic: str, plan: RangePlan, report: Report) -> str:
    """The load of even ranges, and of the plan's: width is hashes, height is load."""
    heat = next((each for each in report.heats if each.topic == topic), None)
    sums = [sum(each) for each in zip(*heat.cells, strict=True)] if heat else []
    whole = sum(sums) or 1.0
    before = [(column / HEAT_COLUMNS, 1 / HEAT_COLUMNS, value / whole) for column, value in enumerate(sums)]
    ends = [*(start / (1 << 32) for start in plan.starts[1:]), 1.0]
    after = [
        (start / (1 << 32), end - start / (1 << 32), weight)
        for start, end, weight in zip(plan.starts, ends, plan.weights, strict=True)
    ]
    title = f"{topic}: {HEAT_COLUMNS} even ranges, and the {len(plan.starts)} of the plan"
    note = f"{title}; the plan's heaviest is {plan.heaviest_to_mean:.2f} x the mean"
    return f"<p class=note>{escape(note)}</p>{_ranges(before, '#8fa3bd')}{_ranges(after, '#3f8f6b')}"


def _ranges(ranges: Iterable[tuple[float, float, float]], colour: str) -> str:
    listed = list(ranges)
    most = max((weight for _, _, weight in listed), default=1.0) or 1.0
    height = BAR_HEIGHT / 2
    drawn = [
        _rect(
            WIDTH * start,
            height * (1 - weight / most),
            max(WIDTH * width - 1, 0.5),
            height * weight / most,
            colour,
            f"<title>{weight:.2%} of the load</title>",
        )
        for start, width, weight in listed
    ]
    return _svg(WIDTH, height + 6, drawn)


def _rect(x: float, y: float, width: float, height: float, colour: str, inside: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}">{inside}</rect>'


def _svg(width: float, height: float, drawn: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">{"".join(drawn)}</svg>'


def _colour(share: float) -> str:
    """From nearly white to dark red."""
    light = 96 - 61 * share**0.6
    return f"hsl({28 - 24 * share:.0f} 75% {light:.0f}%)"


def _shades(heat: Heat) -> list[str]:
    step = -(-len(heat.cells) // TERMINAL_ROWS)
    rows = [
        (heat.times[start], [sum(each) for each in zip(*heat.cells[start : start + step], strict=True)])
        for start in range(0, len(heat.cells), step)
    ]
    most = max(max(cells) for _, cells in rows) or 1
    return [
        f"{time}  {''.join(SHADES[round(value / most * (len(SHADES) - 1))] for value in cells)}" for time, cells in rows
    ]
