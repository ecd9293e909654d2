"""The report of a run as JSON, for programs: names stay, new ones may be added."""

from __future__ import annotations

import json
from typing import Any

from kafka_share_proxy.conformance.suite.outcomes import Outcome, RunReport, Status


def as_json(report: RunReport) -> str:
    """Return the report as JSON text."""
    return json.dumps(
        {
            "bootstrap": report.bootstrap,
            "release": report.release,
            "started_at": report.started_at,
            "duration_s": round(report.duration_s, 3),
            "counts": {status.value: report.count(status) for status in Status},
            "suites": {
                name: {status.value: counts[status] for status in Status} for name, counts in report.suites.items()
            },
            "missing": report.missing,
            "left_behind": report.left_behind,
            "cases": [_outcome(each) for each in report.outcomes],
        },
        indent=2,
    )


def _outcome(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    values: dict[str, Any] = {"id": case.id, "sentence": case.sentence, "source": case.source}
    values |= {"status": outcome.status.value, "duration_s": round(outcome.duration_s, 3)}
    if outcome.status is not Status.PASSED:
        values["reason"] = outcome.reason
    if outcome.expected:
        values |= {"expected": outcome.expected, "seen": outcome.actual}
        values["exchanges"] = [
            {"api": each.name, "request": each.request_tree, "response": each.response_tree, "hex": each.response_hex}
            for each in outcome.exchanges
        ]
    return values
