"""A heartbeat that subscribes to a view finds it made when it reaches the broker."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support import audit_lines
from tests.support.view_broker import World

V = "__view.r4.orders"
KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT


def beat(*names: str) -> dict[str, Any]:
    return {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": list(names) or None}


def test_views_are_created_and_the_heartbeat_is_forwarded() -> None:
    """librdkafka sends no Metadata before it joins."""
    world = World()
    world.cluster.make("orders", 1)
    assert world.is_served(KEY, 1, **beat("orders", V))
    assert world.call(KEY, 1, **beat("orders", V)) is None
    assert world.cluster.topics[V].partitions == 4


def test_a_view_that_cannot_be_created_does_not_fail_the_heartbeat() -> None:
    """Metadata reports it."""
    world = World()
    assert world.call(KEY, 1, **beat("__view.r4.nothing", "__view.junk")) is None
    assert world.call(KEY, 1, **beat(V)) is None


def test_a_view_that_may_not_be_created_ends_the_heartbeat_with_the_missing_right() -> None:
    """Members would otherwise wait for an assignment that never arrives: librdkafka requests no Metadata of it."""
    world = World()
    world.cluster.make("orders", 1)
    world.cluster.codes[ApiKey.CREATE_TOPICS] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    response = world.call(KEY, 1, **beat(V))
    assert response.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert V in response.error_message
    assert "grant CREATE on this topic" in response.error_message
    world.cluster.codes[ApiKey.CREATE_TOPICS] = ErrorCode.POLICY_VIOLATION
    response = world.call(KEY, 1, **beat(V))
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, "refused 44")


def test_a_heartbeat_without_describe_on_the_base_returns_the_missing_right() -> None:
    """Brokers send the same code for a topic that the member has no right to DESCRIBE."""
    world = World()
    world.cluster.make("orders", 1)
    world.cluster.hidden.add("orders")
    response = world.call(KEY, 1, **beat(V))
    assert (response.error_code, "DESCRIBE" in response.error_message) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True)


def test_a_view_that_is_not_ready_in_time_returns_coordinator_load_in_progress() -> None:
    """Members repeat the whole request after this error. Forwarded, it would get an empty assignment."""
    world = World()
    world.cluster.make("orders", 1)
    world.cluster.late = 10_000
    assert world.call(KEY, 1, **beat(V)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_heartbeats_that_name_no_view_pass() -> None:
    """Most name no topic at all."""
    world = World()
    assert not world.is_served(KEY, 1, **beat())
    assert not world.is_served(KEY, 1, **beat("orders"))


@pytest.mark.parametrize("assignor", ["range", None])
def test_with_audit_an_accepted_member_is_reported_with_its_assignor(assignor: str | None) -> None:
    world = World()
    world.cluster.make("orders", 1)
    audit = world.audited()
    response = world.call(KEY, 1, **beat("orders", V, "__view.r2.nothing"), server_assignor=assignor)
    assert (response.error_code, response.member_id) == (0, "m")
    (event,) = audit_lines.waiting(audit.log)
    assert (event["view"], event["topic"], event["group"], event["member"]) == (V, "orders", "g", "m")
    assert (event["group_protocol"], event["assignor"], event["members"]) == ("consumer", assignor, None)
    assert event["offered"] == ([] if assignor is None else [assignor])
    world.cluster.codes[KEY] = ErrorCode.UNSUPPORTED_ASSIGNOR
    assert world.call(KEY, 1, **beat(V)).error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert audit_lines.waiting(audit.log) == []
