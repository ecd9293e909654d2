"""Fetches of views side by side: who reads, who waits for whom, and what happens when one of them goes."""

from __future__ import annotations

import itertools

import pytest
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.views.fetch.shared_reads import READ_BYTES_MIN
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.records import compression, records

from tests.support.view_ports import HeldWorkers, ViewWorld, next_offset, offsets_in, partitions_of

KEYS = [b"key-%d" % number for number in range(64)]
R = 8


@pytest.fixture
def world() -> ViewWorld:
    view_world = ViewWorld()
    view_world.base = view_world.topic("t")
    view_world.v = view_world.view(f"__view.r{R}.t")
    return view_world


def entry(reply, view, slot):
    return partitions_of(reply.message)[view, slot]


def warm(world, count=R):
    """Readers whose connections have shown that they may read the base, all at the end."""
    readers = [world.connect() for _ in range(count)]
    for slot, reader in enumerate(readers):
        world.fetch(reader, {world.v: {slot: world.base.logs[0].end}}, wait_ms=0)
    return readers


def test_readers_at_the_end_cost_one_read(world):
    """All wait for the same Fetch, and what it brings is taken apart once."""
    readers = warm(world)
    before = world.cluster.count(1)
    replies = [world.fetch(r, {world.v: {slot: 0}}, wait_ms=500) for slot, r in enumerate(readers)]
    assert world.cluster.count(1) == before + 1
    world.produce(world.base, KEYS)
    partition_responses = [entry(reply, world.v, slot) for slot, reply in enumerate(replies)]
    assert sorted(itertools.chain(*(offsets_in(e.records) for e in partition_responses))) == list(range(64))
    assert {next_offset(e.records, 0) for e in partition_responses} == {64}
    assert world.cluster.count(1) == before + 1


def test_reader_that_got_nothing_waits_on(world):
    """Past what was dropped for it, with one Fetch for all who do."""
    readers = warm(world)
    replies = [world.fetch(r, {world.v: {slot: 0}}, wait_ms=500) for slot, r in enumerate(readers)]
    world.produce(world.base, [KEYS[0]])
    done = [reply for reply in replies if reply.done]
    assert len(done) == 1
    world.timers.advance(0.5)
    assert all(reply.done for reply in replies)
    assert {next_offset(entry(reply, world.v, slot).records, 0) for slot, reply in enumerate(replies)} == {1}


def test_waiting_requests_read_by_themselves_when_the_reading_client_disconnects(world):
    """One of them reads anew, over its own connection."""
    readers = warm(world)
    replies = [world.fetch(r, {world.v: {slot: 0}}, wait_ms=5000) for slot, r in enumerate(readers)]
    before = world.cluster.count(1)
    readers[0].close()
    assert world.cluster.count(1) == before + 1
    world.produce(world.base, KEYS)
    got = [offsets_in(entry(reply, world.v, slot).records) for slot, reply in enumerate(replies) if slot]
    assert all(got)


def test_upstream_connection_that_ends_ends_its_own_client_only(world):
    readers = warm(world)
    replies = [world.fetch(r, {world.v: {slot: 0}}, wait_ms=5000) for slot, r in enumerate(readers)]
    readers[0].lose_upstream()
    with pytest.raises(UpstreamLost):
        _ = replies[0].message
    world.produce(world.base, KEYS)
    assert all(reply.done for reply in replies)


@pytest.mark.parametrize("count", [1, 3, R])
def test_idle_readers_request_at_most_once_per_wait(world, count):
    """However their requests interleave (T4)."""
    readers = warm(world, count)
    before = world.cluster.count(1)
    replies = {}
    for step in range(100):
        for slot, reader in enumerate(readers):
            if (slot not in replies and step == slot * 3) or (slot in replies and replies[slot].done):
                replies[slot] = world.fetch(reader, {world.v: {slot: 0}}, wait_ms=500)
        world.timers.advance(0.05)
    assert world.cluster.count(1) - before <= count * 11


