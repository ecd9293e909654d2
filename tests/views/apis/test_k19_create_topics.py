"""A view's topic has the required number of partitions, whoever creates it."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.views.model.catalog import Binding

from tests.support.view_broker import World

V = "__view.r4.orders"


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 2)
    return world


def expected(name: str, partitions: int = -1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": -1,
        "assignments": [],
        "configs": [],
    } | more


def create(world: World, *topics: dict[str, Any], version: int = 7, **fields: Any) -> dict[str, int]:
    response = world.call(19, version, topics=list(topics), timeout_ms=1000, **fields)
    return {topic.name: topic.error_code for topic in response.topics}


def test_defaults_become_the_partitions_replication_and_settings_of_a_view(world: World) -> None:
    """Partitions, replication and settings; and it is bound to its base immediately."""
    assert create(world, expected(V)) == {V: 0}
    view_topic = world.cluster.topics[V]
    assert (view_topic.partitions, view_topic.replicas, view_topic.configs["max.message.bytes"]) == (8, [1, 2], "0")
    assert world.catalog.binding(V) == Binding(view_topic.topic_id, world.cluster.topics["orders"].topic_id)


def test_a_wrong_number_of_partitions_returns_invalid_partitions(world: World) -> None:
    """37, with the number it should be."""
    placed = expected("__view.s2.orders", -1, assignments=[{"partition_index": 0, "broker_ids": [1]}])
    assert create(world, expected(V, 8), expected("__view.r2.orders", 5), placed, expected("plain", 3)) == {
        V: 0,
        "plain": 0,
        "__view.r2.orders": 37,
        "__view.s2.orders": 37,
    }
    assert world.cluster.topics["plain"].partitions == 3


def test_settings_the_client_gives_stay(world: World) -> None:
    """It may want others."""
    create(world, expected(V, configs=[{"name": "max.message.bytes", "value": "17"}]))
    assert world.cluster.topics[V].configs["max.message.bytes"] == "17"


def test_invalid_views_are_refused(world: World) -> None:
    """17 for names, unknown plans and too many partitions; 3 without a base."""
    names = ["__view.r0.orders", "__view.pnone.orders", "__view.r2.nothing"]
    assert create(world, *map(expected, names)) == dict(zip(names, [17, 17, 3], strict=True))
    assert world.cluster.count(19) == 0


def test_a_validate_only_request_binds_nothing(world: World) -> None:
    """validate_only."""
    create(world, expected(V), validate_only=True)
    assert world.catalog.binding(V) is None


def test_requests_without_views_are_not_inspected(world: World) -> None:
    """They pass as they come."""
    assert not world.is_served(19, 7, topics=[expected("orders")], timeout_ms=1)
    assert world.is_served(19, 7, topics=[expected(V)], timeout_ms=1)
    assert world.call(19, 7, topics=[expected("plain")], timeout_ms=1) is None
