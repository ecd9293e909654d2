"""Output of a report as one self-contained HTML file, and as text (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kafka_share_proxy.pipeline.plan.plan_job import PlannedTopic, few_samples, promise
from kafka_share_proxy.pipeline.report import report_plots
from kafka_share_proxy.pipeline.report.report_job import HEAT_COLUMNS, Heat, Report
from kafka_share_proxy.pipeline.report.report_plots import step_text
from kafka_share_proxy.pipeline.report.report_tables import ReportTable, span, tables
from kafka_share_proxy.wire.key_text import printable

SHADES = " .:-=+*#%@"
"""Characters of the heat map in a terminal, from no load to the heaviest."""
TERMINAL_ROWS = 12
WIDTH_ELSEWHERE = 400
"""Width in columns if the output is not a terminal: no row is wrapped."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1120px; padding: 0 1rem; color: #1c2430;
  background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { text-align: left; color: #5b6675; font-weight: 600; vertical-align: bottom }
td, th { padding: .25rem .6rem; border-bottom: 1px solid #e4e8ee } td.n, th.n { text-align: right; white-space: nowrap }
td { overflow-wrap: anywhere } img { display: block; max-width: 100%; height: auto } .note { color: #5b6675 }
"""


def page(report: Report, plans: Sequence[PlannedTopic] = ()) -> str:
    """Return the report as an HTML page, with the plans below the load by key."""
    sections = {table.title: _html(table) for table in tables(report)}
    blocked, hot = sections.pop("Held up by renewals", None), sections.pop("Hot keys", None)
    parts = [
        f"<h1>Deliveries and load by key</h1>{_note(span(report))}",
        "<h2>Deliveries</h2>",
        _image(report_plots.deliveries(report.deliveries), "Offsets delivered by time")
        if report.deliveries.steps
        else _note("There was no delivery of a share group."),
        sections.pop("Members of share groups", ""),
        blocked or f"<h2>Held up by renewals</h2>{_note('Nothing was.')}",
        *sections.values(),
        "<h2>Load by key range</h2>",
        *(_heat(heat) for heat in report.heats),
        *(_plan(plan, report) for plan in plans),
        hot or f"<h2>Hot keys</h2>{_note('None was seen.')}",
    ]
    return f"<!doctype html><meta charset=utf-8><title>Deliveries</title><style>{STYLE}</style>{''.join(parts)}\n"


def text(report: Report, width: int = WIDTH_ELSEWHERE) -> list[str]:
    """Return the report as lines of text for a terminal of this width."""
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False, markup=False, emoji=False)
    console.print(Text(span(report)))
    for table in tables(report):
        console.print()
        console.print(Text(table.title.upper()))
        console.print(_rich(table))
        more = len(table.rows) - TERMINAL_ROWS
        note = f"{more} more rows are in the page (--html). {table.note}" if more > 0 else table.note
        console.print(Text(note), soft_wrap=width == WIDTH_ELSEWHERE)
    for heat in report.heats:
        console.print()
        for line in _heat_notes(heat):
            console.print(Text(line), soft_wrap=width == WIDTH_ELSEWHERE)
        for line in _shades(heat):
            console.print(Text(line), soft_wrap=True)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def _rich(table: ReportTable) -> Table:
    rich_table = Table(box=None, pad_edge=False, header_style="")
    for number, head in enumerate(table.heads):
        rich_table.add_column(
            Text(head.capitalize()), justify="left" if number < table.left_aligned else "right", overflow="fold"
        )
    for row in table.rows[:TERMINAL_ROWS]:
        rich_table.add_row(*map(Text, row))
    return rich_table


def _html(table: ReportTable) -> str:
    kinds = ["" if number < table.left_aligned else " class=n" for number in range(len(table.heads))]
    head = "".join(f"<th{kind}>{escape(each.capitalize())}" for kind, each in zip(kinds, table.heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}" for kind, cell in zip(kinds, row, strict=True))
        for row in table.rows
    )
    return f"<h2>{escape(table.title)}</h2><table><tr>{head}{body}</table>{_note(table.note)}"


def _note(text: str) -> str:
    return f"<p class=note>{escape(printable(text))}</p>"


def _image(png: bytes, alt: str) -> str:
    return f'<img alt="{escape(printable(alt))}" src="data:image/png;base64,{b64encode(png).decode()}">'


def _heat_notes(heat: Heat) -> Iterator[str]:
    records = sum(map(sum, heat.cells))
    yield f"LOAD OF {printable(heat.topic)} BY KEY RANGE"
    yield (
        f"{HEAT_COLUMNS} even ranges of the hash across, {step_text(heat.step_s)} steps down (UTC); {records:,.0f} "
        f"records, {heat.sampled:,} keys sampled; the heaviest range has {heat.balance:.2f} x the mean"
    )


def _heat(heat: Heat) -> str:
    _, note = _heat_notes(heat)
    image = _image(report_plots.heat(heat), f"Load of {heat.topic} by key range and time")
    return f"<h3>{escape(printable(heat.topic))}</h3>{_note(note)}{image}"


def _plan(planned: PlannedTopic, report: Report) -> str:
    heat = next((each for each in report.heats if each.topic == planned.topic), None)
    facts = planned.made_from
    sentences = [
        f"A plan of {len(planned.plan.starts)} ranges for {planned.topic}, from {facts['rows']:,} records"
        + (f" ({facts['keys']:,} keys sampled)" if "keys" in facts else "")
        + f". Heaviest range: {promise(planned.plan)}."
    ]
    if planned.plan.samples_needed > 1:
        too_few = few_samples(planned.plan)
        sentences.append(f"{too_few[0].upper()}{too_few[1:]}.")
    return f"{_note(' '.join(sentences))}{_image(report_plots.plan(heat, planned.plan), f'Plan for {planned.topic}')}"


def _shades(heat: Heat) -> list[str]:
    step = -(-len(heat.cells) // TERMINAL_ROWS)
    rows = [
        (heat.times[start], [sum(each) for each in zip(*heat.cells[start : start + step], strict=True)])
        for start in range(0, len(heat.cells), step)
    ]
    highest = max(max(cells) for _, cells in rows) or 1
    return [
        f"{time:%m-%d %H:%M}  {''.join(SHADES[round(value / highest * (len(SHADES) - 1))] for value in cells)}"
        for time, cells in rows
    ]
