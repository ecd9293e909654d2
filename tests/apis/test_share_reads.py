"""Reservations, waiters, the cache, and clients or brokers that go away at the worst moment."""

from __future__ import annotations

import itertools

import pytest

from proxy.apis.promise import Promise
from proxy.apis.share_cache import CHUNKS_PER_PARTITION, BatchCache, CacheKey, Chunk
from proxy.apis.share_reads import Head, ShareReads
from proxy.errors import ErrorCode, UpstreamLost
from proxy.share.coordinator import ShareKey
from proxy.wire import records
from tests.support.ports import World, acquired, entries

EARLIEST = {"share_auto_offset_reset": "earliest"}


@pytest.fixture
def world() -> World:
    made = World()
    made.configure("g", **EARLIEST)
    return made


def through_all_waits(world, topic, hold):
    """A member whose requests to the broker are held back, one API after the other."""
    world.cluster.held = {hold}
    member = world.member(member_id="leaver")
    return member, member.send_fetch(topic, wait_ms=5000)


@pytest.mark.parametrize("hold", [12, 3, 2, 1])
def test_client_that_leaves_at_any_wait_leaves_nothing_behind(world, hold):
    """Heartbeat, Metadata, ListOffsets, Fetch: whatever was waited for, another member gets everything afterwards."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    leaver, reply = through_all_waits(world, topic, hold)
    assert not reply.done
    leaver.connection.close()
    world.assert_idle()
    world.cluster.held = set()
    assert acquired(world.member(member_id="next").fetch(topic)) == [(0, 9, 1)]
    world.assert_idle()


@pytest.mark.parametrize("hold", [12, 3, 2, 1])
def test_late_answers_for_a_client_that_left_do_no_harm(world, hold):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    leaver, _ = through_all_waits(world, topic, hold)
    for task in leaver.connection.tasks:
        task.cancel()  # the client's request is over, its upstream connection still answers
    world.cluster.release()
    assert acquired(world.member(member_id="next").fetch(topic)) == [(0, 9, 1)]
    world.timers.advance(10)
    world.assert_idle()


@pytest.mark.parametrize("hold", [12, 3, 2, 1])
def test_broker_that_hangs_up_at_any_wait_ends_the_request(world, hold):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member, reply = through_all_waits(world, topic, hold)
    member.connection.lose_upstream()
    with pytest.raises(UpstreamLost):
        _ = reply.message
    member.connection.close()
    world.assert_idle()
    world.cluster.held = set()
    assert acquired(world.member(member_id="next").fetch(topic)) == [(0, 9, 1)]


def test_client_that_leaves_while_parked(world):
    topic = world.cluster.create("t")
    members = [world.member(member_id=name) for name in "abc"]
    replies = [member.send_fetch(topic, wait_ms=5000) for member in members]
    assert world.cluster.count(1) == 1
    members[1].connection.close()
    members[0].connection.close()
    world.cluster.produce(topic, 3)
    assert acquired(replies[2].message) == [(0, 2, 1)]
    world.assert_idle()


def test_head_is_taken_over_when_its_reader_leaves(world):
    """The one who waits behind the reader reads at once, not when its own wait is over."""
    topic = world.cluster.create("t")
    reader, waiter = world.member(member_id="a"), world.member(member_id="b")
    reader.send_fetch(topic, wait_ms=5000)
    reply = waiter.send_fetch(topic, wait_ms=5000)
    assert world.cluster.count(1) == 1
    reader.connection.close()
    assert world.cluster.count(1) == 2
    world.cluster.produce(topic, 1)
    assert acquired(reply.message) == [(0, 0, 1)]


def test_reader_that_never_answers_loses_the_head(world):
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


def test_late_answer_only_feeds_the_cache(world):
    """A member answered from the cache meanwhile: what its Fetch brings later goes to whoever asks."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    holder = world.member(member_id="a")
    assert acquired(holder.fetch(topic)) == [(0, 4, 1)]
    reader = world.member(member_id="b")
    reading = reader.send_fetch(topic, wait_ms=5000)
    other = world.member(member_id="c")
    waiting = other.send_fetch(topic, wait_ms=5000)
    holder.acknowledge({(topic.topic_id, 0): [(0, 4, [2])]})
    answered, still = (reading, waiting) if reading.done else (waiting, reading)
    assert acquired(answered.message) == [(0, 4, 2)]
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
    asked = world.cluster.count(1)
    again = reader.send_fetch(wait_ms=2000)
    assert world.cluster.count(1) == asked
    world.cluster.produce(topic, 1)
    world.cluster.release()
    world.timers.advance(0.1)
    assert acquired(again.message) == [(5, 5, 1)]


