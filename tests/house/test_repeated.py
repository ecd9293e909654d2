"""Tests with many cases in one."""

from __future__ import annotations

import inspect

import pytest

from tests.support.repeated import repeated


def test_every_case_is_run_and_fixtures_are_passed() -> None:
    ran: list[tuple[str, int, object]] = []

    @repeated(("name, version"), [("a", 1), ("b", 2)])
    def test(name: str, version: int, fixture: object) -> None:
        ran.append((name, version, fixture))

    assert [*inspect.signature(test).parameters] == ["fixture"]
    test(fixture="f")
    assert ran == [("a", 1, "f"), ("b", 2, "f")]


def test_a_failure_names_its_case() -> None:
    @repeated("seed", range(5))
    def test(seed: int) -> None:
        assert seed != 3

    with pytest.raises(AssertionError) as raised:
        test()
    assert raised.value.__notes__ == ["with seed=3"]


def test_cases_must_not_be_missing() -> None:
    with pytest.raises(AssertionError, match="no case of seed"):
        repeated("seed", [])
