"""Numbers of a report."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.outcomes import Status

from tests.conformance.suite.reported import REPORT


def test_cases_are_counted_by_suite_and_status() -> None:
    assert [REPORT.count(status) for status in Status] == [1, 1, 1, 1]
    assert REPORT.count(Status.FAILED, "second") == 0
    assert {name: counts.total() for name, counts in REPORT.suites.items()} == {"first": 2, "second": 2}
    assert [each.case.id for each in REPORT.failed] == ["first.a.failed"]
