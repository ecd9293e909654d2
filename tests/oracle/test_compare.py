"""The comparison of transcripts itself."""

from __future__ import annotations

from tests.oracle.compare import differences


def test_equal_transcripts() -> None:
    """Nothing differs."""
    assert differences("1", [("a", {"x": [1, 2]})], [("a", {"x": [1, 2]})]) == []


def test_a_field_differs() -> None:
    """The path and both values are reported."""
    assert differences("1", [("a", {"x": [1, 2]})], [("a", {"x": [1, 3]})]) == ["1/0/1/x/1: native 2, proxy 3"]


def test_something_is_missing() -> None:
    """Fields and steps that only one has are differences."""
    assert differences("1", [("a", {"x": 1})], [("a", {})]) == ["1/0/1/x: native 1, proxy '(absent)'"]
    assert len(differences("1", [("a", {}), ("b", {})], [("a", {})])) == 1


def test_allowed() -> None:
    """Intended differences are ignored, but only with the intended values."""
    native, proxy = [("a", {"current_leader": {"leader_id": 0}})], [("a", {"current_leader": {"leader_id": -1}})]
    assert differences("1", native, proxy) == []
    assert len(differences("1", proxy, native)) == 1
