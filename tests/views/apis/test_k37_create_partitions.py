"""A view grows with its base, and in no other way."""

from __future__ import annotations

from typing import Any

from tests.support.view_broker import World

V = "__view.r4.orders"


def expected(*names: str) -> dict[str, Any]:
    return {"topics": [{"name": name, "count": 9, "assignments": None} for name in names], "timeout_ms": 1}


def test_create_partitions_of_a_view_returns_policy_violation_and_others_are_forwarded() -> None:
    """POLICY_VIOLATION."""
    world = World()
    world.cluster.make("orders", 2)
    response = world.call(37, 3, **expected(V, "orders"))
    assert {result.name: result.error_code for result in response.results} == {V: 44, "orders": 0}
    assert world.cluster.topics["orders"].partitions == 9


def test_a_request_about_views_only_sends_no_request() -> None:
    """And one about none is not looked at."""
    world = World()
    world.call(37, 3, **expected(V))
    assert world.cluster.requested == []
    assert not world.is_served(37, 3, **expected("orders"))
    assert world.call(37, 3, **expected("orders")) is None