def test_two_members_race_for_an_unstarted_partition(world):
    """One looks the start up, the other is parked and goes on when it is known."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.cluster.produce(topic, 1)
    world.cluster.held = {2}
    first = world.member(member_id="a").send_fetch(topic, max_records=1)
    second = world.member(member_id="b").send_fetch(topic, max_records=1)
    assert world.cluster.count(2) == 1
    world.cluster.release()
    assert sorted(acquired(reply.message)[0] for reply in (first, second)) == [(0, 0, 1), (1, 1, 1)]
    world.assert_idle()


def test_starter_that_leaves_is_followed_by_the_next(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 2)
    world.cluster.held = {2}
    first = world.member(member_id="a")
    first.send_fetch(topic)
    second = world.member(member_id="b").send_fetch(topic)
    first.connection.close()
    assert world.cluster.count(2) == 2
    world.cluster.release()
    assert acquired(second.message) == [(0, 1, 1)]


def test_failing_start_is_told(world):
    topic = world.cluster.create("t")
    world.cluster.fail_next[2] = [ErrorCode.OFFSET_NOT_AVAILABLE]
    member = world.member()
    assert entries(member.fetch(topic, wait_ms=0))[topic.topic_id, 0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    world.cluster.produce(topic, 1)
    assert acquired(member.fetch()) == [(0, 0, 1)]


def test_records_of_one_group_wake_the_other(world):
    """What one group's member reads is there for the members of all groups that wait for it."""
    world.configure("h", **EARLIEST)
    topic = world.cluster.create("t")
    first = world.member().send_fetch(topic, wait_ms=5000)
    second = world.member(group_id="h").send_fetch(topic, wait_ms=5000)
    world.cluster.produce(topic, 4)
    assert acquired(first.message) == acquired(second.message) == [(0, 3, 1)]


def test_four_members_and_four_thousand_records(world):
    """Every record is delivered exactly once, and nothing is left behind."""
    topic = world.cluster.create("t", leaders=(1, 1))
    members = [world.member(member_id=f"m{i}") for i in range(4)]
    seen: list[tuple[int, int]] = []
    held: list[dict] = [{} for _ in members]
    for turn in range(400):
        if turn < 40:
            world.cluster.produce(topic, 50, turn % 2)
            world.cluster.produce(topic, 50, (turn + 1) % 2)
        for index, member in enumerate(members):
            first = [topic] if member.epoch == 0 else []
            answer = member.fetch(*first, acks=held[index] or None, wait_ms=0, max_records=75)
            assert answer.error_code == 0
            held[index] = {}
            for (topic_id, partition), entry in entries(answer).items():
                assert (entry.error_code, entry.acknowledge_error_code) == (0, 0)
                for span in entry.acquired_records:
                    assert span.delivery_count == 1
                    seen += [(partition, offset) for offset in range(span.first_offset, span.last_offset + 1)]
                    held[index].setdefault((topic_id, partition), []).append((span.first_offset, span.last_offset, [1]))
        world.timers.advance(0.01)
        if len(seen) == 4000 and not any(held):
            break
    assert sorted(seen) == list(itertools.product(range(2), range(2000)))
    shares = dict(world.services.coordinator.shares())
    assert {share.partition.start_offset for share in shares.values()} == {2000}
    world.assert_idle()
    world.timers.advance(60)
    assert world.timers.planned == 0
    assert world.services.reads.cache.bytes == 0


# The parts alone


def chunk(key, first, last, *, size=100, epoch=5, at=0.0):
    data = memoryview(records.build_batch(first, [records.Record(value=bytes(size))] * (last - first + 1)))
    return Chunk(key, first, list(records.iter_batches(data)), data, (), epoch, at)


KEY = CacheKey(b"t" * 16, 0, False)