def test_request_never_takes_longer_than_its_wait(world):
    """Nor shorter where there is nothing."""
    reader = world.connect()
    reply = world.fetch(reader, {world.v: {0: 0, 1: 0}}, wait_ms=700)
    for _ in range(6):
        world.timers.advance(0.11)
        world.produce(world.base, [key for key in KEYS if key == b"key-0"])
        assert reply.done is (world.timers.now() >= 1000.7) or offsets_in(entry(reply, world.v, 0).records)
    world.timers.advance(0.05)
    assert reply.done


def test_different_waits_do_not_hold_each_other_up(world):
    """The shorter wait ends in time, with the broker's last response."""
    readers = warm(world, 2)
    long = world.fetch(readers[0], {world.v: {0: 0}}, wait_ms=5000)
    short = world.fetch(readers[1], {world.v: {1: 0}}, wait_ms=100)
    world.timers.advance(0.1)
    assert entry(short, world.v, 1).high_watermark == 0
    assert not long.done


def test_the_cache_serves_only_clients_that_may_read_the_base(world):
    """Each connection's right is queried on that connection."""
    reader = world.connect()
    world.produce(world.base, KEYS)
    world.fetch(reader, {world.v: {0: 0}})
    world.base.bits = 1 << 8
    stranger = world.connect()
    reply = world.fetch(stranger, {world.v: {0: 0}})
    assert entry(reply, world.v, 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not entry(reply, world.v, 0).records


def test_cached_batches_serve_the_other_slots(world):
    world.produce(world.base, KEYS)
    world.fetch(world.connect(), {world.v: {0: 0}})
    before = world.cluster.count(1)
    reply = world.fetch(world.connect(), {world.v: dict.fromkeys(range(1, R), 0)})
    assert next_offset(entry(reply, world.v, 7).records, 0) == 64
    assert world.cluster.count(1) == before


def test_other_leader_epoch_is_judged_by_the_broker(world):
    """An epoch that is not the leader's is never served from what others read."""
    world.produce(world.base, KEYS)
    world.fetch(world.connect(), {world.v: {0: 0}})
    reply = world.fetch(world.connect(), {world.v: {0: 0}}, epoch=4)
    assert entry(reply, world.v, 0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    reply = world.fetch(world.connect(), {world.v: {0: 0}}, epoch=9)
    assert entry(reply, world.v, 0).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_leader_that_moved_is_not_queried_and_its_cache_is_not_used(world):
    """Slots of a base partition get the leader's address."""
    world.produce(world.base, KEYS)
    client = world.connect(1)
    world.fetch(client, {world.v: {0: 0}})
    world.cluster.move_leader(world.base, 2)
    reply = world.fetch(client, {world.v: {0: 64}})
    assert entry(reply, world.v, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = world.fetch(client, {world.v: {0: 0}})
    assert entry(again, world.v, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert entry(again, world.v, 0).current_leader.leader_id == 2
    moved = world.fetch(world.connect(2), {world.v: {0: 0}})
    assert next_offset(entry(moved, world.v, 0).records, 0) == 64


def test_follow_up_reads_keep_the_clients_epoch_and_send_the_scanned_one(world):
    """CurrentLeaderEpoch stays, LastFetchedEpoch is that of the last scanned batch (views/README.md rule 24)."""
    reader = world.connect()
    other = next(key for key in KEYS if key not in _of_slot(0))
    reply = world.fetch(reader, {world.v: {0: 0}}, epoch=5, last_epoch=2, wait_ms=500)
    world.produce(world.base, [other])
    assert not reply.done
    requested = [r.topics[0].partitions[0] for r in world.cluster.requests(1)]
    assert [(p.current_leader_epoch, p.last_fetched_epoch, p.fetch_offset) for p in requested] == [(5, 2, 0), (5, 5, 1)]


def _of_slot(slot):
    from kafka_share_proxy.views.model.slots import EvenCut

    return [key for key in KEYS if EvenCut(R).slot_of(key, 0) == slot]


def test_records_below_the_fetch_offset_are_dropped(world):
    """Brokers send whole batches."""
    world.produce(world.base, KEYS)
    reply = world.fetch(world.connect(), {world.v: dict.fromkeys(range(R), 30)})
    offsets = itertools.chain(*(offsets_in(entry(reply, world.v, slot).records) for slot in range(R)))
    assert sorted(offsets) == list(range(30, 64))


def test_out_of_range_is_the_brokers_word(world):
    """Also for a client that waits together with a reader at the end."""
    readers = warm(world, 2)
    world.fetch(readers[0], {world.v: {0: 0}}, wait_ms=5000)
    beyond = world.fetch(readers[1], {world.v: {1: 9}}, wait_ms=500)
    assert entry(beyond, world.v, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_slots_at_distant_offsets_are_all_read(world):
    for _ in range(20):
        world.produce(world.base, KEYS)
    world.views.options = Views.model_construct(read_bytes=1 << 16)
    reply = world.fetch(world.connect(), {world.v: {0: 0, 1: 1200, 2: 640}})
    assert all(next_offset(entry(reply, world.v, slot).records, 0) > 0 for slot in (0, 1, 2))


def test_limits_of_the_client_hold_after_filtering(world):
    """Responses end at batch boundaries, with at least one batch."""
    for _ in range(20):
        world.produce(world.base, KEYS)
    reply = world.fetch(world.connect(), {world.v: {0: 0, 1: 0}}, partition_max_bytes=400)
    assert 0 < len(entry(reply, world.v, 0).records) <= 400 + 80
    reply = world.fetch(world.connect(), {world.v: {0: 0, 1: 0}}, max_bytes=1)
    sizes = [len(offsets_in(entry(reply, world.v, slot).records)) for slot in (0, 1)]
    assert sum(bool(size) for size in sizes) == 1


def test_response_without_room_waits_and_is_sent_without_records(world):
    """The client's position does not move (views/README.md rule 44)."""
    world.services.responses.limit = 10
    world.services.responses.add_unsent(10)
    world.produce(world.base, KEYS)
    reply = world.fetch(world.connect(), {world.v: {0: 0}}, wait_ms=300)
    assert not reply.done
    world.timers.advance(0.3)
    assert not entry(reply, world.v, 0).records
    assert world.services.responses.refusals == 1


def test_a_response_ends_at_the_limit_of_scanned_bytes(world):
    """A slot with nothing in it moves on all the same."""
    world = ViewWorld(view_options=Views.model_construct(scanned_bytes=3000, read_bytes=1 << 16), limits=Limits())
    base, view = world.topic("t"), world.view(f"__view.r{R}.t")
    empty = next(slot for slot in range(R) if b"key-0" not in _of_slot(slot))
    for _ in range(10):
        world.produce(base, [b"key-0"] * 64)
    reply = world.fetch(world.connect(), {view: {empty: 0}}, wait_ms=500)
    assert 0 < next_offset(entry(reply, view, empty).records, 0) < 640


def test_large_batches_are_split_by_a_thread_once(world):
    """Other requests for the same batches wait for the same work; a client that disconnects does not stop it."""
    workers = HeldWorkers()
    world = ViewWorld(workers=workers)
    base, view = world.topic("t"), world.view(f"__view.r{R}.t")
    for _ in range(4):
        world.produce(base, KEYS * 1000)
    first, second = world.connect(), world.connect()
    replies = [world.fetch(first, {view: {0: 0}}), world.fetch(second, {view: {0: 0}})]
    assert len(workers.jobs) == 1
    first.close()
    workers.work()
    world.timers.advance(0)
    assert next_offset(entry(replies[1], view, 0).records, 0) > 0
    assert world.cluster.count(1) == 1


BOMB = 8 << 20
"""Bytes of zeros in one record: 300 when compressed."""


def _with_bombs(workers, count, **options):
    world = ViewWorld(workers=workers, view_options=Views.model_construct(**options), limits=Limits())
    base, view = world.topic("t"), world.view(f"__view.r{R}.t")
    record = records.Record(b"key-0", bytes(BOMB))
    for offset in range(count):
        data = records.build_batch(offset, [record], leader_epoch=0, codec=compression.ZSTD)
        base.logs[0].batches.append((offset, offset, data))
    base.logs[0].end = count
    return world, view, next(slot for slot in range(R) if b"key-0" not in _of_slot(slot))


def test_a_large_decompression_runs_in_a_thread():
    """Small as it is on the wire: the loop and the other threads give up where it becomes large."""
    workers = HeldWorkers()
    world, view, empty = _with_bombs(workers, 12)
    reply = world.fetch(world.connect(), {view: {empty: 0}}, wait_ms=500)
    assert workers.large == [False]
    workers.work()
    assert workers.large == [False, True]
    other = world.topic("other")
    world.produce(other, KEYS)
    quick = world.fetch(world.connect(), {world.view(f"__view.r{R}.other"): {0: 0}})
    assert quick.done
    assert not reply.done


def test_a_response_ends_at_the_limit_of_decompressed_bytes():
    """It gives what it has, at least one batch, and its client continues from there."""
    world, view, empty = _with_bombs(None, 12, scanned_bytes=3 * BOMB)
    reply = world.fetch(world.connect(), {view: {empty: 0}}, wait_ms=500)
    assert next_offset(entry(reply, view, empty).records, 0) == 3
    again = world.fetch(world.connect(), {view: {empty: 3}}, wait_ms=500)
    assert next_offset(entry(again, view, empty).records, 3) == 6
    world, view, empty = _with_bombs(None, 2, scanned_bytes=1)
    reply = world.fetch(world.connect(), {view: {empty: 0}}, wait_ms=500)
    assert next_offset(entry(reply, view, empty).records, 0) == 1


def test_a_reader_in_the_middle_of_a_large_batch_has_a_thread_open_it():
    """Its part of the batch is shared with no other, and not made in the loop either."""
    workers = HeldWorkers()
    world, base = ViewWorld(workers=workers), None
    base, view = world.topic("t"), world.view(f"__view.r{R}.t")
    world.produce(base, KEYS * 2000, codec=compression.GZIP)
    reply = world.fetch(world.connect(), {view: {0: 1000}})
    assert len(workers.jobs) == 1
    workers.work()
    assert min(offsets_in(entry(reply, view, 0).records)) >= 1000


def test_a_fetch_waits_while_the_queue_of_the_threads_is_full():
    """Its response has no records when its time is over, and nothing is opened in the loop."""
    workers = HeldWorkers()
    world, view, empty = _with_bombs(workers, 1)
    workers.is_full = True
    reply = world.fetch(world.connect(), {view: {empty: 0}}, wait_ms=300)
    for _ in range(20):
        world.timers.advance(0.05)
    got = entry(reply, view, empty)
    assert (got.error_code, bytes(got.records)) == (ErrorCode.NONE, b"")
    assert workers.large == []


def test_records_of_a_response_count_while_it_waits_for_more(world):
    """Records of the base that it read itself, and its own; everything is released with the response."""
    responses = world.services.responses
    world.produce(world.base, KEYS)
    reply = world.fetch(world.connect(), {world.v: {0: 0}}, wait_ms=800, min_bytes=1 << 20)
    assert not reply.done
    read = len(world.base.logs[0].batches[0][2])
    own_bytes = responses.used - read
    assert 0 < own_bytes < read
    world.timers.advance(0.8)
    assert len(entry(reply, world.v, 0).records) >= own_bytes
    assert responses.used == 0


def test_a_client_that_disconnects_releases_its_bytes_in_the_budget(world):
    world.produce(world.base, KEYS)
    reader = world.connect()
    reply = world.fetch(reader, {world.v: {0: 0}}, wait_ms=800, min_bytes=1 << 20)
    assert world.services.responses.used > 0
    reply.task.cancel()
    reader.close()
    assert world.services.responses.used == 0


def test_readers_that_have_records_do_not_wait_for_more_when_room_is_short(world):
    """Whatever their MinBytes: others may need the room."""
    world.produce(world.base, KEYS)
    responses = world.services.responses
    responses.limit = 10_000
    first = world.fetch(world.connect(), {world.v: {0: 0}}, wait_ms=800, min_bytes=1 << 20)
    assert not first.done
    responses.limit = responses.used + 100
    second = world.fetch(world.connect(), {world.v: {1: 0}}, wait_ms=800, min_bytes=1 << 20)
    assert not second.done
    responses.limit = responses.used + 500
    third = world.fetch(world.connect(), {world.v: {2: 0}}, wait_ms=800, min_bytes=1 << 20)
    assert third.done
    assert offsets_in(entry(third, world.v, 2).records)


def test_few_bytes_are_requested_at_the_end_of_the_log_or_without_room(world):
    """The log has ended, or there is no room; the whole of a read is requested if more records are known to exist."""
    for _ in range(4):
        world.produce(world.base, KEYS * 100)
    reader = world.connect()
    first = world.fetch(reader, {world.v: {0: 0}})
    at = next_offset(entry(first, world.v, 0).records, 0)
    world.fetch(reader, {world.v: {0: at}})
    sizes = [request.topics[0].partitions[0].partition_max_bytes for request in world.cluster.requests(1)]
    assert sizes == [READ_BYTES_MIN, world.views.options.read_bytes]
    assert world.services.responses.used == 0


def test_a_read_waits_for_room_for_a_batch(world):
    """A broker returns a whole batch, however small the limit of a read is (KIP-74)."""
    for _ in range(4):
        world.produce(world.base, KEYS * 100)
    reader, responses = world.connect(), world.services.responses
    first = world.fetch(reader, {world.v: {0: 0}})
    at = next_offset(entry(first, world.v, 0).records, 0)
    responses.add_unsent(responses.limit)
    second = world.fetch(reader, {world.v: {0: at}}, wait_ms=800)
    assert len(world.cluster.requests(1)) == 1
    responses.sent(responses.limit)
    world.timers.advance(0.1)
    assert second.done
    assert len(world.cluster.requests(1)) == 2
    assert entry(second, world.v, 0).records


def test_a_read_that_every_slot_has_passed_takes_no_room_from_the_next(world):
    """Records of other slots are read one batch after the other, however many they are."""
    empty = next(slot for slot in range(R) if b"key-0" not in _of_slot(slot))
    for _ in range(4):
        world.produce(world.base, [b"key-0"] * 5000)
    world.fetch(world.connect(), {world.v: {0: 0}}, wait_ms=0)
    (read,) = world.views.reads.latest.values()
    world.views.reads.cache.drop_aged(float("inf"))
    world.services.responses.add_unsent(1)
    world.services.responses.limit = 3 * read.batch_bytes
    reply = world.fetch(world.connect(), {world.v: {empty: 0}}, wait_ms=500)
    world.timers.advance(0.5)
    assert next_offset(entry(reply, world.v, empty).records, 0) == 20_000
    assert world.services.responses.used == 1


def test_throttled_response_ends_the_waiting(world):
    """The client has to know."""
    world.cluster.throttle_ms = 50
    reply = world.fetch(world.connect(), {world.v: {0: 0}}, wait_ms=0)
    assert reply.message.throttle_time_ms == 50


def test_upstream_fetch_of_an_earlier_request_is_waited_for(world):
    """Never two Fetches under way on one connection."""
    readers = warm(world, 2)
    other = world.topic("u")
    view = world.view("__view.r2.u")
    world.fetch(readers[1], {view: {0: 0}}, wait_ms=0)
    long = world.fetch(readers[0], {world.v: {0: 0}}, wait_ms=5000)
    both = world.fetch(readers[1], {world.v: {1: 0}, view: {0: 0}}, wait_ms=5000)
    world.produce(world.base, KEYS)
    assert long.done
    assert both.done
    world.produce(other, KEYS)
    again = world.fetch(readers[1], {world.v: {1: 64}, view: {0: 0}}, wait_ms=500)
    world.timers.advance(0.6)
    assert offsets_in(entry(again, view, 0).records)


def test_out_of_range_is_returned_for_the_slots_at_that_offset_only(world):
    """A slot that lags beyond the retention does not reset the others."""
    world.produce(world.base, KEYS)
    world.produce(world.base, KEYS)
    world.cluster.delete_records(world.base, 64)
    reply = world.fetch(world.connect(), {world.v: {0: 3, 1: 64, 2: 64}})
    codes = [entry(reply, world.v, slot).error_code for slot in (0, 1, 2)]
    assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE, ErrorCode.NONE]
    assert all(entry(reply, world.v, slot).high_watermark == 128 for slot in (1, 2))


def test_diverging_epoch_is_returned_for_the_slots_at_that_offset_only(world):
    """As the broker would judge each separately: a reader before the cut lost nothing, and need not go back."""
    log = world.base.logs[0]
    world.produce(world.base, KEYS)
    log.epoch, log.ends = 6, {5: 64}  # what another leader had from 64 on was cut off
    world.produce(world.base, KEYS)
    reader = world.connect()
    reply = world.fetch(reader, {world.v: {0: 3, 1: 100, 2: 100, 3: 64}}, last_epoch=5)
    ends = [entry(reply, world.v, slot).diverging_epoch.end_offset for slot in range(4)]
    assert ends == [-1, 64, 64, -1]
    assert [entry(reply, world.v, slot).error_code for slot in range(4)] == [ErrorCode.NONE] * 4
    assert not any(entry(reply, world.v, slot).records for slot in (1, 2))
    for slot, offset in ((0, 3), (3, 64)):
        again = world.fetch(reader, {world.v: {slot: offset}}, last_epoch=5)
        assert offsets_in(entry(again, world.v, slot).records)[-1] > 64


def test_a_reader_of_truncated_records_gets_an_error_though_others_at_its_offset_read_the_new_ones(world):
    """Otherwise it would continue after records it never saw."""
    log = world.base.logs[0]
    world.produce(world.base, KEYS)
    log.epoch, log.ends = 6, {5: 64}
    world.produce(world.base, KEYS)
    reader = world.connect()
    world.fetch(reader, {world.v: {0: 64}})  # in the cache now
    diverging = {}
    for _ in range(2):
        reply = world.fetch(reader, {world.v: {0: 128, 1: 128, 2: 128}}, last_epoch={0: 6, 1: 5, 2: -1}, wait_ms=200)
        world.timers.advance(0.2)
        assert not any(entry(reply, world.v, slot).records for slot in range(3))
        diverging |= {
            slot: end for slot in range(3) if (end := entry(reply, world.v, slot).diverging_epoch.end_offset) >= 0
        }
    assert diverging == {1: 64}
    waiting = world.fetch(reader, {world.v: {0: 128, 1: 128}}, last_epoch={0: 6, 1: 5})
    if not waiting.done:
        world.produce(world.base, KEYS)
    assert not entry(waiting, world.v, 1).records


def test_views_and_plain_partitions_alternate_as_first(world):
    """The first partitions of a Fetch get their bytes before the others."""
    other = world.topic("u")
    reader = world.connect()
    for _ in range(2):
        world.fetch(reader, {world.v: {0: 0}, other.topic_id: {0: 0}}, wait_ms=0)
    firsts = [request.topics[0].topic_id for request in world.cluster.requests(1)]
    assert set(firsts) == {world.base.topic_id, other.topic_id}


def test_client_with_a_later_leader_epoch_causes_a_metadata_refresh(world):
    """So that what is read can be shared again."""
    reader = world.connect()
    world.fetch(reader, {world.v: {0: 0}}, wait_ms=0)
    world.base.logs[0].epoch += 1
    world.timers.advance(2)
    world.fetch(reader, {world.v: {0: 0}}, wait_ms=0, epoch=6)
    world.fetch(reader, {world.v: {0: 0}}, wait_ms=0, epoch=6)
    assert world.services.topology.leader(world.base.topic_id, 0).epoch == 6
