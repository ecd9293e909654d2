"""Reports of findings."""

from __future__ import annotations

from xml.etree import ElementTree

from kafka_share_proxy.conformance.judge import reports
from kafka_share_proxy.conformance.judge.rulebook import RULES
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.support.judged import JudgedClient, share_fetch

FRAME = frames.request(ApiKey.METADATA, 12, 7, "c", messages.MetadataRequest(topics=[]))[4:]


def test_a_request_is_shown_as_a_tree() -> None:
    assert reports.decoded(FRAME)[0] == f"frame 0: MetadataRequest v12 ({len(FRAME)} bytes)"
    assert "  Topics: 0" in reports.decoded(FRAME)


def test_bytes_after_the_request_are_shown() -> None:
    assert reports.decoded(FRAME + b"\1\2")[-1] == "unread: 0x0102"


def test_a_request_that_cannot_be_decoded_is_shown_as_bytes() -> None:
    assert "cannot be read" in reports.decoded(FRAME[:-1])[0]
    assert "there is no API with key 32767" in reports.decoded(b"\x7f\xff\0\0\0\0\0\1")[0]
    assert reports.decoded(b"") == []


def test_json_has_rule_source_and_request() -> None:
    client = JudgedClient()
    client.send(messages.MetadataRequest(topics=[]), unread=1)
    (finding,) = reports.as_json(client.judge.findings)["findings"]
    assert (finding["rule"], finding["severity"], finding["count"]) == ("unread-bytes", "error", 1)
    assert finding["source"] == "message definitions"
    assert finding["request"][0].startswith("frame 0: MetadataRequest v13")


def test_junit_has_a_case_for_each_rule() -> None:
    client = JudgedClient()
    client.send(share_fetch(0, member_id="\1"), unread=1)
    client.send(messages.MetadataRequest(topics=[]), client_id="d")
    suite = ElementTree.fromstring(reports.as_junit(client.judge.findings, RULES))
    cases = {case.get("name"): case for case in suite}
    assert len(cases) == len(RULES)
    assert suite.get("failures") == "1"
    failure = cases["unread-bytes"].find("failure")
    assert failure is not None
    assert "ShareFetchRequest v2" in (failure.text or "")
    assert cases["client-id-changed"].find("failure") is None
    assert cases["client-id-changed"].find("system-out") is not None
    assert len(cases["acks-invalid"]) == 0
