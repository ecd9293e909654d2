"""ShareGroupHeartbeat and ShareGroupDescribe: share-groups.md 1.8 and 2; numbers in brackets are of section 10."""

from __future__ import annotations

import pytest

from proxy.errors import ErrorCode
from proxy.share.settings import BrokerShareLimits
from proxy.wire import registry
from tests.support.ports import GROUP_BITS, NO_BITS, World


@pytest.fixture
def world() -> World:
    return World()


def assigned(answer):
    if answer.assignment is None:
        return None
    return {t.topic_id: t.partitions for t in answer.assignment.topic_partitions}


def describe(world, *group_ids, connection=None, bits=False):
    request = registry.message("ShareGroupDescribeRequest")(
        group_ids=list(group_ids), include_authorized_operations=bits
    )
    return world.send(connection or world.connect(), 77, 1, request).message.groups


def test_join(world):
    """[52] A positive epoch, the interval, the whole assignment."""
    topic = world.cluster.create("t", leaders=(1, 2, 3))
    answer = world.member().heartbeat(0, ["t"])
    assert (answer.error_code, answer.member_id, answer.heartbeat_interval_ms) == (0, "m1", 5000)
    assert answer.member_epoch > 0
    assert assigned(answer) == {topic.topic_id: [0, 1, 2]}


def test_topic_that_comes_later(world):
    """[53]"""
    member = world.member()
    answer = member.heartbeat(0, ["t"])
    assert assigned(answer) == {}
    topic = world.cluster.create("t")
    world.timers.advance(5)
    later = member.heartbeat(answer.member_epoch)
    assert assigned(later) == {topic.topic_id: [0]}
    assert later.member_epoch > answer.member_epoch


def test_topic_that_grows(world):
    """[65]"""
    topic = world.cluster.create("t")
    member = world.member()
    answer = member.heartbeat(0, ["t"])
    topic.logs += world.cluster.create("more", leaders=(1, 1)).logs
    world.timers.advance(5)
    assert assigned(member.heartbeat(answer.member_epoch)) == {topic.topic_id: [0, 1, 2]}


def test_topic_that_goes(world):
    world.cluster.create("t")
    member = world.member()
    answer = member.heartbeat(0, ["t"])
    del world.cluster.topics["t"]
    world.timers.advance(5)
    assert assigned(member.heartbeat(answer.member_epoch)) == {}


def test_two_members_share_the_partitions(world):
    """[54]"""
    topic = world.cluster.create("t", leaders=(1, 1, 1))
    first, second = world.member(member_id="a"), world.member(member_id="b")
    epoch = first.heartbeat(0, ["t"]).member_epoch
    world.timers.advance(2)
    mine = assigned(second.heartbeat(0, ["t"]))[topic.topic_id]
    theirs = assigned(first.heartbeat(epoch))[topic.topic_id]
    assert sorted(mine + theirs) == [0, 1, 2]
    assert abs(len(mine) - len(theirs)) == 1


def test_leave_and_come_back(world):
    """[56]"""
    world.cluster.create("t")
    member = world.member()
    member.heartbeat(0, ["t"])
    answer = member.heartbeat(-1)
    assert (answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment) == (-1, 0, None)
    assert member.heartbeat(0, ["t"]).error_code == 0


def test_unchanged_heartbeat_says_nothing_new(world):
    """[58]"""
    world.cluster.create("t")
    member = world.member()
    epoch = member.heartbeat(0, ["t"]).member_epoch
    assert assigned(member.heartbeat(epoch)) is None


def test_full_group():
    """[59]"""
    world = World(share_limits=BrokerShareLimits(group_share_max_size=2))
    world.cluster.create("t")
    members = [world.member(member_id=name) for name in "abc"]
    codes = [member.heartbeat(0, ["t"]).error_code for member in members]
    assert codes == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
    members[0].heartbeat(-1)
    assert members[2].heartbeat(0, ["t"]).error_code == 0


def test_silent_member_is_expelled(world):
    """[60]"""
    world.cluster.create("t")
    member = world.member()
    epoch = member.heartbeat(0, ["t"]).member_epoch
    world.timers.advance(45.1)
    assert world.services.coordinator.group("g").members == {}
    assert member.heartbeat(epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(0, ["t"]).error_code == 0


def test_epoch_of_another_life(world):
    """[61]"""
    world.cluster.create("t")
    member = world.member()
    epoch = member.heartbeat(0, ["t"]).member_epoch
    assert member.heartbeat(epoch + 5).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    answer = member.heartbeat(0, ["t"])
    assert answer.member_epoch == epoch
    assert assigned(answer) is not None


def test_lost_group_makes_members_join_again(world):
    """[62] 25 where a broker says 69: state may have been lost, and 69 is the end of most clients."""
    assert world.member().heartbeat(5).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("epoch", "topics", "fields"),
    [
        (0, None, {}),
        (0, [], {}),
        (-2, ["t"], {}),
        (0, ["t"], {"rack_id": ""}),
        (0, ["t"], {"group_id": ""}),
        (0, ["t"], {"member_id": "x" * 37}),
        (0, ["t"], {"member_id": ""}),
    ],
)
def test_bad_requests(world, epoch, topics, fields):
    """[26, 63]"""
    world.cluster.create("t")
    assert world.member().heartbeat(epoch, topics, **fields).error_code == ErrorCode.INVALID_REQUEST


def test_group_right_comes_first(world):
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer = world.member().heartbeat(0, ["t"], member_id="")
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.services.coordinator.group("g") is None


def test_topic_right(world):
    """29 for the whole request when one named topic may not be described; a missing topic is no refusal."""
    world.cluster.create("t")
    world.cluster.create("secret").bits = 0
    member = world.member()
    assert member.heartbeat(0, ["t", "secret"]).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert member.heartbeat(0, ["t", "missing"]).error_code == 0


def test_other_brokers_than_the_coordinator_judge_too(world):
    """16 of the Heartbeat probe means that READ is granted."""
    world.cluster.create("t")
    world.cluster.group_errors["g"] = ErrorCode.NOT_COORDINATOR
    assert world.member().heartbeat(0, ["t"]).error_code == 0


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_id_of_another_type_upstream(world, kind):
    """[66]"""
    world.cluster.create("t")
    getattr(world.cluster, f"{kind}_groups").add("g")
    answer = world.member().heartbeat(0, ["t"])
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert kind in answer.error_message
    assert world.services.coordinator.group("g") is None


def test_id_is_looked_up_once(world):
    world.cluster.create("t")
    member = world.member()
    epoch = member.heartbeat(0, ["t"]).member_epoch
    member.heartbeat(epoch)
    world.member(member_id="b").heartbeat(0, ["t"])
    assert world.cluster.count(15) == 1


def test_unauthenticated_connection_gets_nothing(world):
    """A broker that hangs up at our question ends the request: nothing is answered on our own account."""
    from proxy.errors import UpstreamLost

    world.cluster.create("t")
    world.cluster.held.add(12)
    member = world.member()
    message = registry.message("ShareGroupHeartbeatRequest")
    request = message(group_id="g", member_id="m1", member_epoch=0, subscribed_topic_names=["t"])
    reply = world.send(member.connection, 76, 1, request)
    member.connection.lose_upstream()
    with pytest.raises(UpstreamLost):
        _ = reply.message


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


def test_deleted_group_is_gone(world):
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
