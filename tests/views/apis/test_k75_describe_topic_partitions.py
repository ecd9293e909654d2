"""Views as administrators see them, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_broker import World

V = "__view.r2.orders"
KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 2, epoch=7)
    world.ensure(V)
    return world


def describe(world: World, *names: str, cursor: tuple[str, int] | None = None) -> dict[str, Any]:
    at = {"topic_name": cursor[0], "partition_index": cursor[1]} if cursor else None
    topics = [{"name": name} for name in names]
    response = world.call(KEY, 0, topics=topics, response_partition_limit=100, cursor=at)
    return {topic.name: topic for topic in response.topics}


def test_a_view_without_a_topic_is_shown_and_not_created(world: World) -> None:
    """Without a topic id, with the leaders of its base, also to those who may not create it."""
    other = "__view.r4.orders"
    world.cluster.codes[ApiKey.CREATE_TOPICS] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = describe(world, V, other)
    assert {name: (entry.error_code, len(entry.partitions)) for name, entry in topics.items()} == {
        V: (0, 4),
        other: (0, 8),
    }
    shown = [(p.partition_index, p.leader_id, p.leader_epoch) for p in topics[other].partitions]
    assert shown == [(index, 1 + index // 4, 7) for index in range(8)]
    assert (bytes(topics[other].topic_id), topics[other].topic_authorized_operations) == (bytes(16), 264)
    assert topics[other].is_internal is False
    assert other not in world.cluster.topics


def test_a_view_without_a_topic_is_on_the_page_of_its_name(world: World) -> None:
    """Once, though the broker, which does not know it, counts the pages."""
    first, second = "__view.r1000.orders", "__view.r4.orders"
    world.cluster.page = (V, 2)
    page = describe(world, first, V, second)
    assert {name: len(entry.partitions) for name, entry in page.items()} == {first: 2000, V: 2}
    world.cluster.page = None
    page = describe(world, first, V, second, cursor=(V, 2))
    assert {name: len(entry.partitions) for name, entry in page.items()} == {V: 2, second: 8}


def test_a_view_is_shown_with_the_partitions_of_its_base(world: World) -> None:
    """Other topics as the broker says."""
    topics = describe(world, V, "orders")
    shown = [(p.partition_index, p.leader_id, p.leader_epoch, list(p.replica_nodes)) for p in topics[V].partitions]
    assert shown == [(0, 1, 7, [1, 2]), (1, 1, 7, [1, 2]), (2, 2, 7, [1, 2]), (3, 2, 7, [1, 2])]
    assert (topics[V].partitions[0].eligible_leader_replicas, topics[V].partitions[0].last_known_elr) == ([], [])
    assert {p.leader_id for p in topics["orders"].partitions} == {99}


def test_a_cursor_inside_a_view_continues_there(world: World) -> None:
    """It counts the view's own partitions."""
    topics = describe(world, V, "orders", cursor=(V, 3))
    assert [p.partition_index for p in topics[V].partitions] == [3]


def test_entries_with_errors_are_on_one_page(world: World) -> None:
    """17 and 3, without partitions; not again after a cursor."""
    bad = ["__view.junk", "__view.r2.nothing"]
    topics = describe(world, V, *bad)
    assert {name: (topics[name].error_code, len(topics[name].partitions)) for name in bad} == {
        "__view.junk": (17, 0),
        "__view.r2.nothing": (3, 0),
    }
    assert set(describe(world, V, *bad, cursor=("orders", 0))) == set()


def test_only_invalid_names_send_no_request(world: World) -> None:
    """An empty list would ask for all topics."""
    assert list(describe(world, "__view.junk")) == ["__view.junk"]
    assert world.cluster.count(KEY) == 0


def test_all_topics_are_without_views_and_the_proxys_own(world: World) -> None:
    """Metadata does the same."""
    world.cluster.make("__proxy_views", 1)
    assert list(describe(world)) == ["orders"]


def test_requests_that_name_no_view_pass(world: World) -> None:
    """Those about all topics are not."""
    fields = {"response_partition_limit": 1, "cursor": None}
    assert not world.is_served(KEY, 0, topics=[{"name": "orders"}], **fields)
    assert world.is_served(KEY, 0, topics=[{"name": V}], **fields)
    assert world.is_served(KEY, 0, topics=[], **fields)
