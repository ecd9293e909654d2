"""Reports of the findings: JSON and JUnit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

from kafka_share_proxy.conformance.judge.findings import ClientFindings
from kafka_share_proxy.conformance.judge.rule import ClientRule, Finding
from kafka_share_proxy.conformance.junit import document, xml_text
from kafka_share_proxy.wire.codec import headers
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ProxyError

BYTES_SHOWN = 64
TREE_LINES_MAX = 200
"""Maximum number of lines of a decoded request."""


def as_json(findings: ClientFindings) -> dict[str, Any]:
    """Return the findings as JSON values."""
    return {"findings": [entry(finding) for finding in findings], "dropped": findings.dropped}


def entry(finding: Finding) -> dict[str, Any]:
    """Return one finding as JSON values."""
    return {
        "rule": finding.rule.id,
        "severity": finding.rule.severity,
        "sentence": finding.rule.sentence,
        "source": finding.rule.source,
        "detail": finding.detail,
        "client_id": finding.client_id,
        "connection": finding.connection,
        "count": finding.count,
        "request": decoded(finding.frame),
    }


def decoded(frame: bytes) -> list[str]:
    """Return the lines of the decoded request, and of the bytes after it; none without a request."""
    if not frame:
        return []
    from kafka_share_proxy.wire.codec import tree  # construct is slow to import

    end = _end_of_request(frame)
    lines = [line for node in tree.capture(end.to_bytes(4, "big") + frame[:end]) for line in node.lines()]
    shown = lines if len(lines) <= TREE_LINES_MAX else [*lines[:TREE_LINES_MAX], "..."]
    return shown if end == len(frame) else [*shown, f"unread: 0x{frame[end : end + BYTES_SHOWN].hex()}"]


def _end_of_request(frame: bytes) -> int:
    """Return the position after the last field, or the size of the frame if it cannot be decoded."""
    try:
        header, position = headers.decode_request_header(frame)
        return registry.request(header.key, header.version).decode_prefix(frame, position)[1]
    except ProxyError:
        return len(frame)


def as_junit(findings: ClientFindings, rules: Iterable[ClientRule]) -> str:
    """Return a JUnit document with a test case for each rule. Errors are failures, advice is output."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule.id, []).append(finding)
    listed = tuple(rules)
    failed = sum(rule.severity == "error" and rule.id in by_rule for rule in listed)
    suite = ElementTree.Element(
        "testsuite", name="kafka-share-proxy.judge", tests=str(len(listed)), failures=str(failed), errors="0"
    )
    for rule in listed:
        _add_case(suite, rule, by_rule.get(rule.id, []))
    return document(suite)


def _add_case(suite: ElementTree.Element, rule: ClientRule, findings: list[Finding]) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname="judge", name=rule.id)
    if not findings:
        return
    text = xml_text("\n\n".join(_text(finding) for finding in findings))
    if rule.severity == "error":
        message = f"{rule.sentence} ({rule.source})"
        ElementTree.SubElement(case, "failure", message=message, type=rule.id).text = text
    else:
        ElementTree.SubElement(case, "system-out").text = text


def _text(finding: Finding) -> str:
    head = f"{finding.client_id or 'client'}, connection {finding.connection}, {finding.count} times: {finding.detail}"
    return "\n".join([head, *decoded(finding.frame)])
