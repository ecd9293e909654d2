"""DeleteShareGroupOffsets (sharegroups/README.md rule 53); numbers in brackets are items of tests/oracle."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import SlowJournal, World, acquired

AT_OWNER_AND_EDGE = True

ACCEPT = 1


@pytest.fixture
def world() -> World:
    share_world = World(journal=SlowJournal())
    share_world.configure("g", share_auto_offset_reset="earliest")
    return share_world


def request(*names, group_id="g"):
    message = registry.message("DeleteShareGroupOffsetsRequest")
    topics = [message.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return message(group_id=group_id, topics=topics)


def delete(world, *names, group_id="g"):
    return world.send(world.connect(), 92, 0, request(*names, group_id=group_id)).message


def codes(response):
    return {topic.topic_name: topic.error_code for topic in response.responses}


def consumed(world, name="t"):
    """A topic of three records, all settled, and no member left."""
    topic = world.cluster.create(name)
    world.cluster.produce(topic, 3)
    member = world.member()
    member.heartbeat(0, [name])
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 2, [ACCEPT])]})
    member.heartbeat(-1)
    member.connection.close()
    return topic


def test_deleted_offsets_begin_anew(world):
    """[126] Delete, then earliest: all redelivered. Other topics keep their state."""
    topic, other = consumed(world), consumed(world, "other")
    response = delete(world, "t")
    assert codes(response) == {"t": 0}
    assert response.responses[0].topic_id == topic.topic_id
    assert [key.topic_id for key in world.journal.values if key.kind == "partition"] == [other.topic_id]
    assert acquired(world.member(member_id="m2").fetch(topic, other), topic) == [(0, 2, 1)]


def test_what_has_no_offsets(world):
    """3 per topic: unknown, or without state; 29 without READ."""
    consumed(world)
    world.cluster.create("idle")
    world.cluster.create("secret").bits = 1 << 8
    response = delete(world, "absent", "idle", "secret", "t")
    assert codes(response) == {"absent": 3, "idle": 3, "secret": 29, "t": 0}
    assert delete(world).error_code == 0


def test_groups_that_may_not_be_touched(world):
    """69 when it is not there, 68 with members, 30 without DELETE, 24 without name."""
    world.cluster.create("t")
    assert delete(world, "t").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.member().heartbeat(0, ["t"])
    assert delete(world, "t").error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete(world, "t", group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert delete(world, "t").error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_the_response_is_sent_only_when_the_change_is_durable(world):
    """A refusal by the journal leaves everything as it was; meanwhile the state serves."""
    topic = consumed(world)
    world.journal.slow = True
    reply = world.send(world.connect(), 92, 0, request("t"))
    assert not reply.done
    assert len(list(world.services.coordinator.shares())) == 1
    world.journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert codes(reply.message) == {"t": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.journal.slow = False
    assert acquired(world.member(member_id="m2").fetch(topic)) == []


def test_a_deletion_with_unknown_outcome_is_15_and_applies_when_it_is_stored(world):
    topic = consumed(world)
    world.journal.slow = True
    reply = world.send(world.connect(), 92, 0, request("t"))
    world.timers.advance(RESPONSE_MAX_S - 0.1)
    assert not reply.done
    world.timers.advance(0.2)
    assert codes(reply.message) == {"t": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.services.coordinator.keys_of("g") != ()
    world.journal.confirm()
    assert world.services.coordinator.keys_of("g") == ()
    world.journal.slow = False
    assert acquired(world.member(member_id="m2").fetch(topic)) == [(0, 2, 1)]


def test_a_group_that_is_being_deleted_is_left_alone(world):
    """15: it may be gone at the next request, or not."""
    consumed(world)
    world.services.coordinator.group("g").deleting = True
    assert delete(world, "t").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
