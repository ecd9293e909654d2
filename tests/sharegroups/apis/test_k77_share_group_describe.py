"""ShareGroupDescribe (sharegroups/README.md rules 68, 69); numbers in brackets are items of tests/oracle."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World
from tests.support.scripted_cluster import GROUP_BITS, NO_BITS

AT_OWNER_AND_EDGE = True


@pytest.fixture
def world() -> World:
    return World()


def describe(world, *group_ids, connection=None, bits=False):
    request = registry.message("ShareGroupDescribeRequest")(
        group_ids=list(group_ids), include_authorized_operations=bits
    )
    return world.send(connection or world.connect(), 77, 1, request).message.groups


def test_describe(world):
    """[67]"""
    topic = world.cluster.create("t", leaders=(1, 1))
    member = world.member()
    member.heartbeat(0, ["t"], rack_id="r1")
    (group,) = describe(world, "g")
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert group.group_epoch == group.assignment_epoch
    assert group.authorized_operations == NO_BITS
    (shown,) = group.members
    assert (shown.member_id, shown.rack_id, shown.client_id, shown.client_host) == (
        "m1",
        "r1",
        "test-client",
        "/10.1.2.3",
    )
    assert shown.subscribed_topic_names == ["t"]
    (part,) = shown.assignment.topic_partitions
    assert (part.topic_id, part.topic_name, part.partitions) == (topic.topic_id, "t", [0, 1])
    member.heartbeat(-1)
    assert describe(world, "g")[0].group_state == "Empty"


def test_describe_what_is_not_there(world):
    codes = [group.error_code for group in describe(world, "", "unknown")]
    assert codes == [ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND]


def test_describe_rights(world):
    """30 for the group; 29 when a subscribed topic may not be seen, and no members then."""
    world.cluster.create("t")
    topic = world.cluster.create("secret")
    world.member().heartbeat(0, ["t", "secret"])
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert describe(world, "g")[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    del world.cluster.group_errors["g"]
    topic.bits = 0
    world.timers.advance(2)
    (group,) = describe(world, "g")
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


def test_authorized_operations_are_upstream_s_own(world):
    world.cluster.create("t")
    world.member().heartbeat(0, ["t"])
    world.member(group_id="h").heartbeat(0, ["t"])
    groups = describe(world, "g", "h", bits=True)
    assert [(group.group_id, group.authorized_operations) for group in groups] == [("g", GROUP_BITS), ("h", GROUP_BITS)]
    world.cluster.group_errors["g"] = ErrorCode.NOT_COORDINATOR
    (group,) = describe(world, "g", bits=True)
    assert (group.error_code, group.authorized_operations) == (ErrorCode.NOT_COORDINATOR, NO_BITS)


def test_deleted_group_is_not_found(world):
    """[69] Its sessions and share partitions go with it; its settings stay."""
    topic = world.cluster.create("t")
    world.configure("g", share_auto_offset_reset="earliest")
    world.cluster.produce(topic, 3)
    member = world.member()
    member.heartbeat(0, ["t"])
    member.fetch(topic)
    member.heartbeat(-1)
    assert world.services.coordinator.remove_group("g") == (("g", topic.topic_id, 0),)
    assert describe(world, "g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert member.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert world.services.coordinator.stored_settings("g") == {"share.auto.offset.reset": "earliest"}
    world.timers.advance(60)
