"""The report of a run as one HTML file without references to others."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kafka_share_proxy.conformance.suite.outcomes import Outcome, RunReport, Status
from kafka_share_proxy.conformance.suite.report_text import details

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem; text-align: left; vertical-align: top; }
td.number { text-align: right; } tr:nth-child(even) { background: #f5f5f5; }
.passed { color: #17692f; } .failed { color: #b3261e; } .skipped { color: #666; } .differs { color: #8a5a00; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; font-size: 12px; } code { font-size: 13px; }
@media (prefers-color-scheme: dark) { body { background: #1c1c1e; color: #ddd; } pre, tr:nth-child(even)
{ background: #2a2a2c; } .passed { color: #6bcf8a; } .failed { color: #ff8a80; } .differs { color: #e0b060; } }
"""


def as_html(report: RunReport) -> str:
    """Return the report as HTML."""
    title = f"Kafka conformance of {report.bootstrap}"
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style></head>',
            f"<body><h1>{escape(title)}</h1>",
            f"<p>Release by its features: {escape(report.release)}. Started {escape(report.started_at)}, "
            f"{report.duration_s:.0f} s.</p>",
            *_summary(report),
            *_missing(report),
            *(line for name in report.suites for line in _suite(report, name)),
            "</body></html>\n",
        )
    )


def _summary(report: RunReport) -> Iterator[str]:
    yield "<table><tr><th>suite</th>" + "".join(f"<th>{status.value}</th>" for status in Status) + "</tr>"
    for name, counts in report.suites.items():
        cells = "".join(f'<td class="number {status.value}">{counts[status]}</td>' for status in Status)
        yield f'<tr><td><a href="#{escape(name)}">{escape(name)}</a></td>{cells}</tr>'
    yield "</table>"


def _missing(report: RunReport) -> Iterator[str]:
    if report.missing:
        yield "<h2>Not offered</h2><ul>"
        yield from (f"<li><code>{escape(name)}</code>: {escape(why)}</li>" for name, why in report.missing.items())
        yield "</ul>"


def _suite(report: RunReport, name: str) -> Iterator[str]:
    yield f'<h2 id="{escape(name)}">{escape(name)}</h2><table>'
    for outcome in report.outcomes:
        if outcome.case.suite == name:
            yield _row(outcome)
    yield "</table>"


def _row(outcome: Outcome) -> str:
    status, case = outcome.status.value, outcome.case
    text = f"<code>{escape(case.id)}</code><br>{escape(case.sentence)}"
    if outcome.status is not Status.PASSED:
        text += f"<br><small>{escape(outcome.reason)}</small>"
    if outcome.expected:
        text += f"<details><summary>what the peer did</summary><pre>{escape(details(outcome))}</pre></details>"
    return f'<tr><td class="{status}">{status}</td><td>{text}</td><td><small>{escape(case.source)}</small></td></tr>'
