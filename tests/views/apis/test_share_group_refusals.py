"""Share groups do not read views."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_broker import World

V = "__view.r4.orders"


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 1)
    world.ensure(V)
    return world


def fetch(*topic_ids: bytes) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "acknowledgement_batches": []}]
    return {
        "group_id": "g", "member_id": "m", "share_session_epoch": 0, "max_wait_ms": 1, "min_bytes": 1, "max_records": 1,
        "batch_size": 1, "topics": [{"topic_id": each, "partitions": partitions} for each in topic_ids],
        "forgotten_topics_data": [],
    }  # fmt: skip


def test_a_subscription_to_a_view_is_refused(world: World) -> None:
    """42 with a text: a member ends with it instead of waiting for records that never come."""
    beat = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rack_id": None}
    assert world.is_served(ApiKey.SHARE_GROUP_HEARTBEAT, 1, subscribed_topic_names=["orders", V], **beat)
    response = world.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, subscribed_topic_names=["orders", V], **beat)
    assert (response.error_code, "views" in response.error_message) == (ErrorCode.INVALID_REQUEST, True)
    assert not world.is_served(ApiKey.SHARE_GROUP_HEARTBEAT, 1, subscribed_topic_names=["orders"], **beat)
    assert not world.is_served(ApiKey.SHARE_GROUP_HEARTBEAT, 1, subscribed_topic_names=None, **beat)


def test_acquiring_from_a_view_is_refused(world: World) -> None:
    """The topic id identifies it."""
    view, base = (world.cluster.topics[name].topic_id for name in (V, "orders"))
    assert not world.is_served(ApiKey.SHARE_FETCH, 1, **fetch(base))
    assert world.is_served(ApiKey.SHARE_FETCH, 1, **fetch(base, view))
    assert world.call(ApiKey.SHARE_FETCH, 1, **fetch(base, view)).error_code == ErrorCode.INVALID_REQUEST
    assert world.call(ApiKey.SHARE_FETCH, 1, **fetch(base)) is None


def test_setting_a_share_groups_offsets_on_a_view_is_refused(world: World) -> None:
    """They would mean nothing."""

    def alter(name: str) -> dict[str, Any]:
        parts = [{"partition_index": 0, "start_offset": 1}]
        return {"group_id": "g", "topics": [{"topic_name": name, "partitions": parts}]}

    assert world.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, **alter(V)).error_code == ErrorCode.INVALID_REQUEST
    assert world.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, **alter("orders")) is None
    assert not world.is_served(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, **alter("orders"))
