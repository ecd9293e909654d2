"""The rules as a whole."""

from __future__ import annotations

import re

from kafka_share_proxy.conformance.judge.rulebook import RULES


def test_each_rule_has_its_own_id_a_sentence_and_a_source() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES) >= 50
    for rule in RULES:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", rule.id)
        assert rule.sentence.endswith(".")
        assert rule.source
