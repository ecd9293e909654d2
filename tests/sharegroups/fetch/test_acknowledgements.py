"""Acknowledgements of one partition: states, owners, RENEW (sharegroups/README.md rules 39-49).

Numbers in brackets are items of tests/oracle.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World, acquired, entries
from tests.support.share_steps import (
    ACCEPT,
    EARLIEST,
    REJECT,
    RELEASE,
    RENEW,
    code,
    from_the_start,
    held,
    start_offset,
)

AT_OWNER_AND_EDGE = True


@pytest.fixture
def world(journal) -> World:
    return from_the_start(World(journal=journal))


def test_accepted_records_are_settled(world, topic):
    """[6]"""
    member = held(world, topic)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]}), topic) == 0
    assert start_offset(world, topic) == 10
    assert acquired(member.fetch(wait_ms=0)) == []


def test_rejected_records_never_come_again(world, topic):
    """[10]"""
    member = held(world, topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [REJECT])]})
    world.cluster.produce(topic, 2)
    assert acquired(member.fetch()) == [(10, 11, 1)]


def test_delivery_limit(world, topic):
    """[11]"""
    world.configure("g", share_delivery_count_limit="2")
    member = held(world, topic)
    assert acquired(member.fetch(acks={(topic.topic_id, 0): [(0, 9, [RELEASE])]})) == [(0, 9, 2)]
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [RELEASE])]})
    world.cluster.produce(topic, 1)
    assert acquired(member.fetch()) == [(10, 10, 1)]


def test_records_of_another_member(world, topic):
    """[29]"""
    owner = held(world, topic)
    other = world.member(member_id="b")
    other.fetch(topic, wait_ms=0)
    acks = {(topic.topic_id, 0): [(0, 9, [ACCEPT])]}
    assert code(other.acknowledge(acks), topic) == ErrorCode.INVALID_RECORD_STATE
    assert code(owner.acknowledge(acks), topic) == 0


@pytest.mark.parametrize(
    "batches",
    [
        [(5, 3, [1])],
        [(0, 5, [1]), (3, 8, [1])],
        [(0, 5, [])],
        [(0, 1, [1, 1, 1])],
        [(0, 5, [5])],
        [(0, 5, [4])],
        [(0, 30, [1])],
    ],
)
def test_bad_batches_fail_their_partition_only(world, batches):
    """[30, 32]"""
    topic = world.cluster.create("two", leaders=(1, 1))
    for partition in range(2):
        world.cluster.produce(topic, 10, partition)
    member = world.member()
    member.fetch(topic)
    response = member.acknowledge({(topic.topic_id, 0): batches, (topic.topic_id, 1): [(0, 9, [ACCEPT])]})
    assert (code(response, topic, 0), code(response, topic, 1)) == (ErrorCode.INVALID_REQUEST, 0)


def test_bad_shape_is_judged_before_the_topic(world, topic):
    """6.1: 42 has priority over 100."""
    member = held(world, topic)
    unknown = b"\xee" * 16
    response = member.acknowledge({(unknown, 0): [(5, 3, [1])], (unknown, 1): [(3, 5, [1])]})
    codes = [entries(response)[unknown, partition].error_code for partition in range(2)]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_ID]


def test_one_bad_record_changes_none(world, topic):
    """[31]"""
    member = held(world, topic)
    member.acknowledge({(topic.topic_id, 0): [(7, 7, [ACCEPT])]})
    response = member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    assert code(response, topic) == ErrorCode.INVALID_RECORD_STATE
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 6, [ACCEPT]), (8, 9, [ACCEPT])]}), topic) == 0


def test_repeated_acknowledgement(world, topic):
    """[33] 121 while the start offset has not passed, 0 after it has."""
    member = held(world, topic)
    member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]})
    assert code(member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]}), topic) == ErrorCode.INVALID_RECORD_STATE
    member.acknowledge({(topic.topic_id, 0): [(0, 4, [ACCEPT])]})
    assert code(member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]}), topic) == 0


def test_types_per_offset(world, topic):
    """[34]"""
    member = held(world, topic)
    types = [ACCEPT, RELEASE, REJECT, 0, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE]
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, types)]}), topic) == 0
    assert acquired(member.fetch()) == [(1, 1, 2), (9, 9, 2)]


def test_partition_that_was_never_fetched(world, topic):
    """3: its state is not loaded."""
    other = world.cluster.create("other")
    member = held(world, topic)
    assert code(member.acknowledge({(other.topic_id, 0): [(0, 0, [1])]}), other) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_without_the_right_to_read(world, topic):
    member = held(world, topic)
    secret = world.cluster.create("secret")
    secret.bits = 1 << 8
    response = member.acknowledge({(secret.topic_id, 0): [(0, 0, [1])]})
    assert code(response, secret) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_late_acknowledgement(world, topic):
    member = held(world, topic)
    world.timers.advance(30.1)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [1])]}), topic) == ErrorCode.INVALID_RECORD_STATE


def test_renewed_lock_lasts_its_whole_time_again(world, topic):
    """[45]"""
    member = held(world, topic)
    other = world.member(member_id="b")
    other.fetch(topic, wait_ms=0)
    world.timers.advance(18)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}, renew=True), topic) == 0
    world.timers.advance(18)
    assert acquired(other.fetch(wait_ms=0)) == []
    world.timers.advance(12.1)
    assert acquired(other.fetch(wait_ms=0)) == [(0, 9, 2)]


def test_renew_writes_nothing(world, journal, topic):
    """[48]"""
    member = held(world, topic)
    before = dict(journal.values)
    journal.slow = True
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}, renew=True), topic) == 0
    assert journal.appends == []
    assert dict(journal.values) == before


def test_renew_of_what_is_not_held(world, topic):
    """[46]"""
    member = held(world, topic)
    member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]})
    response = member.acknowledge({(topic.topic_id, 0): [(5, 9, [RENEW])]}, renew=True)
    assert code(response, topic) == ErrorCode.INVALID_RECORD_STATE
    world.timers.advance(30.1)
    response = member.acknowledge({(topic.topic_id, 0): [(0, 4, [RENEW])]}, renew=True)
    assert code(response, topic) == ErrorCode.INVALID_RECORD_STATE


def test_renew_switched_off(world, topic):
    """[49]"""
    world.configure("g", share_renew_acknowledge_enable="false")
    member = held(world, topic)
    types = [ACCEPT] * 5 + [RENEW] * 5
    response = member.acknowledge({(topic.topic_id, 0): [(0, 9, types)]}, renew=True)
    assert code(response, topic) == ErrorCode.INVALID_RECORD_STATE
    assert start_offset(world, topic) == 0


def test_renew_of_one_partition_and_nonsense_for_another(world):
    """[50]"""
    topic = world.cluster.create("two", leaders=(1, 1))
    for partition in range(2):
        world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch(topic)
    acks = {(topic.topic_id, 0): [(0, 0, [RENEW])], (topic.topic_id, 1): [(0, 0, [9])]}
    response = member.acknowledge(acks, renew=True)
    assert (code(response, topic, 0), code(response, topic, 1)) == (0, ErrorCode.INVALID_REQUEST)


def test_a_bound_on_renewals_names_the_member(world, topic):
    """121 once the group's bound is reached; other groups renew as they like; nothing is bounded by default."""
    bound = RenewalBound(groups="g*", renewals=1)
    world.services.options = replace(world.services.options, renewal_bounds=(bound, RenewalBound(renewals=100)))
    member = held(world, topic)
    renew = {(topic.topic_id, 0): [(0, 9, [RENEW])]}
    assert code(member.acknowledge(renew, renew=True), topic) == 0
    assert code(member.acknowledge(renew, renew=True), topic) == ErrorCode.INVALID_RECORD_STATE
    (reported,) = [context for event, context in world.notes if event == "share-renewal-refused"]
    assert (reported["group"], reported["member"], reported["partition"]) == ("g", "m1", "t-0")
    world.configure("other", **EARLIEST)
    other = world.member(group_id="other", member_id="m2")
    assert acquired(other.fetch(topic)) == [(0, 9, 1)]
    for _ in range(5):
        assert code(other.acknowledge(renew, renew=True), topic) == 0


def test_client_gets_a_retriable_error_while_the_outcome_of_the_append_is_unknown(world, journal, topic):
    """It continues: once it is known to be stored the records are settled, and no member gets them again."""
    member = held(world, topic)
    journal.slow = True
    reply = member.send_acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    world.timers.advance(RESPONSE_MAX_S - 0.1)
    assert not reply.done
    world.timers.advance(0.2)
    assert code(reply.message, topic) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    journal.slow = False
    journal.confirm()
    assert start_offset(world, topic) == 10