def test_cache_finds_what_holds_the_offset():
    cache = BatchCache(1 << 20, 2.0)
    one, two = chunk(KEY, 0, 9), chunk(KEY, 10, 19)
    cache.add(one)
    cache.add(two)
    assert cache.find(KEY, 5, 5, 1.0) is one
    assert cache.find(KEY, 10, 5, 1.0) is two
    assert cache.find(KEY, 20, 5, 1.0) is None
    assert cache.find(KEY, 5, 6, 1.0) is None
    assert cache.find(KEY, 5, 5, 2.0) is None
    assert cache.find(CacheKey(b"t" * 16, 0, True), 5, 5, 1.0) is None


def test_cache_is_bounded_in_bytes_and_chunks():
    cache = BatchCache(1000, 2.0)
    for first in range(0, 100, 10):
        cache.add(chunk(KEY, first, first, size=200))
    assert cache.bytes <= 1000
    assert cache.find(KEY, 90, 5, 0.0) is not None
    assert cache.find(KEY, 0, 5, 0.0) is None
    cache = BatchCache(1 << 20, 2.0)
    for first in range(CHUNKS_PER_PARTITION + 4):
        cache.add(chunk(KEY, first, first))
    assert cache.find(KEY, 3, 5, 0.0) is None
    assert cache.find(KEY, 4, 5, 0.0) is not None


def test_cache_keeps_one_answer_even_if_larger_than_its_limit():
    cache = BatchCache(10, 2.0)
    cache.add(chunk(KEY, 0, 9))
    assert cache.find(KEY, 0, 5, 0.0) is not None


def test_cache_drops_what_a_newer_read_covers_or_another_epoch_wrote():
    cache = BatchCache(1 << 20, 2.0)
    cache.add(chunk(KEY, 5, 9))
    cache.add(chunk(KEY, 0, 19))
    cache.add(chunk(KEY, 20, 29, epoch=6))
    assert cache.find(KEY, 5, 5, 0.0) is None
    assert cache.find(KEY, 25, 6, 0.0) is not None
    cache.drop_partition(b"t" * 16, 0)
    assert cache.bytes == 0


def test_small_part_of_a_large_answer_is_copied(world):
    """A few bytes in the cache must not keep megabytes of an answer alive."""
    topic = world.cluster.create("t", leaders=(1, 1))
    world.cluster.produce(topic, 1, 0)
    world.cluster.produce(topic, 1, 1, value=bytes(10_000))
    world.member().fetch(topic, max_records=1, max_bytes=1)
    kept = [chunk for chunks in world.services.reads.cache._chunks.values() for chunk in chunks]
    sizes = {len(c.records.obj) for c in kept if len(c.records) < 1000}
    assert all(size < 1000 for size in sizes)


def made_reads(heads):
    return ShareReads(BatchCache(1 << 20, 2.0), lambda key: heads.get(key, Head(None, cached=False)))


def test_reservation_stands_against_the_same_place_and_later_ones():
    reads = made_reads({})
    key = ShareKey("g", b"t" * 16, 0)
    first = reads.reserve(key, 1, 10, False, deadline=6.0, now=0.0)
    assert first is not None
    assert reads.reserve(key, 2, 10, False, deadline=6.0, now=1.0) is None
    below = reads.reserve(key, 2, 5, False, deadline=6.0, now=1.0)
    assert below is not None
    assert below.id > first.id
    assert not reads.holds(first)
    assert reads.let_go([first]) == []
    assert reads.reserve(key, 3, 5, False, deadline=12.0, now=6.0) is not None


def test_wake_goes_on_while_there_is_something():
    key = ShareKey("g", b"t" * 16, 0)
    heads = {key: Head(0, cached=True)}
    reads = made_reads(heads)
    waiters = [reads.wait([key]) for _ in range(5)]
    woken = []
    for index, waiter in enumerate(waiters):

        def took(index=index) -> None:
            woken.append(index)
            if len(woken) == 3:
                heads[key] = Head(None, cached=False)

        waiter.woken.on_settled(took)
    reads.wake(key)
    assert woken == [0, 1, 2]
    assert reads.waiting == 2


def test_waking_inside_a_wake_does_not_pile_up_the_stack():
    key = ShareKey("g", b"t" * 16, 0)
    reads = made_reads({key: Head(0, cached=True)})
    count = 3000
    woken: list[Promise] = []
    for _ in range(count):
        waiter = reads.wait([key])
        waiter.woken.on_settled(lambda: (woken.append(None), reads.wake(key)))
    reads.wake(key)
    assert len(woken) == count
