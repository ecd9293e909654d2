"""DescribeShareGroupOffsets: share-groups.md 1.9, and items 123-126 of its list."""

from __future__ import annotations

import pytest

from proxy.errors import ErrorCode
from proxy.share.coordinator import ShareKey
from proxy.values import ZERO_UUID
from proxy.wire import registry
from tests.support.ports import World

ACCEPT, RELEASE, REJECT = 1, 2, 3


@pytest.fixture
def world() -> World:
    made = World()
    made.configure("g", share_auto_offset_reset="earliest")
    return made


def describe(world, topics=None, group_id="g", version=1, connection=None):
    """The groups of an answer; `topics`: name -> partitions."""
    message = registry.message("DescribeShareGroupOffsetsRequest")
    named = None
    if topics is not None:
        named = [
            message.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions))
            for name, partitions in topics.items()
        ]
    group = message.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=named)
    (answered,) = world.ask(90, version, connection, groups=[group]).groups
    return answered


def told(answered):
    """(topic, partition) -> (start offset, leader epoch, lag, error)."""
    return {
        (topic.topic_name, p.partition_index): (p.start_offset, p.leader_epoch, p.lag, p.error_code)
        for topic in answered.topics
        for p in topic.partitions
    }


@pytest.mark.parametrize(("kind", "lag"), [(ACCEPT, 0), (RELEASE, 1), (REJECT, 0)])
def test_lag_counts_what_is_not_settled(world, kind, lag):
    """[124] One partition, all accepted: lag 0; one record released: 1; one rejected: 0."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 4)
    member = world.member()
    member.fetch(topic)
    assert told(describe(world)) == {("t", 0): (0, 5, 4, 0)}, "acquired is not settled"
    member.acknowledge({(topic.topic_id, 0): [(0, 0, [kind]), (1, 3, [ACCEPT])]})
    assert told(describe(world, {"t": [0]}))["t", 0][2:] == (lag, 0)


def test_without_state_there_is_nothing_and_no_error(world):
    """[123] A partition nobody has fetched from, one beyond the topic, an unknown topic, an unknown group."""
    topic = world.cluster.create("t", leaders=(1, 1))
    answered = describe(world, {"t": [1, 7], "absent": [0]})
    assert told(answered) == dict.fromkeys([("t", 1), ("t", 7), ("absent", 0)], (-1, 0, -1, 0))
    assert [each.topic_id for each in answered.topics] == [topic.topic_id, ZERO_UUID]
    assert told(describe(world, group_id="nobody")) == {}
    assert describe(world, group_id="nobody").error_code == 0
    assert told(describe(world, {})) == {}


def test_all_of_a_group_are_those_with_state_and_those_subscribed_to(world):
    topic, other = world.cluster.create("t", leaders=(1, 1)), world.cluster.create("other")
    member = world.member()
    member.heartbeat(0, ["t"])
    member.fetch((topic, 1))
    world.member(member_id="m2").fetch(other)
    world.member(group_id="h").fetch((topic, 0))
    assert told(describe(world)) == {("other", 0): (0, 5, 0, 0), ("t", 0): (-1, 0, -1, 0), ("t", 1): (0, 5, 0, 0)}


def test_a_deleted_topic_is_left_out(world):
    topic = world.cluster.create("t")
    world.member().fetch(topic)
    del world.cluster.topics["t"]
    world.timers.advance(10)
    assert told(describe(world)) == {}


def test_rights(world):
    """30 for the group; 29 per partition where it is named, left out where it is not."""
    secret = world.cluster.create("secret")
    world.cluster.create("t")
    world.member().fetch(secret)
    secret.bits = 0
    world.timers.advance(20)
    assert told(describe(world)) == {}
    answered = describe(world, {"secret": [0], "absent": [0], "t": [0]})
    assert [topic.topic_name for topic in answered.topics] == ["t", "absent", "secret"]
    assert told(answered)["secret", 0] == (-1, 0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answered = describe(world)
    assert (answered.error_code, answered.topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])


def test_a_log_that_another_broker_leads_is_asked_there(world):
    """Admin clients ask the coordinator: its partitions on the client's connection, others under the own identity."""
    topic = world.cluster.create("t", leaders=(1, 2, 3))
    for partition, node in enumerate((1, 2, 3)):
        world.cluster.produce(topic, 3 + partition, partition)
        world.member(member_id=f"m{node}", node_id=node).fetch((topic, partition))
    before = len(world.cluster.asked)
    assert [lag for _, _, lag, _ in told(describe(world)).values()] == [3, 4, 5]
    assert sorted(node for key, node, _ in world.cluster.asked[before:] if key == 2) == [1, 2, 3]


def test_a_log_end_that_cannot_be_had_is_an_error_of_that_partition(world):
    topic = world.cluster.create("t", leaders=(1, 2))
    for partition, node in enumerate((1, 2)):
        world.member(member_id=f"m{node}", node_id=node).fetch((topic, partition))
    world.own.refuses = "no identity"
    codes = [code for _, _, _, code in told(describe(world)).values()]
    assert codes == [ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION]
    world.services.own = None
    codes = [code for _, _, _, code in told(describe(world)).values()]
    assert codes == [ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE]
    world.cluster.fail_next[2] = [ErrorCode.KAFKA_STORAGE_ERROR]
    assert told(describe(world))["t", 0][3] == ErrorCode.KAFKA_STORAGE_ERROR


def test_version_0_asks_for_no_log_ends(world):
    topic = world.cluster.create("t")
    world.member().fetch(topic)
    before = world.cluster.count(2)
    assert told(describe(world, version=0)) == {("t", 0): (0, 5, -1, 0)}
    assert world.cluster.count(2) == before


@pytest.mark.parametrize("partition", [-1, 1, 255, 256, 2**31 - 1, -(2**31)])
def test_a_number_that_is_no_partition_of_a_resting_group(world, partition):
    """Nothing is known of it, and the connection stays."""
    topic = world.cluster.create("t")
    coordinator, key = world.services.coordinator, ShareKey("g", topic.topic_id, 0)
    coordinator.add_group("g")
    coordinator.rest(key, coordinator.new_partition(key, 7).snapshot().encode())
    message = registry.message("DescribeShareGroupOffsetsRequest")
    wanted = message.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition, 0])
    group = message.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[wanted])
    (answered,) = world.ask(90, 1, groups=[group]).groups
    told = [(each.partition_index, each.error_code, each.start_offset) for each in answered.topics[0].partitions]
    assert told == [(partition, 0, -1), (0, 0, 7)]
