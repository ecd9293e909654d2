"""Requests that several rooms send, through our codec as brokers read them."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.brokers.queries import (
    CoordinatorOf,
    Resource,
    about_all_topics,
    about_coordinators,
    about_settings,
    about_topics,
)
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey


def read(key: int, version: int, query: Any) -> Any:
    """Decode as the broker does."""
    return registry.request(key, version).decode(registry.request(key, version).encode(query))


def test_topics_by_name_and_by_id_are_not_created() -> None:
    query = read(ApiKey.METADATA, 12, about_topics(["a"], [b"i" * 16], operations=True))
    assert [(topic.name, bytes(topic.topic_id)) for topic in query.topics] == [("a", bytes(16)), (None, b"i" * 16)]
    assert not query.allow_auto_topic_creation
    assert query.include_topic_authorized_operations


def test_no_topics_and_all_topics_are_different_requests() -> None:
    """An empty list requests the brokers only."""
    assert read(ApiKey.METADATA, 12, about_topics()).topics == []
    assert read(ApiKey.METADATA, 12, about_all_topics()).topics is None


def test_coordinators_of_groups_and_of_transactional_ids() -> None:
    query = read(ApiKey.FIND_COORDINATOR, 4, about_coordinators(CoordinatorOf.TRANSACTION, ("x", "y")))
    assert (query.key_type, query.coordinator_keys) == (1, ["x", "y"])
    assert read(ApiKey.FIND_COORDINATOR, 4, about_coordinators(CoordinatorOf.GROUP, ["g"])).key_type == 0


def test_settings_of_one_resource() -> None:
    (resource,) = read(ApiKey.DESCRIBE_CONFIGS, 1, about_settings(Resource.TOPIC, "t", ["max.message.bytes"])).resources
    queried = (resource.resource_type, resource.resource_name, resource.configuration_keys)
    assert queried == (2, "t", ["max.message.bytes"])
