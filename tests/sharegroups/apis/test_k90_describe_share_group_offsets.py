"""DescribeShareGroupOffsets (sharegroups/README.md rule 52); numbers in brackets are items of tests/oracle."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

from tests.support.ports import SlowJournal, World, acquired, entries

AT_OWNER_AND_EDGE = True

ACCEPT, RELEASE, REJECT = 1, 2, 3


@pytest.fixture
def world() -> World:
    share_world = World()
    share_world.configure("g", share_auto_offset_reset="earliest")
    return share_world


def describe(world, topics=None, group_id="g", version=1, connection=None):
    """The groups of a response; `topics`: name -> partitions."""
    message = registry.message("DescribeShareGroupOffsetsRequest")
    topic_requests = None
    if topics is not None:
        topic_requests = [
            message.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions))
            for name, partitions in topics.items()
        ]
    group = message.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topic_requests)
    (responded,) = world.send_request(90, version, connection, groups=[group]).groups
    return responded


def deliver_once(member, *places):
    """Fetch from these partitions, and release the records: a delivery has ended in each that has records."""
    response = member.fetch(*places)
    acks = {
        place: [(a.first_offset, a.last_offset, [RELEASE]) for a in entry.acquired_records]
        for place, entry in entries(response).items()
        if entry.acquired_records
    }
    if acks:
        member.acknowledge(acks)


def described(responded):
    """(topic, partition) -> (start offset, leader epoch, lag, error)."""
    return {
        (topic.topic_name, p.partition_index): (p.start_offset, p.leader_epoch, p.lag, p.error_code)
        for topic in responded.topics
        for p in topic.partitions
    }


@pytest.mark.parametrize(("kind", "lag"), [(ACCEPT, 0), (RELEASE, 1), (REJECT, 0)])
def test_lag_counts_what_is_not_settled(world, kind, lag):
    """[124] One partition, all accepted: lag 0; one record released: 1; one rejected: 0."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 4)
    member = world.member()
    member.fetch(topic)
    assert described(describe(world)) == {("t", 0): (-1, 5, -1, 0)}, "no delivery has ended"
    member.acknowledge({(topic.topic_id, 0): [(0, 0, [kind]), (1, 3, [ACCEPT])]})
    assert described(describe(world, {"t": [0]}))["t", 0][2:] == (lag, 0)


def test_without_state_there_is_nothing_and_no_error(world):
    """[123] A partition that was never fetched, one beyond the topic, an unknown topic, an unknown group."""
    topic = world.cluster.create("t", leaders=(1, 1))
    responded = describe(world, {"t": [1, 7], "absent": [0]})
    assert described(responded) == dict.fromkeys([("t", 1), ("t", 7), ("absent", 0)], (-1, 0, -1, 0))
    assert [each.topic_id for each in responded.topics] == [topic.topic_id, ZERO_UUID]
    assert described(describe(world, group_id="nobody")) == {}
    assert describe(world, group_id="nobody").error_code == 0
    assert described(describe(world, {})) == {}


def test_all_of_a_group_are_those_with_state_and_those_subscribed_to(world):
    topic, other = world.cluster.create("t", leaders=(1, 1)), world.cluster.create("other")
    member = world.member()
    member.heartbeat(0, ["t"])
    world.cluster.produce(topic, 2, 1)
    deliver_once(member, (topic, 1))
    world.member(member_id="m2").fetch(other)
    world.member(group_id="h").fetch((topic, 0))
    assert described(describe(world)) == {
        ("other", 0): (-1, 5, -1, 0),
        ("t", 0): (-1, 0, -1, 0),
        ("t", 1): (0, 5, 2, 0),
    }


def test_a_deleted_topic_is_left_out(world):
    topic = world.cluster.create("t")
    world.member().fetch(topic)
    del world.cluster.topics["t"]
    world.timers.advance(10)
    assert described(describe(world)) == {}


def test_rights(world):
    """30 for the group; 29 per partition where it is named, left out where it is not."""
    secret = world.cluster.create("secret")
    world.cluster.create("t")
    world.member().fetch(secret)
    secret.bits = 0
    world.timers.advance(20)
    assert described(describe(world)) == {}
    responded = describe(world, {"secret": [0], "absent": [0], "t": [0]})
    assert [topic.topic_name for topic in responded.topics] == ["t", "absent", "secret"]
    assert described(responded)["secret", 0] == (-1, 0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    responded = describe(world)
    assert (responded.error_code, responded.topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])


def test_log_end_is_requested_from_the_leader(world):
    """Admin clients ask the coordinator: its partitions on the client's connection, others under the own identity."""
    topic = world.cluster.create("t", leaders=(1, 2, 3))
    for partition, node in enumerate((1, 2, 3)):
        world.cluster.produce(topic, 3 + partition, partition)
        deliver_once(world.member(member_id=f"m{node}", node_id=node), (topic, partition))
    before = len(world.cluster.requested)
    assert [lag for _, _, lag, _ in described(describe(world)).values()] == [3, 4, 5]
    assert sorted(node for key, node, _ in world.cluster.requested[before:] if key == 2) == [1, 2, 3]


