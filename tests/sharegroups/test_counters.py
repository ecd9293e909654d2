"""Counters of share groups: each figure with the event that changes it. Names of Kafka's metrics in brackets."""

from __future__ import annotations

import pytest
from kafka_share_proxy.feature.metrics import OTHERS
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.loop.histogram import Histogram
from kafka_share_proxy.sharegroups.counters import ShareFigures
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import SlowJournal, World, acquired
from tests.support.share_steps import ACCEPT, EARLIEST, REJECT, RELEASE, RENEW, from_the_start


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def of(world, group_id="g"):
    return world.services.figures.of(group_id)


def observed(histogram: Histogram) -> tuple[int, float]:
    """(how many values, their sum)"""
    return list(histogram.cumulative())[-1][1], histogram.total


def test_records_are_counted_by_acknowledge_type(world, topic):
    """[RecordAcknowledgementsPerSec] Renewals as well; gaps have a place that is not shown."""
    member = world.member()
    member.fetch(topic)
    place = (topic.topic_id, 0)
    member.acknowledge({place: [(0, 9, [RENEW])]}, renew=True)
    assert of(world).acknowledged == [0, 0, 0, 0, 10]
    member.acknowledge({place: [(0, 5, [ACCEPT, RELEASE, REJECT, 0, ACCEPT, ACCEPT])]})
    assert of(world).acknowledged == [1, 3, 1, 1, 10]
    member.fetch(acks={place: [(6, 9, [ACCEPT])]})
    assert of(world).acknowledged == [1, 7, 1, 1, 10]


def test_what_was_refused_is_not_counted(topic, world):
    """The machine or the journal may refuse."""
    member, other = world.member(), world.member(member_id="m2")
    member.fetch(topic)
    other.fetch(topic, wait_ms=0)
    other.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    assert of(world).acknowledged == [0] * 5
    world.services.writes._journal = journal = SlowJournal()
    journal.slow = True
    member.send_acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert of(world).acknowledged == [0] * 5


def test_what_is_stored_after_its_member_left_is_counted(topic, world):
    world.services.writes._journal = journal = SlowJournal()
    member = world.member()
    member.fetch(topic)
    journal.slow = True
    member.send_acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    member.connection.close()
    journal.confirm()
    assert of(world).acknowledged[ACCEPT] == 10


def test_records_whose_lock_ended_are_counted(world, topic):
    """[AcquisitionLockTimeoutPerSec]"""
    member = world.member()
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 3, [ACCEPT])]})
    world.timers.advance(31)
    assert of(world).lock_timeouts == 6


def test_time_until_records_were_acquired_and_the_part_of_partitions_that_gave_some(world):
    """[TopicPartitionsAcquireTimeMs, RequestTopicPartitionsFetchRatio]"""
    topic = world.cluster.create("t", leaders=(1, 1))
    world.cluster.produce(topic, 3)
    member = world.member()
    assert acquired(member.fetch(topic)) == [(0, 2, 1)]
    assert observed(of(world).acquire_s) == (1, 0.0)
    assert observed(of(world).fetch_ratio) == (1, 0.5)
    member.fetch(wait_ms=300)
    assert observed(of(world).acquire_s) == (1, 0.0), "nothing came"
    assert observed(of(world).fetch_ratio) == (2, 0.5)
    reply = member.send_fetch(wait_ms=5000)
    world.timers.advance(0.25)
    world.cluster.produce(topic, 3)
    assert acquired(reply.message) == [(3, 5, 1)]
    assert observed(of(world).acquire_s) == (2, pytest.approx(0.25))
    assert observed(of(world).fetch_ratio) == (3, 1.0)


def test_time_a_share_partition_is_kept_for_one_reader(world, topic):
    """[FetchLockTimeMs] Here the wait for new records is part of it."""
    member = world.member()
    member.fetch(topic)
    count, before = observed(of(world).fetch_lock_s)
    member.fetch(wait_ms=400)
    assert observed(of(world).fetch_lock_s) == (count + 1, pytest.approx(before + 0.4, abs=0.01))


def test_records_of_new_batches_in_flight(world, topic):
    """[InFlightBatchMessageCount] First deliveries only."""
    member = world.member()
    member.fetch(topic)
    assert observed(of(world).batch_records) == (1, 10.0)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [RELEASE])]})
    member.fetch()
    assert observed(of(world).batch_records) == (1, 10.0)


def test_time_until_the_first_offset_of_a_share_partition_is_stored(topic, world):
    """[PartitionLoadTimeMs], and share-coordinator-metrics' write-latency."""
    world.services.writes._journal = journal = SlowJournal()
    journal.slow = True
    world.member().send_fetch(topic, wait_ms=5000)
    world.timers.advance(0.75)
    assert observed(world.services.figures.load_s) == (0, 0.0)
    journal.confirm()
    assert observed(world.services.figures.load_s) == (1, pytest.approx(0.75))
    assert observed(world.services.figures.state_write_s) == (1, pytest.approx(0.75))


def test_groups_beyond_the_bound_are_counted_as_one():
    world = World(limits=Limits(metrics_groups=2))
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    for group_id in ("a", "b", "c", "d"):
        world.configure(group_id, **EARLIEST)
        member = world.member(group_id=group_id)
        member.fetch(topic)
        member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    shown = {label: figures.acknowledged[ACCEPT] for label, figures in world.services.figures.shown()}
    assert shown == {"a": 10, "b": 10, OTHERS: 20}
    assert world.services.figures.label("b") == "b"
    assert world.services.figures.label("d") == OTHERS


def test_a_deleted_group_makes_room():
    figures = ShareFigures(1)
    figures.of("a").lock_timeouts = 3
    assert figures.of("b") is figures.of("c")
    figures.forget(lambda group_id: group_id == "a")
    figures.of("b").lock_timeouts = 1
    assert {label: group.lock_timeouts for label, group in figures.shown()} == {"b": 1, OTHERS: 0}


def test_a_group_named_as_the_others_is_one_of_them():
    figures = ShareFigures(5)
    assert figures.label(OTHERS) == OTHERS
    assert [label for label, _ in figures.shown()] == [OTHERS]
