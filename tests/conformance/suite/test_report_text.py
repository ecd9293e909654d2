"""The report for the terminal."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.report_text import details, table
from rich.console import Console

from tests.conformance.suite.reported import EXCHANGE, REPORT


def test_a_failure_shows_the_rule_the_expectation_and_both_messages() -> None:
    text = details(REPORT.failed[0])
    for part in (
        "first.a.failed", "The rule of first.a.failed <holds>.", "KIP-932 & others", "expected: 0 (NONE)",
        "seen:     3", EXCHANGE.request_tree, EXCHANGE.response_tree, EXCHANGE.response_hex,
    ):  # fmt: skip
        assert part in text


def test_the_table_has_a_row_for_each_suite_and_for_all() -> None:
    console = Console(width=100, record=True)
    with console.capture() as captured:
        console.print(table(REPORT))
    rows = [line.split() for line in captured.get().splitlines()]
    assert rows == [
        ["SUITE", "PASSED", "FAILED", "SKIPPED", "DIFFERS"],
        ["first", "1", "1", "-", "-"],
        ["second", "-", "-", "1", "1"],
        ["all", "1", "1", "1", "1"],
    ]
