"""Findings are bounded."""

from __future__ import annotations

from kafka_share_proxy.conformance.judge.findings import FINDINGS_OF_RULE_MAX, ClientFindings
from kafka_share_proxy.conformance.judge.rule import Finding
from kafka_share_proxy.conformance.judge.rulebook import RULES


def test_one_rule_cannot_use_up_the_list() -> None:
    findings = ClientFindings()
    for number in range(FINDINGS_OF_RULE_MAX + 3):
        findings.add(Finding(RULES[0], f"detail {number}", "c", 1, 0.0))
    findings.add(Finding(RULES[1], "detail", "c", 1, 0.0))
    assert len(findings) == FINDINGS_OF_RULE_MAX + 1
    assert findings.dropped == 3


def test_cleared_findings_are_found_again() -> None:
    findings = ClientFindings()
    findings.add(Finding(RULES[0], "detail", "c", 1, 0.0))
    findings.clear()
    assert list(findings) == []
    findings.add(Finding(RULES[0], "detail", "c", 1, 0.0))
    assert [finding.count for finding in findings] == [1]
