"""Common parts of ShareFetch and ShareAcknowledge: names, hints, sessions that end."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.apis.share_requests import let_move, member_id_mistake
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World, acquired, entries
from tests.support.share_steps import from_the_start


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def test_not_leader_is_returned_immediately_with_a_hint(world):
    """[2] Partition 6 with CurrentLeader and the proxy's own endpoint; the lock duration is still returned."""
    topic = world.cluster.create("t", leaders=(2,))
    reply = world.member(node_id=1).send_fetch(topic)
    response = reply.message
    entry = entries(response)[topic.topic_id, 0]
    assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (2, 5)
    assert [(n.node_id, n.host, n.port) for n in response.node_endpoints] == [(2, "proxy.example", 9102)]
    assert response.acquisition_lock_timeout_ms == 30_000
    assert world.cluster.count(1) == 0


def test_no_hint_is_minus_one(world):
    """CurrentLeader without a hint is -1/-1, never the schema's 0/0."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    entry = entries(world.member().fetch(topic))[topic.topic_id, 0]
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (-1, -1)


def test_session_ends_with_its_connection(world):
    """[20] The same epoch on a new connection is 122, records are free immediately, epoch 0 works."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    member.connection.close()
    member.reconnect()
    assert member.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acquired(member.fetch(topic, epoch=0)) == [(0, 9, 2)]


def test_old_connection_does_not_end_a_session_opened_anew(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    old = member.connection
    member.reconnect()
    assert member.fetch(topic, epoch=0, wait_ms=0).error_code == 0
    old.close()
    assert member.fetch(wait_ms=0).error_code == 0


def test_leader_move_releases_the_locks_once(world):
    """A lock belongs to session and node: the new leader's clients get the records, the old session touches nothing."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    world.cluster.move_leader(topic, 2)
    world.timers.advance(1.1)
    moved = world.member(node_id=2)
    assert acquired(moved.fetch(topic)) == [(0, 9, 2)]
    response = member.acknowledge({(topic.topic_id, 0): [(0, 9, [1])]})
    assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    member.connection.close()
    response = moved.acknowledge({(topic.topic_id, 0): [(0, 9, [1])]})
    assert entries(response)[topic.topic_id, 0].error_code == 0


def test_repeated_partitions_of_one_request_are_joined(world):
    """librdkafka names a topic twice: to fetch and to acknowledge."""
    topic = world.cluster.create("t")
    for _ in range(4):
        world.cluster.produce(topic, 1)
    member = world.member()
    member.fetch(topic, max_records=4, batch_size=1)

    message = registry.message("ShareFetchRequest")

    def part(first):
        batch = message.AcknowledgementBatch(first_offset=first, last_offset=first, acknowledge_types=[1])
        return message.FetchPartition(partition_index=0, acknowledgement_batches=[batch])

    topics = [message.FetchTopic(topic_id=topic.topic_id, partitions=[part(i)]) for i in range(4)]
    response = member.fetch(wait_ms=0, topics=topics)
    assert entries(response)[topic.topic_id, 0].acknowledge_error_code == 0
    share = world.services.coordinator.share(("g", topic.topic_id, 0))
    assert share.partition.start_offset == 4


def test_member_ids():
    """Item 26: empty, missing and 37 characters are refused, 36 are not."""
    assert member_id_mistake(None)
    assert member_id_mistake("")
    assert member_id_mistake("x" * 37)
    assert member_id_mistake("x" * 36) is None


def test_a_connection_may_move_once_no_session_of_a_group_served_here_belongs_to_it(world):
    """After a group has moved to another worker, its members follow with their connections."""
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    connection = member.connection
    let_move(connection, world.services)
    assert connection.is_watched
    world.services.coordinator.sessions.end_group(member.group_id)
    let_move(connection, world.services)
    assert not connection.is_watched
    member.fetch(topic, epoch=0, wait_ms=0)
    assert connection.is_watched, "the group is served here again"
