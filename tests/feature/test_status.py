"""The port between features and the status page."""

from __future__ import annotations

from kafka_share_proxy.feature.status import first


def test_items_beyond_the_limit_are_counted() -> None:
    assert first(iter("abcde"), 2) == (["a", "b"], 3)
    assert first("ab", 2) == (["a", "b"], 0)
    assert first("ab", 0) == ([], 2)
