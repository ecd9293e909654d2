"""Requests to brokers about views."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views import broker_requests
from kafka_share_proxy.views.model.base_comparison import TopicState
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError

from tests.support.view_broker import World


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 2)
    return world


def test_metadata_requests_create_no_topics(world: World) -> None:
    """A broker that makes topics by itself would make views with the wrong number of partitions."""
    entries = world.run(broker_requests.request_topics(world.client, ["orders", "nothing", "orders"]))
    assert {name: broker_requests.state_of(entry).code for name, entry in entries.items()} == {
        "orders": 0,
        "nothing": 3,
    }
    ((_, request),) = world.cluster.requested
    assert request.allow_auto_topic_creation is False
    assert [topic.name for topic in request.topics] == ["orders", "nothing"]


def test_a_topic_is_found_by_its_id(world: World) -> None:
    """An unknown id gets an error."""
    topic_id = world.cluster.topics["orders"].topic_id
    entries = world.run(broker_requests.request_ids(world.client, [topic_id, b"?" * 16]))
    assert [(entry.name, entry.error_code) for entry in entries] == [("orders", 0), (None, 100)]


def test_views_are_made_grown_and_deleted(world: World) -> None:
    """Deleting goes by id: a later topic of the same name stays."""
    assert world.run(broker_requests.create(world.client, {1: {"v": 4}}, 5.0)) == {"v": (0, "")}
    assert world.cluster.topics["v"].configs == broker_requests.CONFIGS
    assert world.run(broker_requests.grow(world.client, "v", 8, 5.0)) == (0, "")
    assert world.cluster.topics["v"].partitions == 8
    old = world.cluster.topics["v"].topic_id
    world.cluster.make("v", 1)
    assert world.run(broker_requests.delete(world.client, old, 5.0))[0] == 3
    assert "v" in world.cluster.topics
    assert world.cluster.requested[0][1].timeout_ms == 5000


def test_refusals_have_the_brokers_message(world: World) -> None:
    """They go into the log."""
    world.cluster.codes[ApiKey.CREATE_TOPICS] = ErrorCode.POLICY_VIOLATION
    assert world.run(broker_requests.create(world.client, {1: {"v": 4}}, 5.0)) == {"v": (44, "refused 44")}


def test_a_response_about_another_topic_is_ignored(world: World) -> None:
    """One topic was requested."""
    world.cluster._CreatePartitions = lambda version, request: (  # type: ignore[method-assign]
        broker_requests.messages.CreatePartitionsResponse(results=[])
    )
    with pytest.raises(RemoteProtocolError, match="0 topics"):
        world.run(broker_requests.grow(world.client, "v", 8, 5.0))


def test_a_topic_without_metadata_counts_as_missing() -> None:
    """Metadata omits no requested topic, but a client's request may."""
    assert broker_requests.state_of(None) == TopicState(3)


def test_many_partitions_are_created_by_several_requests(world: World) -> None:
    """A controller refuses all topics of a request with more than 10,000 partitions; one alone is left to it."""
    expected = {"a": 6_000, "b": 4_000, "c": 1, "d": 9_999, "e": 2, "f": 10_001, "g": 3}
    results = world.run(broker_requests.create(world.client, {1: expected}, 5.0, validate_only=True))
    assert {name: code for name, (code, _) in results.items()} == dict.fromkeys(expected, 0) | {"f": 44}
    requested = [[topic.name for topic in request.topics] for key, request in world.cluster.requested if key == 19]
    assert requested == [["a", "b"], ["c", "d"], ["e"], ["f"], ["g"]]
    assert not {*expected} & {*world.cluster.topics}
