"""Transactions do not write into views."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_broker import World

V = "__view.r4.orders"
KEY = ApiKey.ADD_PARTITIONS_TO_TXN


def add(*topics: str) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": topic, "partitions": [0, 1]} for topic in topics],
    }  # fmt: skip


@pytest.mark.parametrize("version", range(4))
def test_a_view_is_refused_and_nothing_is_added(version: int) -> None:
    """INVALID_TOPIC_EXCEPTION as in Produce; other topics of the request are not attempted."""
    world = World()
    assert world.is_served(KEY, version, **add("orders", V))
    response = world.call(KEY, version, **add("orders", V))
    codes_by_topic = {
        topic.name: [(part.partition_index, part.partition_error_code) for part in topic.results_by_partition]
        for topic in response.results_by_topic_v3_and_below
    }
    skipped, refused = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes_by_topic == {"orders": [(0, skipped), (1, skipped)], V: [(0, refused), (1, refused)]}
    assert world.cluster.requested == []


def test_transactions_without_views_pass() -> None:
    world = World()
    assert not world.is_served(KEY, 3, **add("orders"))


def test_requests_of_brokers_are_for_brokers() -> None:
    """From v4 on they are about several transactions, and need CLUSTER_ACTION."""
    topics = [{"name": V, "partitions": [0]}]
    transaction = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "verify_only": False}
    assert not World().is_served(KEY, 5, transactions=[transaction | {"topics": topics}])
