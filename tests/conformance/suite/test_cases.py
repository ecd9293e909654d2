"""Declaration and selection of cases."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.conformance.suite.cases import CASES, Case, DuplicateCase, Registry, case_for_each


async def body(_run: object) -> None:
    """Check nothing."""


def case(case_id: str) -> Case:
    return Case(case_id, "A sentence.", "KIP-0", body)


def filled(*ids: str) -> Registry:
    registry = Registry()
    for each in ids:
        registry.add(case(each))
    return registry


def test_an_id_is_used_once() -> None:
    registry = filled("a.b.c")
    with pytest.raises(DuplicateCase, match=r"a\.b\.c"):
        registry.add(case("a.b.c"))


def test_cases_are_selected_by_suite_and_pattern() -> None:
    registry = filled("a.x.one", "a.y.two", "b.x.three")
    assert [each.id for each in registry.select(["a"])] == ["a.x.one", "a.y.two"]
    assert [each.id for each in registry.select((), ["x.*"])] == []
    assert [each.id for each in registry.select((), ["*.x.*"])] == ["a.x.one", "b.x.three"]
    assert [each.id for each in registry.select(["b"], ["three", "one"])] == ["b.x.three"]
    assert registry.suites == ["a", "b"]


def test_each_row_becomes_a_case_with_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    own, rows = Registry(), []
    monkeypatch.setattr(CASES, "add", own.add)

    @case_for_each(
        {"low": (1, "x"), "high": (9, "y")}, "s.subject.{name}", "KIP-0", needs=("Fetch:{0}",),
        differs={"high": {"3.9": "why"}},
    )  # fmt: skip
    async def declared(_run: object, number: int, text: str) -> None:
        """{0} is {1}."""
        rows.append((number, text))

    low, high = own.select()
    assert (low.id, low.sentence, low.needs, low.differs) == ("s.subject.low", "1 is x.", ("Fetch:1",), {})
    assert high.differs == {"3.9": "why"}
    trio.run(high.body, None)
    assert rows == [(9, "y")]
