"""ShareGroupHeartbeat (sharegroups/README.md rules 5-10); numbers in brackets are items of tests/oracle."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.sharegroups.state.state_records import StateKey, group_epoch
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import SlowJournal, World, assigned

AT_OWNER_AND_EDGE = True


@pytest.fixture
def world() -> World:
    return World()


def test_join(world):
    """[52] A positive epoch, the interval, the whole assignment."""
    topic = world.cluster.create("t", leaders=(1, 2, 3))
    response = world.member().heartbeat(0, ["t"])
    assert (response.error_code, response.member_id, response.heartbeat_interval_ms) == (0, "m1", 5000)
    assert response.member_epoch > 0
    assert assigned(response) == {topic.topic_id: [0, 1, 2]}


def test_topic_created_later(world):
    """[53]"""
    member = world.member()
    response = member.heartbeat(0, ["t"])
    assert assigned(response) == {}
    topic = world.cluster.create("t")
    world.timers.advance(5)
    later = member.heartbeat(response.member_epoch)
    assert assigned(later) == {topic.topic_id: [0]}
    assert later.member_epoch > response.member_epoch


def test_topic_that_grows(world):
    """[65]"""
    topic = world.cluster.create("t")
    member = world.member()
    response = member.heartbeat(0, ["t"])
    topic.logs += world.cluster.create("more", leaders=(1, 1)).logs
    world.timers.advance(5)
    assert assigned(member.heartbeat(response.member_epoch)) == {topic.topic_id: [0, 1, 2]}


def test_topic_that_goes(world):
    world.cluster.create("t")
    member = world.member()
    response = member.heartbeat(0, ["t"])
    del world.cluster.topics["t"]
    world.timers.advance(5)
    assert assigned(member.heartbeat(response.member_epoch)) == {}


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
    response = member.heartbeat(-1)
    assert (response.member_epoch, response.heartbeat_interval_ms, response.assignment) == (-1, 0, None)
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
    response = member.heartbeat(0, ["t"])
    assert response.member_epoch == epoch
    assert assigned(response) is not None


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


def test_group_right_is_checked_first(world):
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response = world.member().heartbeat(0, ["t"], member_id="")
    assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.services.coordinator.group("g") is None


def test_topic_right(world):
    """29 for the whole request when one named topic may not be described; a missing topic is no refusal."""
    world.cluster.create("t")
    world.cluster.create("secret").bits = 0
    member = world.member()
    assert member.heartbeat(0, ["t", "secret"]).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert member.heartbeat(0, ["t", "missing"]).error_code == 0


def test_group_epoch_is_stored_before_a_member_gets_it():
    """It never goes back, not even after a crash; an epoch that cannot be stored is not returned."""
    journal = SlowJournal()
    world = World(journal=journal)
    world.cluster.create("t")
    member = world.member()
    epoch = member.heartbeat(0, ["t"]).member_epoch
    assert group_epoch(journal.values[StateKey("group", "g")]) == epoch
    journal.slow = True
    reply = world.member(member_id="m2").send_heartbeat(0, ["t"])
    assert not reply.done
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert reply.message.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    journal.slow = False
    assert member.heartbeat(epoch).error_code == 0
    assert group_epoch(journal.values[StateKey("group", "g")]) > epoch


def test_no_member_joins_while_the_deletion_of_the_group_is_being_stored(world):
    """15: the client retries, and finds the group or creates it again."""
    world.cluster.create("t")
    group = world.services.coordinator.add_group("g")
    group.deleting = True
    assert world.member().heartbeat(0, ["t"]).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.deleting = False
    assert world.member().heartbeat(0, ["t"]).error_code == 0
