"""The account of responses made here."""

from __future__ import annotations

from kafka_share_proxy.forwarding.memory_budget import ResponseBudget


def test_room_is_what_is_neither_reserved_nor_unsent() -> None:
    budget = ResponseBudget(100)
    assert budget.reserve(60)
    assert not budget.reserve(50)
    budget.release(60)
    budget.add_unsent(30)
    assert budget.used == 30
    assert budget.has_room(70)
    assert not budget.has_room(71)
    budget.sent(30)
    assert budget.used == 0


def test_one_response_is_always_admitted() -> None:
    """Else a limit below one record batch would stop everything."""
    budget = ResponseBudget(10)
    assert budget.reserve(50)
    assert not budget.has_room(1)


def test_what_was_refused_is_counted() -> None:
    budget = ResponseBudget(10)
    budget.add_unsent(10)
    budget.reserve(1)
    budget.reserve(1)
    assert budget.refusals == 2
