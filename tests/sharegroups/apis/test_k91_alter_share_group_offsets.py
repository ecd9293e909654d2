"""AlterShareGroupOffsets (sharegroups/README.md rule 53); numbers in brackets are items of tests/oracle."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

from tests.support.ports import SlowJournal, World, acquired

AT_OWNER_AND_EDGE = True

ACCEPT = 1


@pytest.fixture
def world() -> World:
    share_world = World(journal=SlowJournal())
    share_world.configure("g", share_auto_offset_reset="earliest")
    return share_world


def request(topics, group_id="g"):
    message = registry.message("AlterShareGroupOffsetsRequest")
    return message(
        group_id=group_id,
        topics=[
            message.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    message.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )


def alter(world, topics, group_id="g"):
    return world.send(world.connect(), 91, 0, request(topics, group_id)).message


def codes(response):
    return {(t.topic_name, p.partition_index): p.error_code for t in response.responses for p in t.partitions}


def test_the_group_begins_at_the_offset_with_everything_forgotten(world):
    """[126] Delivery counts start again, nothing is settled above the offset."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 3)
    world.cluster.produce(topic, 3)
    member = world.member()
    assert acquired(member.fetch(topic, max_records=6)) == [(0, 5, 1)]
    member.acknowledge({(topic.topic_id, 0): [(1, 5, [ACCEPT])]})
    member.connection.close()
    response = alter(world, {"t": {0: 3}})
    assert codes(response) == {("t", 0): 0}
    assert response.responses[0].topic_id == topic.topic_id
    share = world.services.coordinator.share(ShareKey("g", topic.topic_id, 0))
    assert (share.partition.start_offset, share.partition.state_epoch) == (3, 1)
    assert acquired(world.member(member_id="m2").fetch(topic)) == [(3, 5, 1)]


def test_a_group_that_does_not_exist_is_made(world):
    world.cluster.create("t")
    assert codes(alter(world, {"t": {0: 40}}, "new")) == {("t", 0): 0}
    assert world.services.coordinator.group("new").state == "Empty"
    world.cluster.consumer_groups.add("consumers")
    world.services.versions.learn(1, {1: (4, 17), 2: (1, 9), 3: (0, 12), 15: (0, 5), 69: (0, 0)})
    assert alter(world, {"t": {0: 40}}, "consumers").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_left_alone(world):
    """[127] 68."""
    topic = world.cluster.create("t")
    member = world.member()
    member.heartbeat(0, ["t"])
    member.fetch(topic)
    response = alter(world, {"t": {0: 7}})
    assert (response.error_code, response.responses) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert world.services.coordinator.share(ShareKey("g", topic.topic_id, 0)).partition.start_offset == 0


def test_what_is_refused_does_not_touch_the_rest(world):
    """3 for unknown topics and partitions, 29, 42; the others are applied."""
    world.cluster.create("t")
    world.cluster.create("secret").bits = 1 << 8
    response = alter(world, {"absent": {0: 1}, "secret": {0: 1}, "t": {0: 5, 1: 5, -1: 5}})
    refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes(response) == {("absent", 0): refused, ("secret", 0): denied, ("t", 0): 0, ("t", 1): 3, ("t", -1): 3}
    assert response.responses[0].topic_id == ZERO_UUID
    assert codes(alter(world, {"t": {0: -2}})) == {("t", 0): ErrorCode.INVALID_REQUEST}
    assert [share.partition.start_offset for _, share in world.services.coordinator.shares()] == [5]


def test_an_offset_of_minus_one_makes_it_begin_anew(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 3)
    alter(world, {"t": {0: 2}})
    assert codes(alter(world, {"t": {0: -1}})) == {("t", 0): 0}
    assert [key for key in world.journal.values if key.kind == "partition"] == []
    assert acquired(world.member().fetch(topic)) == [(0, 2, 1)]


def test_rights_and_names(world):
    """30 for the group, 24 for no name."""
    world.cluster.create("t")
    assert alter(world, {"t": {0: 1}}, "").error_code == ErrorCode.INVALID_GROUP_ID
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert alter(world, {"t": {0: 1}}).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.services.coordinator.group("g") is None


