"""Topics and leaders from the requesting client's own Metadata: fresh before a refusal, and not requested in a loop."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from kafka_share_proxy.brokers import topic_leaders
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.topic_leaders import TopicQueryOptions
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

from tests.support.ports import World, acquired, entries
from tests.support.share_steps import from_the_start

METADATA = registry.message("MetadataResponse")


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def test_unknown_topic_is_not_requested_in_a_loop(world):
    """An absent topic is looked up once per view age, regardless of the number of client requests."""
    topic = world.cluster.create("t")
    del world.cluster.topics["t"]
    member = world.member()
    for _ in range(20):
        member.fetch(*([topic] if member.epoch == 0 else []), wait_ms=0)
    assert world.cluster.count(3) == 1


def test_topic_created_later_is_found(world):
    topic = world.cluster.create("t")
    del world.cluster.topics["t"]
    member = world.member()
    assert entries(member.fetch(topic, wait_ms=0))[topic.topic_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    world.cluster.topics["t"] = topic
    world.cluster.produce(topic, 3)
    world.timers.advance(1.1)
    assert acquired(member.fetch()) == [(0, 2, 1)]


def test_records_of_a_deleted_topic_are_not_acknowledged(world):
    """[40] No member reads it any longer, therefore the acknowledgement itself checks: at most once per view age."""
    topic = world.cluster.create("t")
    for _ in range(9):
        world.cluster.produce(topic, 1)
    member = world.member()
    member.fetch(topic)
    world.timers.advance(1.1)
    before = world.cluster.count(3)
    for offset in range(8):
        response = member.acknowledge({(topic.topic_id, 0): [(offset, offset, [1])]})
        assert entries(response)[topic.topic_id, 0].error_code == 0
    assert world.cluster.count(3) == before + 1
    del world.cluster.topics["t"]
    world.timers.advance(1.1)
    response = member.acknowledge({(topic.topic_id, 0): [(8, 8, [1])]})
    assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_no_such_partition(world):
    topic = world.cluster.create("t")
    response = world.member().fetch((topic, 7), wait_ms=0)
    assert entries(response)[topic.topic_id, 7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_bootstrap_connection_leads_nothing(world):
    """A ShareFetch on the bootstrap listener is sent to the leader."""
    topic = world.cluster.create("t")
    response = world.member(node_id=-1).fetch(topic)
    assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_deleted_topic(world):
    """[40] The topic's partitions are 100; the rest of the session continues."""
    lost, live_topic = world.cluster.create("gone"), world.cluster.create("kept")
    member = world.member()
    member.fetch(lost, live_topic, wait_ms=0)
    del world.cluster.topics["gone"]
    world.cluster.produce(live_topic, 2)
    world.timers.advance(0.2)
    response = member.fetch()
    assert acquired(response, live_topic) == [(0, 1, 1)]
    world.timers.advance(2)
    response = member.fetch(acks={(lost.topic_id, 0): [(0, 0, [1])]}, wait_ms=0)
    assert entries(response)[lost.topic_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_each_node_serves_only_what_it_leads(world):
    """[5]"""
    topic = world.cluster.create("t", leaders=(1, 2, 3))
    for partition in range(3):
        world.cluster.produce(topic, 10, partition)
    for node in (1, 2, 3):
        response = world.member(node_id=node).fetch((topic, node - 1))
        assert acquired(response) == [(0, 9, 1)]


def test_hidden_topic_is_forbidden_not_unknown(world):
    """The lookup by id shows that the topic exists but not for this client: 29, for fetch and acknowledge alike."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    topic.bits = 0
    member = world.member()
    for _ in range(3):
        response = member.fetch(*([topic] if member.epoch == 0 else []), wait_ms=0)
        assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        world.timers.advance(0.7)
    response = member.acknowledge({(topic.topic_id, 0): [(0, 0, [1])]})
    assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic.bits = 1 << 3 | 1 << 8
    world.timers.advance(1.1)
    assert acquired(member.fetch()) == [(0, 0, 1)]


@pytest.mark.parametrize("seed", range(200))
def test_topics_described_just_now_are_judged_as_by_a_query_that_requests_nothing(seed):
    chance = random.Random(seed)
    topology, connection, now = ClusterMetadata(), SimpleNamespace(slot_values={}, node_id=1), 100.0
    services = SimpleNamespace(topology=topology, options=TopicQueryOptions(), timers=SimpleNamespace(now=lambda: now))
    ids = [bytes([n + 1]) * 16 for n in range(3)]
    for n, topic_id in enumerate(ids):
        at = now - chance.choice((0.0, 0.5, 1.0, 1.1, 20.0))
        for error in chance.choices((ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (4, 1), k=2):
            rights = chance.choices((1 << 3 | 1 << 8, 1 << 8, -1 << 31), (4, 1, 1))[0]
            response = METADATA.MetadataResponseTopic(
                name=f"t{n}",
                topic_id=topic_id,
                error_code=error,
                topic_authorized_operations=rights,
                partitions=[METADATA.MetadataResponsePartition(partition_index=0, leader_id=1)],
            )
            topic_leaders._remember(connection, response, at)
            topology.fold(METADATA(topics=[response]), at)
        if chance.random() < 0.1:
            topology.set_stale(f"t{n}")
    chosen = chance.sample(ids, chance.randint(0, 3))
    judged = topic_leaders.judge_described(connection, services, chosen)
    partitions = [TopicIdPartition(topic_id, 0) for topic_id in chosen]
    is_current = topic_leaders.topics_to_query(connection, services, partitions, partitions) == (set(), set())
    if judged is not None:
        assert is_current
        assert judged == topic_leaders.judge_topics(connection, services, chosen)
    elif is_current:  # only a topic that the broker hid just now is not requested again either
        absent = topic_leaders.absent_topics_of(connection)
        assert any(absent.get(f"t{n}", (0.0, 0))[0] >= now - 1.0 for n in range(3))
