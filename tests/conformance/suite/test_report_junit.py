"""The report as JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree

from kafka_share_proxy.conformance.suite.report_junit import as_junit

from tests.conformance.suite.reported import EXCHANGE, REPORT


def test_each_case_is_in_its_suite_with_its_result() -> None:
    root = ElementTree.fromstring(as_junit(REPORT))
    first, second = root.findall("testsuite")
    assert (first.get("name"), first.get("tests"), first.get("failures"), first.get("skipped")) == (
        "first",
        "2",
        "1",
        "0",
    )
    assert (second.get("failures"), second.get("skipped")) == ("0", "2")
    names = [(each.get("classname"), each.get("name")) for each in root.iter("testcase")]
    assert names == [("first.a", "passed"), ("first.a", "failed"), ("second.a", "skipped"), ("second.a", "differs")]


def test_a_failure_has_its_details_without_characters_that_xml_forbids() -> None:
    failure = ElementTree.fromstring(as_junit(REPORT)).find(".//failure")
    assert failure is not None
    assert failure.get("message") == "error?: expected 0 (NONE), seen 3 <x>"
    assert EXCHANGE.response_hex in (failure.text or "")


def test_skipped_cases_have_their_reason() -> None:
    messages = [each.get("message") for each in ElementTree.fromstring(as_junit(REPORT)).iter("skipped")]
    assert messages == ["skipped: Fetch is not offered", "differs: an older rule (error)"]