def test_the_response_is_sent_only_when_the_change_is_durable(world):
    """A refusal by the journal leaves everything as it was."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 3)
    member = world.member()
    member.fetch(topic)
    world.services.coordinator.add_group("g")
    world.journal.slow = True
    reply = world.send(world.connect(), 91, 0, request({"t": {0: 2}}))
    assert not reply.done
    world.journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert codes(reply.message) == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.services.coordinator.share(ShareKey("g", topic.topic_id, 0)).partition.start_offset == 0


def test_what_was_decided_on_the_old_state_does_not_touch_the_new(world):
    """An acknowledgement that waits while the state is replaced is neither stored over it nor applied to it."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 6)
    member = world.member()
    assert acquired(member.fetch(topic)) == [(0, 5, 1)]
    world.services.coordinator.add_group("g")
    world.journal.slow = True
    reply = world.send(world.connect(), 91, 0, request({"t": {0: 1}}))
    member.connection.close()  # releases 0-5: waits for the earlier append
    for _ in range(3):
        if world.journal.appends:
            world.journal.confirm()
    assert codes(reply.message) == {("t", 0): 0}
    assert world.journal.appends == []
    share = world.services.coordinator.share(ShareKey("g", topic.topic_id, 0))
    (stored,) = [value for key, value in world.journal.values.items() if key.kind == "partition"]
    assert stored == share.partition.snapshot().encode()
    assert share.partition.snapshot().batches == ()
    world.journal.slow = False
    assert acquired(world.member(member_id="m2").fetch(topic)) == [(1, 5, 1)]
    world.timers.advance(60)  # the old state's locks end without a trace
    assert share.partition.start_offset == 1


def test_it_waits_for_a_member_that_begins_the_partition(world):
    """The requested offset holds, not the one that the member found."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 6)
    world.services.coordinator.add_group("g")
    world.cluster.held.add(2)
    member = world.member()
    member.send_fetch(topic)
    reply = world.send(world.connect(), 91, 0, request({"t": {0: 4}}))
    assert not reply.done
    world.cluster.release(2)
    assert codes(reply.message) == {("t", 0): 0}
    assert world.services.coordinator.share(ShareKey("g", topic.topic_id, 0)).partition.start_offset == 4


def test_it_does_not_wait_for_ever(world):
    topic = world.cluster.create("t")
    world.services.coordinator.add_group("g")
    world.cluster.held.add(2)
    world.member().send_fetch(topic)
    reply = world.send(world.connect(), 91, 0, request({"t": {0: 4}}))
    world.timers.advance(5.1)
    assert reply.message.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_change_with_unknown_outcome_is_15_and_applies_when_it_is_stored(world):
    """Each share partition separately; a repeated request before that gets the same response, and changes nothing."""
    topic = world.cluster.create("t", leaders=(1, 1))
    world.services.coordinator.add_group("g")
    world.journal.slow = True
    reply = world.send(world.connect(), 91, 0, request({"t": {0: 2, 1: 3, 7: 1}}))
    world.timers.advance(1)
    world.journal.confirm()
    world.timers.advance(RESPONSE_MAX_S)
    assert codes(reply.message) == {("t", 0): 0, ("t", 1): ErrorCode.COORDINATOR_NOT_AVAILABLE, ("t", 7): 3}
    again = world.send(world.connect(), 91, 0, request({"t": {1: 9}}))
    world.timers.advance(5.1)
    assert again.message.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(world.journal.appends) == 1
    world.journal.confirm()
    assert world.services.coordinator.share(ShareKey("g", topic.topic_id, 1)).partition.start_offset == 3
    world.assert_idle()


def test_a_group_that_is_being_deleted_is_left_alone(world):
    """15: it may be gone at the next request, or not."""
    world.cluster.create("t")
    world.services.coordinator.add_group("g").deleting = True
    assert alter(world, {"t": {0: 1}}).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
