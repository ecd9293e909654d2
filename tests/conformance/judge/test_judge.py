"""The judge selects the rules of an event and keeps findings."""

from __future__ import annotations

from kafka_share_proxy.conformance.judge.judge import FRAME_BYTES_KEPT
from kafka_share_proxy.conformance.judge.rulebook import RULES
from kafka_share_proxy.wire.definitions import messages

from tests.support.judged import JudgedClient, batch, produce, share_fetch


def test_a_finding_has_the_rule_the_client_and_the_request() -> None:
    client = JudgedClient()
    request = client.send(messages.MetadataRequest(topics=[]), unread=2)
    (finding,) = client.judge.findings
    assert (finding.rule.id, finding.client_id, finding.connection) == ("unread-bytes", "c", 1)
    assert finding.detail == "2 bytes after the last field of Metadata v13"
    assert finding.frame == request.frame


def test_a_repeated_violation_is_counted() -> None:
    client = JudgedClient()
    for _ in range(3):
        client.send(messages.MetadataRequest(topics=[]), unread=2)
    assert [finding.count for finding in client.judge.findings] == [3]


def test_an_inspection_reports_an_omission_once() -> None:
    client = JudgedClient()
    client.send(share_fetch(0))
    client.close()
    client.inspect()
    client.inspect()
    assert [(finding.rule.id, finding.count) for finding in client.judge.findings] == [("final-epoch-missing", 1)]


def test_a_long_request_is_cut() -> None:
    client = JudgedClient()
    client.send(produce(batch() + bytes(FRAME_BYTES_KEPT)), version=9)
    assert [len(finding.frame) for finding in client.judge.findings] == [FRAME_BYTES_KEPT]


def test_all_rules_are_used() -> None:
    assert tuple(JudgedClient().judge.rules) == RULES
