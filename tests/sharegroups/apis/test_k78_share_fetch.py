"""ShareFetch (sharegroups/README.md rules 12-18, 24, 30, 44, 47); numbers in brackets are items of tests/oracle."""

from __future__ import annotations

import pytest
from kafka_share_proxy.loop.promise import PROCESS, call_soon
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

from tests.support.ports import SlowJournal, World, acquired, entries
from tests.support.share_steps import ACCEPT, EARLIEST, RELEASE, RENEW, from_the_start, held, start_offset

AT_OWNER_AND_EDGE = True


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def test_first_fetch_gives_all_records_from_the_start(world):
    """[3] earliest: all of the log, count 1, the batch's own bytes."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    response = world.member().fetch(topic)
    assert acquired(response) == [(0, 9, 1)]
    assert bytes(entries(response)[topic.topic_id, 0].records) == topic.logs[0].batches[0][2]
    assert response.acquisition_lock_timeout_ms == 30_000
    assert response.error_code == 0


def test_partitions_of_one_node_in_one_fetch(world):
    """[4] Three partitions, one upstream Fetch, each its own records."""
    topic = world.cluster.create("t", leaders=(1, 1, 1))
    for partition in range(3):
        world.cluster.produce(topic, 10, partition)
    response = world.member().fetch(topic)
    assert [acquired(response, topic, p) for p in range(3)] == [[(0, 9, 1)]] * 3
    assert world.cluster.count(1) == 1


def test_accepted_records_are_settled_and_new_ones_are_in_the_same_response(world):
    """[7]"""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    world.cluster.produce(topic, 10)
    response = member.fetch(acks={(topic.topic_id, 0): [(0, 9, [1])]})
    assert entries(response)[topic.topic_id, 0].acknowledge_error_code == 0
    assert acquired(response) == [(10, 19, 1)]


def test_records_released_by_a_fetch_are_acquired_after_others(world, where):
    """[8, 9] As on a broker, which fetches before the release is stored; with nothing else to give, it waits for it.

    Where another proxy keeps the records they are acquired when the response can go out: then the release is stored.
    """
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    world.cluster.produce(topic, 10)
    response = member.fetch(acks={(topic.topic_id, 0): [(0, 9, [RELEASE])]})
    assert acquired(response) == ([(10, 19, 1)] if where == "owner" else [(0, 9, 2), (10, 19, 1)])
    response = member.fetch(acks={(topic.topic_id, 0): [(10, 19, [ACCEPT])]})
    assert acquired(response) == ([(0, 9, 2)] if where == "owner" else [])
    count = 3 if where == "owner" else 2
    held_first = {(topic.topic_id, 0): [(0, 9, [RELEASE])]}
    assert acquired(member.fetch(acks=held_first)) == [(0, 9, count + (where == "edge"))]


def test_halves_of_a_throttled_batch_released_by_fetches_alternate(world, where):
    """A limit of 5: the fourth delivery of 4 records is split in halves, 0-1 and 2-3, before any has its fifth."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 4)
    member = world.member()
    got, deliveries = acquired(member.fetch(topic)), []
    while got:
        deliveries.append(got)
        acks = {(topic.topic_id, 0): [(first, last, [RELEASE]) for first, last, _ in got]}
        got = acquired(member.fetch(acks=acks))
    whole = [[(0, 3, count)] for count in (1, 2, 3)]
    singles = [[(offset, offset, 5)] for offset in range(4)]
    halves = [[(0, 1, 4)], [(2, 3, 4)]]
    if where == "edge":
        assert deliveries == [*whole, halves[0], *singles[:2], halves[1], *singles[2:]]
    else:
        assert deliveries == [*whole, *halves, *singles]


def accepting(count_more=10, **settings):
    """A world whose journal waits from now on, and a member that holds 0-9 while there is more to fetch."""
    journal = SlowJournal()
    world = World(journal=journal)
    world.configure("g", **EARLIEST, **settings)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = held(world, topic)
    world.cluster.produce(topic, count_more)
    journal.slow = True
    return world, journal, topic, member


def locked(world, topic):
    """Return the offsets that members hold, or have accepted before it is stored."""
    return [
        (lock.first, lock.last) for lock in world.services.coordinator.share(("g", topic.topic_id, 0)).partition.locks()
    ]


