"""A deleted view is forgotten, with what was stored of it."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views import state_records
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_broker import World

V = "__view.r4.orders"


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 2)
    world.ensure(V)
    return world


@pytest.mark.parametrize("version", [5, 6])
def test_a_view_deleted_by_name_is_forgotten(world: World, version: int) -> None:
    """In the list of names or, from v6 on, among the states."""
    fields = {"topic_names": [V]} if version < 6 else {"topics": [{"name": V}]}
    assert world.is_served(20, version, timeout_ms=1, **fields)
    response = world.call(20, version, timeout_ms=1, **fields)
    assert [result.error_code for result in response.responses] == [0]
    assert world.catalog.by_name(V) is world.catalog.binding(V) is None
    assert world.stored[state_records.binding_key(V)] is None


def test_a_view_deleted_by_topic_id_is_forgotten(world: World) -> None:
    """Ids of other topics pass unseen."""
    view, base = world.cluster.topics[V].topic_id, world.cluster.topics["orders"].topic_id
    assert not world.is_served(20, 6, timeout_ms=1, topics=[{"name": None, "topic_id": base}])
    assert world.is_served(20, 6, timeout_ms=1, topics=[{"name": None, "topic_id": view}])
    world.call(20, 6, timeout_ms=1, topics=[{"name": None, "topic_id": view}])
    assert world.catalog.view(view) is None


def test_a_view_that_the_broker_did_not_delete_stays(world: World) -> None:
    """The client may have no right to."""
    world.cluster.codes[ApiKey.DELETE_TOPICS] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world.call(20, 6, timeout_ms=1, topics=[{"name": V}])
    assert world.catalog.by_name(V) is not None
