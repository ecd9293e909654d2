"""The list of what is served."""

from __future__ import annotations

from kafka_share_proxy.conformance.target import offer_list


def test_apis_refusals_rules_and_actions_are_listed() -> None:
    lines = list(offer_list.lines())
    served, refused = lines.index("Served APIs, with versions:"), lines.index(next(x for x in lines if "Refused" in x))
    assert served < lines.index("   18 ApiVersions 0-4") < refused
    assert refused < lines.index("   50 DescribeUserScramCredentials")
    assert any("a plan that is not stored" in line for line in lines[refused:])
    assert any(line.startswith("  acknowledge-not-held (error): ") for line in lines)
    assert "  clock/advance ms" in lines