def test_a_log_end_that_cannot_be_had_is_an_error_of_that_partition(world):
    topic = world.cluster.create("t", leaders=(1, 2))
    for partition, node in enumerate((1, 2)):
        world.cluster.produce(topic, 1, partition)
        deliver_once(world.member(member_id=f"m{node}", node_id=node), (topic, partition))
    world.own.refuses = "no identity"
    codes = [code for _, _, _, code in described(describe(world)).values()]
    assert codes == [ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION]
    world.services.own = None
    codes = [code for _, _, _, code in described(describe(world)).values()]
    assert codes == [ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE]
    world.cluster.fail_next[2] = [ErrorCode.KAFKA_STORAGE_ERROR]
    assert described(describe(world))["t", 0][3] == ErrorCode.KAFKA_STORAGE_ERROR


def test_version_0_requests_no_log_ends(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    deliver_once(world.member(), topic)
    before = world.cluster.count(2)
    assert described(describe(world, version=0)) == {("t", 0): (0, 5, -1, 0)}
    assert world.cluster.count(2) == before


@pytest.mark.parametrize("partition", [-1, 1, 255, 256, 2**31 - 1, -(2**31)])
def test_a_number_that_is_no_partition_of_a_resting_group(world, partition):
    """Nothing is known of it, and the connection stays."""
    topic = world.cluster.create("t")
    coordinator, key = world.services.coordinator, ShareKey("g", topic.topic_id, 0)
    coordinator.add_group("g")
    coordinator.rest(key, coordinator.new_partition(key, 7).snapshot().encode())
    message = registry.message("DescribeShareGroupOffsetsRequest")
    expected = message.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition, 0])
    group = message.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[expected])
    (responded,) = world.send_request(90, 1, groups=[group]).groups
    described = [(each.partition_index, each.error_code, each.start_offset) for each in responded.topics[0].partitions]
    assert described == [(partition, 0, -1), (0, 0, 7)]


LOCK_S = 30.0


def end_delivery(world, member, topic, span, ending):
    """End what the member holds, in one of the ways there are."""
    if ending == "lock ended":
        world.timers.advance(LOCK_S + 1)
    elif ending == "session closed":
        member.acknowledge({}, epoch=-1)
    else:
        member.acknowledge({(topic.topic_id, 0): [(*span, [ACCEPT if ending == "accepted" else RELEASE])]})


def restart(world):
    """Hold all share partitions as what is stored of them."""
    for _ in range(2):
        world.services.coordinator.rest_idle()


@pytest.mark.parametrize("ending", ["accepted", "released", "session closed", "lock ended"])
@pytest.mark.parametrize("filled", [0, 5])
@pytest.mark.parametrize("reset", ["latest", "earliest", "by_duration:PT1H"])
def test_nothing_is_reported_before_the_first_delivery_has_ended(world, reset, filled, ending):
    """A broker stores no start offset before, and returns -1: whatever the reset, the log, and a restart."""
    world.configure("g", share_auto_offset_reset=reset)
    topic = world.cluster.create("t")
    if filled:
        world.cluster.produce(topic, filled)
    nothing = {("t", 0): (-1, 5, -1, 0)}
    member = world.member()
    first = filled if reset == "latest" else 0
    if first == filled:
        assert acquired(member.fetch(topic)) == []
        assert described(describe(world, {"t": [0]})) == nothing, "begun"
        restart(world)
        assert described(describe(world, {"t": [0]})) == nothing, "begun, after a restart"
        world.cluster.produce(topic, 3)
    last = topic.logs[0].end - 1
    assert acquired(member.fetch(topic)) == [(first, last, 1)]
    assert described(describe(world, {"t": [0]})) == nothing, "held by a member"
    end_delivery(world, member, topic, (first, last), ending)
    start, lag = (last + 1, 0) if ending == "accepted" else (first, last + 1 - first)
    assert described(describe(world, {"t": [0]})) == {("t", 0): (start, 5, lag, 0)}
    restart(world)
    assert described(describe(world, {"t": [0]})) == {("t", 0): (start, 5, lag, 0)}, "after a restart"


def test_a_delivery_whose_end_was_not_stored_reports_nothing():
    """The records are held again, as before the acknowledgement."""
    journal = SlowJournal()
    world = World(journal=journal)
    world.configure("g", share_auto_offset_reset="earliest")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    member = world.member()
    member.fetch(topic)
    journal.slow = True
    reply = member.send_acknowledge({(topic.topic_id, 0): [(0, 4, [ACCEPT])]})
    assert described(describe(world)) == {("t", 0): (-1, 5, -1, 0)}
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert reply.done
    assert described(describe(world)) == {("t", 0): (-1, 5, -1, 0)}


def test_altered_offsets_are_returned_immediately_and_deleted_ones_no_longer(world):
    """AlterShareGroupOffsets stores a start offset, delivery or none; DeleteShareGroupOffsets takes it away."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    message = registry.message("AlterShareGroupOffsetsRequest")
    part = message.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)
    topic_request = message.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[part])
    world.send_request(91, 0, group_id="g", topics=[topic_request])
    assert described(describe(world)) == {("t", 0): (2, 5, 3, 0)}
    restart(world)
    assert described(describe(world)) == {("t", 0): (2, 5, 3, 0)}, "after a restart"
    assert acquired(world.member().fetch(topic)) == [(2, 4, 1)]
    assert described(describe(world)) == {("t", 0): (2, 5, 3, 0)}, "held by a member"
    message = registry.message("DeleteShareGroupOffsetsRequest")
    world.send_request(92, 0, group_id="g", topics=[message.DeleteShareGroupOffsetsRequestTopic(topic_name="t")])
    assert described(describe(world, {"t": [0]})) == {("t", 0): (-1, 0, -1, 0)}