def test_fetch_does_not_wait_until_accepted_records_are_stored_and_the_response_does(where):
    """Brokers do the same. What is acquired meanwhile counts as a response that is not sent.

    Records that another proxy keeps are acquired when the response can go out: that proxy lets go of them soon.
    """
    world, journal, topic, member = accepting()
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    world.timers.advance(0.1)
    assert ((10, 19) in locked(world, topic)) == (where == "owner")
    assert (world.services.responses.used > 0) == (where == "owner")
    assert not reply.done
    journal.confirm()
    assert world.services.responses.used == 0
    assert entries(reply.message)[topic.topic_id, 0].acknowledge_error_code == 0
    assert acquired(reply.message) == [(10, 19, 1)]
    assert bytes(entries(reply.message)[topic.topic_id, 0].records) == topic.logs[0].batches[1][2]
    assert start_offset(world, topic) == 10


def test_acknowledgements_are_sent_to_the_broker_before_records_are_acquired():
    """The broker stores them while this proxy acquires: the journal sends what it queued at the end of an iteration."""
    world, journal, topic, member = accepting()
    locked_when_sent = []
    append = journal.append

    def append_and_send(records):
        call_soon(PROCESS, lambda: locked_when_sent.append(locked(world, topic)))
        return append(records)

    journal.append = append_and_send
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    assert locked_when_sent == [[(0, 9)]]
    journal.confirm()
    assert acquired(reply.message) == [(10, 19, 1)]


def test_records_acquired_meanwhile_are_given_also_when_the_acknowledgement_fails():
    world, journal, topic, member = accepting()
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    entry = entries(reply.message)[topic.topic_id, 0]
    assert entry.acknowledge_error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert acquired(reply.message) == [(10, 19, 1)]
    assert locked(world, topic) == [(0, 9), (10, 19)]


def test_others_are_acquired_before_what_the_fetch_releases_is_stored(where):
    world, journal, topic, member = accepting()
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [RELEASE])]})
    assert ((10, 19) in locked(world, topic)) == (where == "owner")
    assert not reply.done
    journal.confirm()
    assert acquired(reply.message) == ([(10, 19, 1)] if where == "owner" else [(0, 9, 2), (10, 19, 1)])


def test_others_are_read_before_what_the_fetch_releases_is_written(where):
    """One Fetch that does not wait: its response decides whether there are others, however fast the journal is."""
    world = World()
    world.configure("g", **EARLIEST)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = held(world, topic)
    world.cluster.held.add(1)
    before = world.cluster.count(1)
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [RELEASE])]})
    if where == "owner":
        assert [request.max_wait_ms for request in world.cluster.requests(1)[before:]] == [0]
        assert locked(world, topic) == [(0, 9)], "decided, not written"
    world.cluster.release()
    assert acquired(reply.message) == [(0, 9, 2)]


def test_what_is_released_is_written_also_when_the_client_leaves_while_others_are_read():
    world = World()
    world.configure("g", **EARLIEST)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = held(world, topic)
    world.cluster.held.add(1)
    member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [RELEASE])]})
    member.connection.close()
    world.cluster.release()
    assert locked(world, topic) == []
    assert acquired(world.member(member_id="m2").fetch(topic)) == [(0, 9, 2)]
    world.assert_idle()


def test_a_wait_that_is_over_before_the_release_is_stored_ends_without_records(where):
    """Brokers do the same, with MaxWaitMs 0 or a slow journal; the records are in the next fetch.

    Where another proxy keeps the records, they come with the response.
    """
    journal = SlowJournal()
    world = World(journal=journal)
    world.configure("g", **EARLIEST)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = held(world, topic)
    journal.slow = True
    for wait_ms in (0, 300):
        reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [RELEASE])]}, wait_ms=wait_ms)
        world.timers.advance(0.4)
        journal.confirm()
        got = [(0, 9, 2 if wait_ms == 0 else 3)]
        assert acquired(reply.message) == ([] if where == "owner" else got)
        assert acquired(member.fetch(wait_ms=0)) == (got if where == "owner" else [])


def test_fetch_waits_where_accepted_records_take_up_the_room_in_the_window():
    """One complete response instead of two small ones."""
    world, journal, topic, member = accepting(100, share_partition_max_record_locks="100")
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]}, max_records=95, share_acquire_mode=1)
    assert locked(world, topic) == [(0, 9)]
    journal.confirm()
    assert acquired(reply.message) == [(10, 104, 1)]


def test_member_that_leaves_before_its_acceptance_is_stored_releases_the_fetched_records(where):
    world, journal, topic, member = accepting()
    member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    member.connection.close()
    assert world.services.responses.used == 0
    while journal.appends:
        journal.confirm()
    journal.slow = False
    world.assert_idle()
    assert acquired(world.member(member_id="m2").fetch(topic)) == [(10, 19, 2 if where == "owner" else 1)]


