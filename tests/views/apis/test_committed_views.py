"""A commit to a view that does not exist yet creates it; commits to views that are known pass."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_broker import World

V = "__view.r4.orders"
OFFSET_COMMIT, TXN_OFFSET_COMMIT = 8, 28
APIS = [(OFFSET_COMMIT, 2), (OFFSET_COMMIT, 9), (TXN_OFFSET_COMMIT, 0), (TXN_OFFSET_COMMIT, 5)]


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 1)
    return world


def commit(key: int, *topics: str, metadata: str = "") -> dict[str, Any]:
    parts = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": metadata}]
    fields: dict[str, Any] = {"group_id": "g", "topics": [{"name": topic, "partitions": parts} for topic in topics]}
    if key == TXN_OFFSET_COMMIT:
        fields |= {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    return fields


@pytest.mark.parametrize(("key", "version"), APIS)
def test_a_commit_creates_the_view_and_continues(world: World, key: int, version: int) -> None:
    """A tool may commit offsets before any consumer reads."""
    assert world.is_served(key, version, **commit(key, "orders", V))
    assert world.call(key, version, **commit(key, "orders", V)) is None
    assert world.cluster.topics[V].partitions == 4


@pytest.mark.parametrize(("key", "version"), APIS)
def test_a_commit_to_a_view_that_is_known_passes(world: World, key: int, version: int) -> None:
    """Consumers commit often: it is not decoded."""
    world.ensure(V)
    assert not world.is_served(key, version, **commit(key, V, "orders"))
    assert not world.is_served(key, version, **commit(key, "orders", metadata="__view.r9.orders"))
    assert world.is_served(key, version, **commit(key, V, "__view.r9.orders"))


@pytest.mark.parametrize(("key", "version"), APIS)
def test_a_commit_to_a_view_that_cannot_be_created_is_forwarded(world: World, key: int, version: int) -> None:
    world.cluster.codes[ApiKey.CREATE_TOPICS] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.call(key, version, **commit(key, V, "__view.junk", "__view.r2.nothing")) is None


def test_a_commit_by_topic_id_passes(world: World) -> None:
    """A topic id belongs to a topic that exists."""
    topics = [{"topic_id": b"__view.r4.orders", "partitions": []}]
    assert not world.is_served(OFFSET_COMMIT, 10, group_id="g", topics=topics)
