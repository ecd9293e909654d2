"""Declaration of rules."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_share_proxy.conformance.judge.events import ReceivedRequest
from kafka_share_proxy.conformance.judge.rule import ClientRule, ClientRules


def test_a_declared_rule_has_the_docstring_of_its_check_as_sentence() -> None:
    rules = ClientRules()

    @rules.rule("always-wrong", "KIP-0", keys=frozenset({3}), severity="advice")
    def check(_event: object, _history: object) -> Iterator[str]:
        """Nothing is right."""
        yield "wrong"

    assert rules == [
        ClientRule("always-wrong", "Nothing is right.", "KIP-0", check, keys=frozenset({3}), severity="advice")
    ]
    assert rules[0].on is ReceivedRequest
    assert list(check(None, None)) == ["wrong"]
