"""One Fetch on a client's own upstream connection: what it names, and what becomes of its response."""

from __future__ import annotations

import pytest

from tests.support.ports import World, acquired
from tests.support.share_steps import EARLIEST, from_the_start


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def test_every_read_names_the_leader_epoch_and_no_session(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.member().fetch(topic)
    (request,) = world.cluster.requests(1)
    assert request.topics[0].partitions[0].current_leader_epoch == 5
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.topics[0].topic_id == topic.topic_id


def test_brokers_without_topic_ids_in_fetch_are_queried_by_name():
    world = World(fetch_version=12)
    world.configure("g", **EARLIEST)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 2)
    assert acquired(world.member().fetch(topic)) == [(0, 1, 1)]
    assert world.cluster.requests(1)[0].topics[0].topic == "t"


def test_throttle_time_is_passed_on(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.cluster.throttle_ms = 77
    assert world.member().fetch(topic).throttle_time_ms == 77


def test_reader_that_never_responds_loses_the_head(world):
    """A reservation ends 5 s after its wait at the latest."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 3)
    world.cluster.held = {1}
    stuck = world.member(member_id="a")
    stuck.send_fetch(topic, wait_ms=500)
    world.cluster.held = set()
    other = world.member(member_id="b")
    assert acquired(other.fetch(topic, wait_ms=500)) == []
    world.timers.advance(5.1)
    assert acquired(other.fetch(wait_ms=500)) == [(0, 2, 1)]


def test_late_response_only_feeds_the_cache(world):
    """Another member was served from the cache in the meantime: the records of the late Fetch go to later requests."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    holder = world.member(member_id="a")
    assert acquired(holder.fetch(topic)) == [(0, 4, 1)]
    reader = world.member(member_id="b")
    reading = reader.send_fetch(topic, wait_ms=5000)
    other = world.member(member_id="c")
    waiting = other.send_fetch(topic, wait_ms=5000)
    holder.acknowledge({(topic.topic_id, 0): [(0, 4, [2])]})
    responded, still = (reading, waiting) if reading.done else (waiting, reading)
    assert acquired(responded.message) == [(0, 4, 2)]
    world.cluster.produce(topic, 2)
    assert acquired(still.message) == [(5, 6, 1)]
    world.assert_idle()


def test_next_request_waits_for_the_fetch_still_under_way(world):
    """One upstream Fetch per connection, across its requests."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    holder, reader = world.member(member_id="a"), world.member(member_id="b")
    holder.fetch(topic)
    reply = reader.send_fetch(topic, wait_ms=100)
    world.cluster.held = {1}
    world.timers.advance(0.11)
    assert acquired(reply.message) == []
    requested = world.cluster.count(1)
    again = reader.send_fetch(wait_ms=2000)
    assert world.cluster.count(1) == requested
    world.cluster.produce(topic, 1)
    world.cluster.release()
    world.timers.advance(0.1)
    assert acquired(again.message) == [(5, 5, 1)]


def test_small_part_of_a_large_response_is_copied(world):
    """A few bytes in the cache must not keep megabytes of a response alive."""
    topic = world.cluster.create("t", leaders=(1, 1))
    world.cluster.produce(topic, 1, 0)
    world.cluster.produce(topic, 1, 1, value=bytes(10_000))
    world.member().fetch(topic, max_records=1, max_bytes=1)
    cached_chunks = [chunk for chunks in world.services.reads.cache._chunks.values() for chunk in chunks]
    sizes = {len(c.records.obj) for c in cached_chunks if len(c.records) < 1000}
    assert all(size < 1000 for size in sizes)
