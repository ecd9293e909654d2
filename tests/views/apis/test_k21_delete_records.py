"""A view has no separate records to be deleted."""

from __future__ import annotations

from typing import Any

from tests.support.view_broker import World

V = "__view.r4.orders"


def expected(*names: str) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "offset": 5}, {"partition_index": 1, "offset": 5}]
    return {"topics": [{"name": name, "partitions": partitions} for name in names], "timeout_ms": 1}


def test_delete_records_of_a_view_returns_policy_violation_and_others_are_forwarded() -> None:
    """POLICY_VIOLATION, per partition."""
    world = World()
    response = world.call(21, 2, **expected(V, "orders"))
    codes_by_topic = {topic.name: [part.error_code for part in topic.partitions] for topic in response.topics}
    assert codes_by_topic == {V: [44, 44], "orders": [0, 0]}
    assert [topic.name for _, request in world.cluster.requested for topic in request.topics] == ["orders"]


def test_a_request_about_views_only_sends_no_request() -> None:
    """And one about none is not looked at."""
    world = World()
    world.call(21, 2, **expected(V))
    assert world.cluster.requested == []
    assert not world.is_served(21, 2, **expected("orders"))
    assert world.call(21, 2, **expected("orders")) is None
