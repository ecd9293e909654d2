"""A heartbeat that subscribes to a view finds it made when it reaches the broker."""

from __future__ import annotations

from typing import Any

from tests.support.view_broker import World

V = "__view.r4.orders"
KEY = 68


def beat(*names: str) -> dict[str, Any]:
    return {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": list(names) or None}


def test_views_are_made_and_the_heartbeat_goes_on() -> None:
    """librdkafka asks for no Metadata before it joins."""
    world = World()
    world.cluster.make("orders", 1)
    assert world.is_served(KEY, 1, **beat("orders", V))
    assert world.call(KEY, 1, **beat("orders", V)) is None
    assert world.cluster.topics[V].partitions == 4


def test_what_stands_in_a_views_way_is_no_matter_of_the_heartbeat() -> None:
    """Metadata tells it."""
    world = World()
    assert world.call(KEY, 1, **beat("__view.r4.nothing", "__view.junk")) is None
    assert world.call(KEY, 1, **beat(V)) is None


def test_heartbeats_that_name_no_view_pass() -> None:
    """Most name no topic at all."""
    world = World()
    assert not world.is_served(KEY, 1, **beat())
    assert not world.is_served(KEY, 1, **beat("orders"))
