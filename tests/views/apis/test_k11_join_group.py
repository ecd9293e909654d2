"""A member of a classic group that subscribes to a view finds it created when its JoinGroup reaches the broker."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka_share_proxy.audit.events import FIELDS
from kafka_share_proxy.views.audit_events import JOINED_VIEWS_MAX
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support import audit_lines
from tests.support.view_broker import World

V, OTHER = "__view.r4.orders", "__view.s2.orders"
KEY = ApiKey.JOIN_GROUP


@pytest.fixture
def world() -> World:
    world = World()
    world.cluster.make("orders", 1)
    return world


def subscription(*topics: str, version: int = 1, behind: bytes = b"\xff\xff\xff\xff\0\0\0\0") -> bytes:
    """ConsumerProtocolSubscription: version, topics, user data, owned partitions."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + behind


def join(*metadata: bytes, protocol_type: str = "consumer") -> dict[str, Any]:
    return {
        "group_id": "g", "session_timeout_ms": 1, "rebalance_timeout_ms": 1, "member_id": "",
        "protocol_type": protocol_type, "reason": None,
        "protocols": [{"name": f"p{n}", "metadata": each} for n, each in enumerate(metadata)],
    }  # fmt: skip


def test_views_are_created_and_the_request_is_forwarded(world: World) -> None:
    """Those of all protocols; other topics are the broker's."""
    request = join(subscription("orders", V), subscription(V, OTHER))
    assert world.is_served(KEY, 9, **request)
    assert world.call(KEY, 9, **request) is None
    assert {name: world.cluster.topics[name].partitions for name in (V, OTHER)} == {V: 4, OTHER: 2}


def test_a_view_that_was_deleted_meanwhile_is_created_again(world: World) -> None:
    """The catalog may be outdated: a joining member causes a check."""
    world.call(KEY, 9, **join(subscription(V)))
    del world.cluster.topics[V]
    world.call(KEY, 9, **join(subscription(V)))
    assert V in world.cluster.topics


@pytest.mark.parametrize("version", [0, 3, 99])
def test_topics_are_read_from_every_version_of_the_subscription(world: World, version: int) -> None:
    """Later ones have more fields after them."""
    world.call(KEY, 9, **join(subscription(V, version=version, behind=b"whatever")))
    assert V in world.cluster.topics


@pytest.mark.parametrize(
    "metadata",
    [
        b"", b"\0", b"\0\1\0\0\0\1\xff\xff__view.", b"\0\1\0\0\0\1\x7f\xff__view.r4.orders",
        b"\0\1\0\0\0\1\0\x09__view.\xff\xfe", b"\0\1\xff\xff\xff\xff__view.r4.orders", b"__view.r4.orders",
    ],
)  # fmt: skip
def test_an_unreadable_subscription_is_forwarded_unchanged(world: World, metadata: bytes) -> None:
    """It is for the members of the group."""
    assert world.call(KEY, 9, **join(metadata)) is None
    assert not [name for name in world.cluster.topics if name.startswith("__view.")]


def test_a_view_that_cannot_be_created_does_not_fail_the_join(world: World) -> None:
    """Metadata says it by the view's name; a member may subscribe to what does not exist."""
    world.cluster.codes[ApiKey.CREATE_TOPICS] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert world.call(KEY, 9, **join(subscription(V, "__view.junk", "__view.r2.nothing"))) is None


def test_groups_of_other_protocol_types_create_no_view(world: World) -> None:
    """Connect workers and schema registries have their own metadata."""
    assert world.call(KEY, 9, **join(subscription(V), protocol_type="connect")) is None
    assert V not in world.cluster.topics


def test_joins_that_name_no_view_pass(world: World) -> None:
    assert not world.is_served(KEY, 9, **join(subscription("orders")))


@pytest.mark.parametrize("version", [5, 9])
def test_with_audit_a_member_is_reported_with_the_assignor_of_its_group(world: World, version: int) -> None:
    audit = world.audited()
    response = world.call(KEY, version, **join(subscription(V, "orders"), subscription(V, "__view.r2.nothing")))
    assert (response.member_id, response.protocol_name, len(response.members)) == ("m-1", "p1", 1)
    (event,) = audit_lines.waiting(audit.log)
    assert {name: event[name] for name in ("kind", "topic", "group", "member", *FIELDS["view_member"])} == {
        "kind": "view_member", "topic": "orders", "group": "g", "member": "m-1", "view": V, "client": "client",
        "group_protocol": "classic", "assignor": "p1", "offered": ["p0", "p1"], "members": 1,
    }  # fmt: skip


def test_a_join_that_is_refused_or_names_no_view_is_not_reported(world: World) -> None:
    audit = world.audited()
    assert world.call(KEY, 9, **join(subscription("orders"))) is None
    assert world.call(KEY, 9, **join(subscription(V), protocol_type="connect")) is None
    assert world.cluster.count(KEY) == 0
    world.cluster.codes[KEY] = ErrorCode.MEMBER_ID_REQUIRED
    assert world.call(KEY, 9, **join(subscription(V))).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert audit_lines.waiting(audit.log) == []


def test_a_member_of_many_views_is_reported_in_bounds(world: World) -> None:
    audit = world.audited()
    views = [f"__view.r{slots}.orders" for slots in range(2, JOINED_VIEWS_MAX + 10)]
    world.call(KEY, 9, **join(subscription(*views)))
    assert len(audit_lines.waiting(audit.log)) == JOINED_VIEWS_MAX