def test_two_members_share_and_two_groups_do_not(world):
    """[12, 13]"""
    world.configure("other", **EARLIEST)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    first, second = world.member(member_id="a"), world.member(member_id="b")
    assert acquired(first.fetch(topic)) == [(0, 9, 1)]
    world.cluster.produce(topic, 10)
    assert acquired(second.fetch(topic)) == [(10, 19, 1)]
    assert acquired(world.member(group_id="other").fetch(topic)) == [(0, 19, 1)]


def test_final_epoch_settles_releases_and_ends(world):
    """[14] Only the acknowledged partition in the response; the rest is free immediately."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    world.cluster.produce(topic, 5)
    member = world.member(member_id="a")
    member.fetch(topic)
    response = member.fetch(acks={(topic.topic_id, 0): [(0, 4, [1])]}, epoch=-1)
    assert list(entries(response)) == [(topic.topic_id, 0)]
    assert acquired(response) == []
    assert acquired(world.member(member_id="b").fetch(topic)) == [(5, 9, 2)]
    assert member.fetch(epoch=2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_final_epoch_without_acknowledgements_names_nothing(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    member = world.member()
    member.fetch(topic)
    response = member.fetch(epoch=-1)
    assert response.error_code == 0
    assert response.responses == []


def test_first_epoch_must_not_acknowledge(world):
    """[16]"""
    topic = world.cluster.create("t")
    response = world.member().fetch(acks={(topic.topic_id, 0): [(0, 0, [1])]})
    assert (response.error_code, response.acquisition_lock_timeout_ms) == (ErrorCode.INVALID_REQUEST, 0)


def test_wrong_epoch_and_unknown_session(world):
    """[18, 19] 123 and 122, and neither uses the epoch up."""
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    assert member.fetch(epoch=2, wait_ms=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(epoch=1, wait_ms=0).error_code == 0
    assert world.member(member_id="stranger").fetch(epoch=2, wait_ms=0).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_reopening_keeps_the_locks_until_they_end(world):
    """[28]"""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    assert acquired(member.fetch(topic, epoch=0)) == []
    world.timers.advance(30)
    assert acquired(member.fetch()) == [(0, 9, 2)]


def test_full_session_cache_is_reported_after_the_wait():
    """[21]"""
    world = World(share_limits=BrokerShareLimits(group_share_max_size=2, group_share_max_share_sessions=2))
    topic = world.cluster.create("t")
    first, second, third = (world.member(member_id=name) for name in "abc")
    first.fetch(topic, wait_ms=0)
    second.fetch(topic, wait_ms=0)
    reply = third.send_fetch(topic, wait_ms=400)
    world.timers.advance(0.39)
    assert not reply.done
    world.timers.advance(0.02)
    assert reply.message.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    first.connection.close()
    assert third.fetch(topic, epoch=0, wait_ms=0).error_code == 0


def test_forgotten_partition_is_not_fetched(world):
    """[22, 38] Also when it is named in both; its acknowledgements count."""
    topic = world.cluster.create("t", leaders=(1, 1))
    for partition in range(2):
        world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch(topic)
    for partition in range(2):
        world.cluster.produce(topic, 1, partition)
    response = member.fetch(acks={(topic.topic_id, 1): [(0, 0, [1])]}, forget=[(topic, 1)])
    assert acquired(response, topic, 0) == [(1, 1, 1)]
    entry = entries(response)[topic.topic_id, 1]
    assert (entry.acknowledge_error_code, acquired(response, topic, 1)) == (0, [])


def test_max_records_of_one_gives_one_batch(world):
    """[23]"""
    topic = world.cluster.create("t")
    for _ in range(5):
        world.cluster.produce(topic, 1)
    assert acquired(world.member().fetch(topic, max_records=1, batch_size=1)) == [(0, 0, 1)]


def test_batch_size_cuts_the_entries(world):
    """[24]"""
    topic = world.cluster.create("t")
    for _ in range(9):
        world.cluster.produce(topic, 1)
    response = world.member().fetch(topic, max_records=5, batch_size=1)
    assert acquired(response) == [(i, i, 1) for i in range(5)]
    sent = list(records.iter_batches(entries(response)[topic.topic_id, 0].records))
    assert [batch.base_offset for batch in sent] == [0, 1, 2, 3, 4]


def test_record_limit_is_exact_and_the_whole_batch_is_sent(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    response = member.fetch(topic, max_records=3, share_acquire_mode=1)
    assert acquired(response) == [(0, 2, 1)]
    assert bytes(entries(response)[topic.topic_id, 0].records) == topic.logs[0].batches[0][2]
    assert acquired(member.fetch(max_records=3, share_acquire_mode=1)) == [(3, 5, 1)]


def test_acquire_mode_of_v1_is_batch_optimized(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    assert acquired(world.member(version=1).fetch(topic, max_records=3)) == [(0, 9, 1)]


def test_unknown_topic_id(world):
    """[25] 100, also for the acknowledgements."""
    topic = world.cluster.create("t")
    unknown = bytes(15) + b"\xff"
    member = world.member()
    member.fetch(topic, wait_ms=0)
    response = member.fetch(acks={(unknown, 0): [(0, 0, [1])]}, wait_ms=0)
    entry = entries(response)[unknown, 0]
    assert (entry.error_code, entry.acknowledge_error_code) == (ErrorCode.UNKNOWN_TOPIC_ID,) * 2


@pytest.mark.parametrize("member_id", ["", "x" * 37])
def test_bad_member_id(world, member_id):
    """[26]"""
    topic = world.cluster.create("t")
    assert world.member(member_id=member_id).fetch(topic).error_code == ErrorCode.INVALID_REQUEST


def test_null_group_and_null_member(world):
    topic = world.cluster.create("t")
    assert world.member().fetch(topic, group_id=None).error_code == ErrorCode.INVALID_REQUEST
    assert world.member().fetch(topic, member_id=None).error_code == ErrorCode.INVALID_REQUEST


def test_no_right_on_the_group(world):
    """30, before anything else is looked at."""
    topic = world.cluster.create("t")
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    response = world.member(member_id="x" * 37).fetch(topic)
    assert (response.error_code, response.acquisition_lock_timeout_ms) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)


def test_epoch_after_the_largest_is_one(world):
    """[27]"""
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    session = world.services.coordinator.sessions.get(("g", "m1", 1))
    session.epoch = 2**31 - 1
    assert member.fetch(epoch=2**31 - 1, wait_ms=0).error_code == 0
    assert member.fetch(epoch=1, wait_ms=0).error_code == 0


@pytest.mark.parametrize("limit", [{"max_records": 0}, {"max_bytes": 0}])
def test_suppressed_fetch_responds_immediately_to_its_acknowledgements(world, limit):
    """[36]"""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.cluster.produce(topic, 1)
    member = world.member()
    member.fetch(topic, max_records=1)
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 0, [1])]}, **limit)
    assert entries(reply.message)[topic.topic_id, 0].acknowledge_error_code == 0
    assert acquired(reply.message) == []


def test_running_session_names_only_what_has_news(world):
    """[37] New partitions are named once though empty, then only with records, errors or acknowledgements."""
    topic = world.cluster.create("t", leaders=(1, 1))
    member = world.member()
    assert sorted(entries(member.fetch(topic, wait_ms=0))) == [(topic.topic_id, 0), (topic.topic_id, 1)]
    assert entries(member.fetch(wait_ms=0)) == {}
    world.cluster.produce(topic, 1, 1)
    assert list(entries(member.fetch(wait_ms=0))) == [(topic.topic_id, 1)]


def test_session_without_partitions_responds_immediately(world):
    reply = world.member().send_fetch()
    assert reply.message.responses == []


@pytest.mark.parametrize("field", ["max_wait_ms", "min_bytes", "max_bytes", "max_records"])
def test_renewing_fetch_must_not_fetch(world, topic, field):
    """[41] 42, and the epoch is not used up."""
    member = held(world, topic)
    zeros = {"wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    response = member.fetch(epoch=1, **(zeros | {field: 1}))
    assert (response.error_code, response.acquisition_lock_timeout_ms) == (ErrorCode.INVALID_REQUEST, 0)
    assert field.title().replace("_", "") in response.error_message
    assert member.fetch(epoch=1, **zeros).error_code == 0


def renewing(member, acks, **fields):
    return member.fetch(acks=acks, wait_ms=0, min_bytes=0, max_bytes=0, max_records=0, is_renew_ack=True, **fields)


def test_renewing_fetch_acknowledges_and_gives_no_records(world, topic):
    """[42, 44]"""
    member = held(world, topic)
    world.cluster.produce(topic, 5)
    types = [ACCEPT] * 5 + [RENEW] * 5
    response = renewing(member, {(topic.topic_id, 0): [(0, 9, types)]}, batch_size=500)
    entry = entries(response)[topic.topic_id, 0]
    assert (entry.acknowledge_error_code, len(entry.records), acquired(response)) == (0, 0, [])
    assert start_offset(world, topic) == 5
    response = renewing(member, {(topic.topic_id, 0): [(5, 9, [ACCEPT])]})
    assert entries(response)[topic.topic_id, 0].acknowledge_error_code == 0
