"""ShareAcknowledge (sharegroups/README.md rules 12, 13, 18, 46-48); numbers in brackets are items of tests/oracle."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World, acquired, entries
from tests.support.share_steps import ACCEPT, RENEW, code, from_the_start, held

AT_OWNER_AND_EDGE = True


@pytest.fixture
def world(journal) -> World:
    return from_the_start(World(journal=journal))


def test_final_epoch_releases_the_rest_and_ends(world, topic):
    """[15]"""
    member = held(world, topic)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 4, [ACCEPT])]}, epoch=-1), topic) == 0
    assert acquired(world.member(member_id="b").fetch(topic)) == [(5, 9, 2)]
    assert member.acknowledge({}, epoch=2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_epochs(world, topic):
    """[17, 18, 19]"""
    member = held(world, topic)
    acks = {(topic.topic_id, 0): [(0, 9, [ACCEPT])]}
    assert member.acknowledge(acks, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(acks, epoch=5).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    stranger = world.member(member_id="b")
    assert stranger.acknowledge(acks, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(member.acknowledge(acks, epoch=1), topic) == 0


def test_refusals_of_the_whole_request(world, topic):
    """42, 30; the lock duration is 0 then."""
    member = held(world, topic)
    world.cluster.group_errors["secret"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response = world.member(group_id="secret").acknowledge({}, epoch=1)
    assert (response.error_code, response.acquisition_lock_timeout_ms) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)
    assert world.member(member_id="x" * 37).acknowledge({}, epoch=1).error_code == ErrorCode.INVALID_REQUEST
    member.group_id = None
    assert member.acknowledge({}, epoch=1).error_code == ErrorCode.INVALID_REQUEST


def test_partition_without_batches_succeeds(world, topic):
    member = held(world, topic)
    assert code(member.acknowledge({(topic.topic_id, 0): []}), topic) == 0


def test_not_leader_has_a_hint(world, topic):
    member = held(world, topic)
    world.cluster.move_leader(topic, 2)
    world.services.topology.set_stale("t")
    response = member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    entry = entries(response)[topic.topic_id, 0]
    assert (entry.error_code, entry.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert [(n.node_id, n.port) for n in response.node_endpoints] == [(2, 9102)]


def test_renew_without_the_flag_or_in_v1(world, topic):
    """[43]"""
    member = held(world, topic)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}), topic) == ErrorCode.INVALID_REQUEST
    member.version = 1
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}), topic) == ErrorCode.INVALID_REQUEST
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]}), topic) == 0


def test_changed_lock_duration_applies_and_is_returned(world, topic):
    """[47]"""
    member = held(world, topic)
    world.configure("g", share_record_lock_duration_ms="25000")
    response = member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}, renew=True)
    assert response.acquisition_lock_timeout_ms == 25_000
    world.timers.advance(24.9)
    assert acquired(world.member(member_id="b").fetch(topic, wait_ms=0)) == []
    world.timers.advance(0.2)
    assert acquired(world.member(member_id="c").fetch(topic, wait_ms=0)) == [(0, 9, 2)]
