"""A failure as text, and the table of a run for the terminal."""

from __future__ import annotations

from rich.table import Table

from kafka_share_proxy.conformance.suite.outcomes import Outcome, RunReport, Status


def details(outcome: Outcome) -> str:
    """Return id, sentence, source, expectation and the last exchanges of a case."""
    case = outcome.case
    lines = [case.id, case.sentence, f"source: {case.source}", "", outcome.reason]
    lines += [f"  expected: {outcome.expected}", f"  seen:     {outcome.actual}"]
    for exchange in outcome.exchanges:
        lines += ["", f"request {exchange.name}:", exchange.request_tree]
        lines += ["", f"response {exchange.name}:", exchange.response_tree]
        if exchange.response is not None:
            lines += ["bytes of the response:", exchange.response_hex]
    return "\n".join(lines)


def table(report: RunReport) -> Table:
    """Return the numbers of cases by suite and status."""
    shown = Table("SUITE", *(status.value.upper() for status in Status), box=None, pad_edge=False)
    for column in shown.columns[1:]:
        column.justify = "right"
    for name, counts in report.suites.items():
        shown.add_row(name, *(str(counts[status] or "-") for status in Status))
    if len(report.suites) > 1:
        shown.add_row("all", *(str(report.count(status) or "-") for status in Status))
    return shown
