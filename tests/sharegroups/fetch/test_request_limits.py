"""Acquiring within one request's limits."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding.limits import Limits

from tests.support.ports import World, acquired
from tests.support.share_steps import EARLIEST, from_the_start


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def test_max_bytes_is_split_and_one_batch_is_always_returned(world):
    """[76] A batch larger than MaxBytes is delivered; a second partition then gets nothing more."""
    topic = world.cluster.create("t", leaders=(1, 1))
    for partition in range(2):
        world.cluster.produce(topic, 1, partition, value=b"x" * 1000)
        world.cluster.produce(topic, 1, partition, value=b"x" * 1000)
    response = world.member().fetch(topic, max_bytes=1)
    assert sum(len(acquired(response, topic, p)) for p in range(2)) == 1
    response = world.member(member_id="b").fetch(topic, max_bytes=2400)
    assert [len(acquired(response, topic, p)) for p in range(2)] == [1, 1]


def test_local_responses_are_bounded():
    """[27 of the decisions] A client that requests 50 MiB gets `limits.local_answer_bytes` at most."""

    world = World(limits=Limits(local_answer_bytes=3000))
    world.configure("g", **EARLIEST)
    topic = world.cluster.create("t")
    for _ in range(10):
        world.cluster.produce(topic, 1, value=b"x" * 1000)
    response = world.member().fetch(topic)
    assert acquired(response) == [(0, 1, 1)]


def test_no_room_for_another_response_is_waited_out(world):
    """[27 of the decisions] With all responses together at their limit, a fetch gets no records after its wait."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    member = world.member()
    world.services.responses.add_unsent(world.services.limits.local_answers_total_bytes)
    reply = member.send_fetch(topic, wait_ms=400)
    assert not reply.done
    world.timers.advance(0.41)
    assert acquired(reply.message) == []
    assert world.services.responses.refusals == 1
    world.services.responses.sent(world.services.limits.local_answers_total_bytes)
    assert acquired(member.fetch()) == [(0, 4, 1)]


def test_read_committed_skips_aborted_records(world):
    """[113] and stops at the last stable offset."""
    world.configure("g", share_isolation_level="read_committed")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.cluster.produce(topic, 3)
    world.cluster.produce(topic, 2)
    topic.logs[0].aborted.append((9, 0))
    topic.logs[0].stable = 8
    response = world.member().fetch(topic)
    assert acquired(response) == [(5, 7, 1)]


def test_compaction_holes_are_not_waited_for(world):
    """[135] Offsets that the log no longer holds do not stop the walk."""
    topic = world.cluster.create("t")
    log = topic.logs[0]
    world.cluster.produce(topic, 3)
    log.end = 10
    world.cluster.produce(topic, 2)
    member = world.member()
    ranges = acquired(member.fetch(topic))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 11


def test_redelivered_records_after_a_long_held_run_are_acquired(world):
    """The offered range is as long as MaxRecords could need after everything that is tracked."""
    topic = world.cluster.create("t")
    for _ in range(60):
        world.cluster.produce(topic, 10)
    holder, other = world.member(member_id="a"), world.member(member_id="b")
    assert acquired(holder.fetch(topic, max_records=100)) == [(0, 99, 1)]
    assert acquired(other.fetch(topic, max_records=50)) == [(100, 149, 1)]
    other.acknowledge({(topic.topic_id, 0): [(100, 109, [2])]})
    assert acquired(other.fetch(max_records=20)) == [(100, 109, 2), (150, 159, 1)]


def test_a_response_ends_where_enough_ranges_were_acquired(world, monkeypatch):
    """Each is work in the loop; the next request begins with another partition."""
    monkeypatch.setattr("kafka_share_proxy.sharegroups.fetch.head_fetch.RANGES_MAX", 3)
    topic = world.cluster.create("t", leaders=(1, 1, 1))
    for partition in range(3):
        for _ in range(4):
            world.cluster.produce(topic, 1, partition)
    member = world.member()
    response = member.fetch(topic, batch_size=1)
    assert sorted(len(acquired(response, topic, p)) for p in range(3)) == [0, 0, 4]
    ranges_acquired = sum(
        len(acquired(member.fetch(topic, batch_size=1), topic, p)) for _ in range(2) for p in range(3)
    )
    assert ranges_acquired > 0
