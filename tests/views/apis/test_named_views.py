"""Which requests may be about views."""

from __future__ import annotations

from kafka_share_proxy.views.apis.named_views import NAMES_VIEW, SEARCHED_BYTES, has_view_id
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

from tests.support.view_broker import World


def test_a_request_without_the_prefix_passes() -> None:
    message = registry.message("ListOffsetsRequest")
    for name, is_view in (("t", False), ("__view.r2.t", True)):
        request = message(replica_id=-1, topics=[message.ListOffsetsTopic(name=name)])
        assert NAMES_VIEW.matcher(2, 7)(memoryview(frames.request(2, 7, 1, "c", request))[4:]) is is_view


def test_ids_of_added_and_removed_views_are_searched_accordingly() -> None:
    """A long request is not searched while there are views."""
    world = World()
    matches = has_view_id(world.catalog).matcher(20, 6)
    long = memoryview(bytes(SEARCHED_BYTES + 1))
    assert not matches(long)
    world.cluster.make("orders", 1)
    world.ensure("__view.r4.orders")
    topic_id = world.cluster.topics["__view.r4.orders"].topic_id
    assert matches(long)
    assert matches(memoryview(b"before " + topic_id + b" behind"))
    assert not matches(memoryview(b"x" * 100))
    world.catalog.forget("__view.r4.orders")
    assert not matches(memoryview(topic_id))
