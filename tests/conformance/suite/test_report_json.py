"""The report as JSON."""

from __future__ import annotations

import json

from kafka_share_proxy.conformance.suite.report_json import as_json

from tests.conformance.suite.reported import EXCHANGE, REPORT


def test_counts_and_cases_are_in_the_report() -> None:
    read = json.loads(as_json(REPORT))
    assert read["counts"] == {"passed": 1, "failed": 1, "skipped": 1, "differs": 1}
    assert read["suites"]["second"] == {"passed": 0, "failed": 0, "skipped": 1, "differs": 1}
    assert read["missing"] == {"views": "not shown"}
    passed, failed, skipped, _ = read["cases"]
    assert "reason" not in passed
    assert (failed["expected"], failed["seen"]) == ("0 (NONE)", "3 <x>")
    assert failed["exchanges"][0]["hex"] == EXCHANGE.response_hex
    assert skipped["reason"] == "Fetch is not offered"
