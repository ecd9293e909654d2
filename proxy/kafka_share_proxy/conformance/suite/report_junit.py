"""The report of a run as JUnit XML, one test suite for each suite. A case that differs counts as skipped."""

from __future__ import annotations

from xml.etree import ElementTree

from kafka_share_proxy.conformance.junit import document, xml_text
from kafka_share_proxy.conformance.suite.outcomes import Outcome, RunReport, Status
from kafka_share_proxy.conformance.suite.report_text import details


def as_junit(report: RunReport) -> str:
    """Return the report as JUnit XML."""
    root = ElementTree.Element("testsuites", name="kafka conformance", time=f"{report.duration_s:.3f}")
    for name, counts in report.suites.items():
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(counts.total()),
            failures=str(counts[Status.FAILED]),
            skipped=str(counts[Status.SKIPPED] + counts[Status.DIFFERS]),
            timestamp=report.started_at,
            hostname=report.bootstrap,
        )
        for outcome in report.outcomes:
            if outcome.case.suite == name:
                _add(suite, outcome)
    return document(root)


def _add(suite: ElementTree.Element, outcome: Outcome) -> None:
    case = outcome.case
    class_name, _, name = case.id.rpartition(".")
    element = ElementTree.SubElement(
        suite, "testcase", classname=class_name, name=name, time=f"{outcome.duration_s:.3f}"
    )
    if outcome.status is Status.FAILED:
        message = f"{outcome.reason}: expected {outcome.expected}, seen {outcome.actual}"
        failure = ElementTree.SubElement(element, "failure", message=xml_text(message))
        failure.text = xml_text(details(outcome))
    elif outcome.status is not Status.PASSED:
        ElementTree.SubElement(element, "skipped", message=xml_text(f"{outcome.status.value}: {outcome.reason}"))
