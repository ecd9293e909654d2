"""ShareFetch: share-groups.md 3 and 4, one test per rule; numbers in brackets are those of its section 10."""

from __future__ import annotations

import pytest

from proxy.errors import ErrorCode
from proxy.share.settings import BrokerShareLimits
from proxy.wire import records
from tests.support.ports import WALL_MS, Log, World, acquired, entries

EARLIEST = {"share_auto_offset_reset": "earliest"}


@pytest.fixture
def world() -> World:
    made = World()
    made.configure("g", **EARLIEST)
    return made


def test_first_fetch_gives_all_records_from_the_start(world):
    """[3] earliest: all of the log, count 1, the batch's own bytes."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    answer = world.member().fetch(topic)
    assert acquired(answer) == [(0, 9, 1)]
    assert bytes(entries(answer)[topic.topic_id, 0].records) == topic.logs[0].batches[0][2]
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert answer.error_code == 0


def test_partitions_of_one_node_in_one_fetch(world):
    """[4] Three partitions, one upstream Fetch, each its own records."""
    topic = world.cluster.create("t", leaders=(1, 1, 1))
    for partition in range(3):
        world.cluster.produce(topic, 10, partition)
    answer = world.member().fetch(topic)
    assert [acquired(answer, topic, p) for p in range(3)] == [[(0, 9, 1)]] * 3
    assert world.cluster.count(1) == 1


def test_each_node_serves_only_what_it_leads(world):
    """[5]"""
    topic = world.cluster.create("t", leaders=(1, 2, 3))
    for partition in range(3):
        world.cluster.produce(topic, 10, partition)
    for node in (1, 2, 3):
        answer = world.member(node_id=node).fetch((topic, node - 1))
        assert acquired(answer) == [(0, 9, 1)]


def test_not_leader_is_told_at_once_with_a_hint(world):
    """[2] Partition 6 with CurrentLeader and the proxy's own endpoint; the lock duration is still told."""
    topic = world.cluster.create("t", leaders=(2,))
    reply = world.member(node_id=1).send_fetch(topic)
    answer = reply.message
    entry = entries(answer)[topic.topic_id, 0]
    assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (2, 5)
    assert [(n.node_id, n.host, n.port) for n in answer.node_endpoints] == [(2, "proxy.example", 9102)]
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert world.cluster.count(1) == 0


def test_no_hint_is_minus_one(world):
    """CurrentLeader without a hint is -1/-1, never the schema's 0/0."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    entry = entries(world.member().fetch(topic))[topic.topic_id, 0]
    assert (entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (-1, -1)


def test_bootstrap_connection_leads_nothing(world):
    """A ShareFetch on the bootstrap listener is sent to the leader."""
    topic = world.cluster.create("t")
    answer = world.member(node_id=-1).fetch(topic)
    assert entries(answer)[topic.topic_id, 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acknowledgements_come_before_the_fetch(world):
    """[7] Accepted records are settled and new ones come in the same answer."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    world.cluster.produce(topic, 10)
    answer = member.fetch(acks={(topic.topic_id, 0): [(0, 9, [1])]})
    assert entries(answer)[topic.topic_id, 0].acknowledge_error_code == 0
    assert acquired(answer) == [(10, 19, 1)]


def test_released_records_come_again_first(world):
    """[8, 9]"""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    world.cluster.produce(topic, 10)
    answer = member.fetch(acks={(topic.topic_id, 0): [(0, 9, [2])]})
    assert acquired(answer) == [(0, 9, 2), (10, 19, 1)]


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
    """[14] Only the acknowledged partition in the answer; the rest is free at once."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    world.cluster.produce(topic, 5)
    member = world.member(member_id="a")
    member.fetch(topic)
    answer = member.fetch(acks={(topic.topic_id, 0): [(0, 4, [1])]}, epoch=-1)
    assert list(entries(answer)) == [(topic.topic_id, 0)]
    assert acquired(answer) == []
    assert acquired(world.member(member_id="b").fetch(topic)) == [(5, 9, 2)]
    assert member.fetch(epoch=2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_final_epoch_without_acknowledgements_names_nothing(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    member = world.member()
    member.fetch(topic)
    answer = member.fetch(epoch=-1)
    assert answer.error_code == 0
    assert answer.responses == []


def test_first_epoch_must_not_acknowledge(world):
    """[16]"""
    topic = world.cluster.create("t")
    answer = world.member().fetch(acks={(topic.topic_id, 0): [(0, 0, [1])]})
    assert (answer.error_code, answer.acquisition_lock_timeout_ms) == (ErrorCode.INVALID_REQUEST, 0)


def test_wrong_epoch_and_unknown_session(world):
    """[18, 19] 123 and 122, and neither uses the epoch up."""
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    assert member.fetch(epoch=2, wait_ms=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(epoch=1, wait_ms=0).error_code == 0
    assert world.member(member_id="stranger").fetch(epoch=2, wait_ms=0).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_session_ends_with_its_connection(world):
    """[20] The same epoch on a new connection is 122, records are free at once, epoch 0 works."""
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


def test_reopening_keeps_the_locks_until_they_end(world):
    """[28]"""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    assert acquired(member.fetch(topic, epoch=0)) == []
    world.timers.advance(30)
    assert acquired(member.fetch()) == [(0, 9, 2)]


def test_full_session_cache_is_told_after_the_wait():
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
    answer = member.fetch(acks={(topic.topic_id, 1): [(0, 0, [1])]}, forget=[(topic, 1)])
    assert acquired(answer, topic, 0) == [(1, 1, 1)]
    entry = entries(answer)[topic.topic_id, 1]
    assert (entry.acknowledge_error_code, acquired(answer, topic, 1)) == (0, [])


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
    answer = world.member().fetch(topic, max_records=5, batch_size=1)
    assert acquired(answer) == [(i, i, 1) for i in range(5)]
    sent = list(records.iter_batches(entries(answer)[topic.topic_id, 0].records))
    assert [batch.base_offset for batch in sent] == [0, 1, 2, 3, 4]


def test_record_limit_is_exact_and_the_whole_batch_is_sent(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    answer = member.fetch(topic, max_records=3, share_acquire_mode=1)
    assert acquired(answer) == [(0, 2, 1)]
    assert bytes(entries(answer)[topic.topic_id, 0].records) == topic.logs[0].batches[0][2]
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
    answer = member.fetch(acks={(unknown, 0): [(0, 0, [1])]}, wait_ms=0)
    entry = entries(answer)[unknown, 0]
    assert (entry.error_code, entry.acknowledge_error_code) == (ErrorCode.UNKNOWN_TOPIC_ID,) * 2


def test_unknown_topic_is_not_asked_for_in_a_loop(world):
    """What a broker does not have is looked up once per view age, however often a client asks."""
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


def test_no_such_partition(world):
    topic = world.cluster.create("t")
    answer = world.member().fetch((topic, 7), wait_ms=0)
    assert entries(answer)[topic.topic_id, 7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
    answer = world.member(member_id="x" * 37).fetch(topic)
    assert (answer.error_code, answer.acquisition_lock_timeout_ms) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)


def test_no_right_on_the_topic(world):
    """29 per partition; the other topic is served."""
    secret, public = world.cluster.create("secret"), world.cluster.create("public")
    secret.bits = 1 << 8
    world.cluster.produce(secret, 3)
    world.cluster.produce(public, 3)
    answer = world.member().fetch(secret, public)
    assert entries(answer)[secret.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert acquired(answer, public) == [(0, 2, 1)]


def test_cache_is_served_only_where_read_is_allowed(world):
    """What one member's connection read is not given to another that may not read the topic."""
    topic = world.cluster.create("t")
    for _ in range(4):
        world.cluster.produce(topic, 1)
    assert acquired(world.member(member_id="a").fetch(topic, max_records=1)) == [(0, 0, 1)]
    topic.bits = 1 << 8
    answer = world.member(member_id="b").fetch(topic, max_records=1)
    assert entries(answer)[topic.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_rights_are_asked_once_and_again_after_their_time(world):
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    for _ in range(5):
        member.fetch(wait_ms=0)
    assert (world.cluster.count(12), world.cluster.count(3)) == (1, 1)
    world.timers.advance(15.1)
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert member.fetch(wait_ms=0).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_epoch_after_the_largest_is_one(world):
    """[27]"""
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    session = world.services.coordinator.sessions.get(("g", "m1", 1))
    session.epoch = 2**31 - 1
    assert member.fetch(epoch=2**31 - 1, wait_ms=0).error_code == 0
    assert member.fetch(epoch=1, wait_ms=0).error_code == 0


def test_nothing_to_read_is_answered_after_the_wait(world):
    """[35] and new records at once."""
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    reply = member.send_fetch(wait_ms=1700)
    world.timers.advance(1.69)
    assert not reply.done
    world.timers.advance(0.02)
    assert (reply.message.error_code, reply.message.responses) == (0, [])
    reply = member.send_fetch(wait_ms=1700)
    world.timers.advance(0.9)
    world.cluster.produce(topic, 2)
    assert acquired(reply.message) == [(0, 1, 1)]
    world.assert_idle()


@pytest.mark.parametrize("limit", [{"max_records": 0}, {"max_bytes": 0}])
def test_suppressed_fetch_answers_at_once_with_its_acknowledgements(world, limit):
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


def test_session_without_partitions_answers_at_once(world):
    reply = world.member().send_fetch()
    assert reply.message.responses == []


def test_log_start_that_moved(world):
    """[39] The start offset follows, once ListOffsets has said so."""
    topic = world.cluster.create("t")
    for _ in range(10):
        world.cluster.produce(topic, 1)
    member = world.member()
    member.fetch(topic, max_records=1)
    world.cluster.delete_records(topic, 5)
    world.timers.advance(2.1)
    answer = member.fetch()
    assert entries(answer)[topic.topic_id, 0].error_code == 0
    assert acquired(answer) == [(5, 9, 1)]
    assert [r.topics[0].partitions[0].timestamp for r in world.cluster.requests(2)] == [-2, -2, -1]


def test_out_of_range_by_a_broker_that_lags_moves_nothing(world):
    """A Fetch may be refused while ListOffsets says the offset is there: nothing is skipped."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 4)
    member = world.member()
    member.fetch(topic, wait_ms=0, max_records=1)
    world.cluster.produce(topic, 4)
    world.cluster.fail_next[1] = [ErrorCode.OFFSET_OUT_OF_RANGE]
    assert acquired(member.fetch()) == [(4, 7, 1)]


def test_log_that_was_cut_back(world):
    """[140] State ahead of the log: start again at its end, never in a loop."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [1])]})
    topic.logs[0] = Log(leader=1, epoch=5)
    world.cluster.produce(topic, 3)
    world.timers.advance(2.1)
    member.fetch(wait_ms=0)
    assert world.cluster.count(1) < 6
    world.cluster.produce(topic, 2)
    assert acquired(member.fetch()) == [(3, 4, 1)]


def test_deleted_topic(world):
    """[40] The topic's partitions are 100; the rest of the session goes on."""
    gone, kept = world.cluster.create("gone"), world.cluster.create("kept")
    member = world.member()
    member.fetch(gone, kept, wait_ms=0)
    del world.cluster.topics["gone"]
    world.cluster.produce(kept, 2)
    world.timers.advance(0.2)
    answer = member.fetch()
    assert acquired(answer, kept) == [(0, 1, 1)]
    world.timers.advance(2)
    answer = member.fetch(acks={(gone.topic_id, 0): [(0, 0, [1])]}, wait_ms=0)
    assert entries(answer)[gone.topic_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_latest_starts_at_the_end_of_the_first_fetch(world):
    """[103]"""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member(group_id="late")
    assert acquired(member.fetch(topic, wait_ms=0)) == []
    world.cluster.produce(topic, 2)
    assert acquired(member.fetch()) == [(10, 11, 1)]


def test_by_duration_starts_at_the_first_young_record(world):
    """[106] and at the end when none is young enough."""
    topic = world.cluster.create("t")
    hour = 3_600_000
    world.cluster.produce(topic, 3, timestamp=WALL_MS - 2 * hour)
    world.cluster.produce(topic, 3, timestamp=WALL_MS - hour // 2)
    world.configure("young", share_auto_offset_reset="by_duration:PT1H")
    world.configure("all", share_auto_offset_reset="by_duration:PT3H")
    world.configure("none", share_auto_offset_reset="by_duration:PT1M")
    assert acquired(world.member(group_id="young").fetch(topic)) == [(3, 5, 1)]
    assert acquired(world.member(group_id="all").fetch(topic))[0][0] == 0
    member = world.member(group_id="none")
    assert acquired(member.fetch(topic, wait_ms=0)) == []
    world.cluster.produce(topic, 1)
    assert acquired(member.fetch()) == [(6, 6, 1)]


def test_first_offset_is_stored_at_once(world):
    """`latest` must not be read anew after a restart."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    world.member(group_id="late").fetch(topic, wait_ms=0)
    (key,) = world.journal.values
    assert (key.kind, key.group_id, key.topic_id, key.partition) == ("partition", "late", topic.topic_id, 0)


def test_locks_that_end_give_the_records_back(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    world.member(member_id="a").fetch(topic)
    other = world.member(member_id="b")
    assert acquired(other.fetch(topic)) == []
    world.timers.advance(29)
    reply = other.send_fetch(wait_ms=5000)
    assert not reply.done
    world.timers.advance(1.6)
    assert acquired(reply.message) == [(0, 9, 2)]


def test_waiting_member_gets_what_another_releases(world):
    """Waiting at the end of the log does not keep a member from records that become free below."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    holder, reader, waiter = (world.member(member_id=name) for name in "abc")
    holder.fetch(topic)
    reading = reader.send_fetch(topic, wait_ms=5000)
    waiting = waiter.send_fetch(topic, wait_ms=5000)
    world.timers.advance(0.1)
    assert not reading.done
    assert not waiting.done
    holder.acknowledge({(topic.topic_id, 0): [(0, 9, [2])]})
    assert acquired((reading if reading.done else waiting).message) == [(0, 9, 2)]
    assert reading.done != waiting.done


def test_one_reader_per_head_and_all_others_fed_from_the_cache(world):
    """Four members wait; one Fetch is under way; what it brings is shared out without another."""
    topic = world.cluster.create("t")
    members = [world.member(member_id=f"m{i}") for i in range(4)]
    replies = [member.send_fetch(topic, max_records=1, wait_ms=400) for member in members]
    assert world.cluster.count(1) == 1
    for batch in range(4):
        topic.logs[0].append(1)
        del batch
    world.cluster.wake_fetches()
    assert sorted(acquired(reply.message)[0] for reply in replies) == [(i, i, 1) for i in range(4)]
    assert world.cluster.count(1) == 1
    world.assert_idle()


def test_many_fetches_are_fed_by_one_upstream_fetch(world):
    topic = world.cluster.create("t")
    for _ in range(50):
        world.cluster.produce(topic, 10)
    member = world.member()
    taken = acquired(member.fetch(topic, max_records=10))
    for _ in range(49):
        taken += acquired(member.fetch(max_records=10))
    assert taken == [(i * 10, i * 10 + 9, 1) for i in range(50)]
    assert world.cluster.count(1) == 1
    assert world.services.reads.cache.bytes == 0


def test_min_bytes_are_waited_for(world):
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    reply = member.send_fetch(wait_ms=400, min_bytes=1000)
    world.cluster.produce(topic, 1)
    assert not reply.done
    world.timers.advance(0.41)
    assert acquired(reply.message) == [(0, 0, 1)]
    reply = member.send_fetch(wait_ms=400, min_bytes=100)
    world.cluster.produce(topic, 20)
    assert acquired(reply.message) == [(1, 20, 1)]


def test_max_bytes_is_split_and_one_batch_always_comes(world):
    """[76] A batch larger than MaxBytes is delivered; a second partition then gets nothing more."""
    topic = world.cluster.create("t", leaders=(1, 1))
    for partition in range(2):
        world.cluster.produce(topic, 1, partition, value=b"x" * 1000)
        world.cluster.produce(topic, 1, partition, value=b"x" * 1000)
    answer = world.member().fetch(topic, max_bytes=1)
    assert sum(len(acquired(answer, topic, p)) for p in range(2)) == 1
    answer = world.member(member_id="b").fetch(topic, max_bytes=2400)
    assert [len(acquired(answer, topic, p)) for p in range(2)] == [1, 1]


def test_local_answers_are_bounded():
    """[27 of the decisions] A client that asks for 50 MiB gets `limits.local_answer_bytes` at most."""
    from proxy.values import Limits

    world = World(limits=Limits(local_answer_bytes=3000))
    world.configure("g", **EARLIEST)
    topic = world.cluster.create("t")
    for _ in range(10):
        world.cluster.produce(topic, 1, value=b"x" * 1000)
    answer = world.member().fetch(topic)
    assert acquired(answer) == [(0, 1, 1)]


def test_no_room_for_another_answer_is_waited_out(world):
    """[27 of the decisions] With all answers together at their limit, a fetch comes without records after its wait."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    member = world.member()
    world.services.answers.add_unsent(world.services.limits.local_answers_total_bytes)
    reply = member.send_fetch(topic, wait_ms=400)
    assert not reply.done
    world.timers.advance(0.41)
    assert acquired(reply.message) == []
    assert world.services.answers.refusals == 1
    world.services.answers.sent(world.services.limits.local_answers_total_bytes)
    assert acquired(member.fetch()) == [(0, 4, 1)]


def test_reading_ahead_follows_the_members(world):
    """What is used up in time is doubled up to the limit; what is read for nothing is halved."""
    topic = world.cluster.create("t")
    for _ in range(400):
        world.cluster.produce(topic, 1, value=bytes(100_000))
    member = world.member()
    member.fetch(topic, max_records=1)
    asked = []
    for _ in range(300):
        member.fetch(max_records=1, acks={})
        world.timers.advance(0.001)
        share = world.services.coordinator.share(("g", topic.topic_id, 0))
        asked.append(share.read_bytes)
    assert max(asked) == world.services.options.read_ahead_bytes
    for _ in range(12):
        world.timers.advance(2.1)
        member.fetch(max_records=1)
    assert world.services.coordinator.share(("g", topic.topic_id, 0)).read_bytes < 1 << 18


def test_next_chunk_is_read_while_the_client_works(world):
    """The Fetch behind a chunk that is nearly used up goes out with the answer, and only where more is known to be."""
    topic = world.cluster.create("t")
    for _ in range(6):
        world.cluster.produce(topic, 1, value=bytes(60_000))
    member = world.member()
    member.fetch(topic, max_records=1)
    for _ in range(3):
        assert world.cluster.count(1) <= 2
        member.fetch(max_records=1)
    assert world.cluster.count(1) == 2
    member.fetch(max_records=1)
    assert [r.topics[0].partitions[0].fetch_offset for r in world.cluster.requests(1)] == [0, 4]
    member.fetch(max_records=1)
    assert world.cluster.count(1) == 2
    world.assert_idle()


def test_rotation_lets_every_partition_be_first(world):
    """3.5: with a budget for one partition, all of them get their turn."""
    topic = world.cluster.create("t", leaders=(1, 1, 1))
    for partition in range(3):
        for _ in range(3):
            world.cluster.produce(topic, 1, partition)
    member = world.member()
    answers = [member.fetch(topic, max_records=1)] + [member.fetch(max_records=1) for _ in range(8)]
    counts = [sum(len(acquired(answer, topic, p)) for answer in answers) for p in range(3)]
    assert counts == [3, 3, 3]


def test_quiet_partition_is_read_beside_a_busy_one(world):
    """A partition with a full cache does not keep another from being read."""
    topic = world.cluster.create("t", leaders=(1, 1))
    for _ in range(200):
        world.cluster.produce(topic, 1, 0)
    member = world.member()
    member.fetch(topic, max_records=1)
    world.cluster.produce(topic, 1, 1)
    world.timers.advance(0.11)
    answers = [member.fetch(max_records=1) for _ in range(2)]
    assert [a for answer in answers for a in acquired(answer, topic, 1)] == [(0, 0, 1)]


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
    answer = member.acknowledge({(topic.topic_id, 0): [(0, 9, [1])]})
    assert entries(answer)[topic.topic_id, 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    member.connection.close()
    answer = moved.acknowledge({(topic.topic_id, 0): [(0, 9, [1])]})
    assert entries(answer)[topic.topic_id, 0].error_code == 0


def test_broker_that_is_no_longer_leader_refreshes_the_view(world):
    """6 of the broker's Fetch: Metadata, then 6 with the new leader for the client."""
    topic = world.cluster.create("t", leaders=(1,))
    member = world.member()
    member.fetch(topic, wait_ms=0)
    reply = member.send_fetch(wait_ms=5000)
    world.cluster.move_leader(topic, 3)
    entry = entries(reply.message)[topic.topic_id, 0]
    assert (entry.error_code, entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (6, 3, 6)
    assert [n.node_id for n in reply.message.node_endpoints] == [3]


def test_new_epoch_of_the_same_leader_is_followed(world):
    """74: the view is refreshed and the same Fetch repeated with the new epoch, the client sees nothing of it."""
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    topic.logs[0].epoch += 1
    world.cluster.produce(topic, 2)
    assert acquired(member.fetch()) == [(0, 1, 1)]
    assert world.cluster.requests(1)[-1].topics[0].partitions[0].current_leader_epoch == 6


def test_every_read_names_the_leader_epoch_and_no_session(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.member().fetch(topic)
    (request,) = world.cluster.requests(1)
    assert request.topics[0].partitions[0].current_leader_epoch == 5
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.topics[0].topic_id == topic.topic_id


def test_brokers_without_topic_ids_in_fetch_are_asked_by_name():
    world = World(fetch_version=12)
    world.configure("g", **EARLIEST)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 2)
    assert acquired(world.member().fetch(topic)) == [(0, 1, 1)]
    assert world.cluster.requests(1)[0].topics[0].topic == "t"


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, 56),
        (ErrorCode.CORRUPT_MESSAGE, 2),
        (ErrorCode.OFFSET_NOT_AVAILABLE, 78),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 29),
        (ErrorCode.LEADER_NOT_AVAILABLE, 0),
        (ErrorCode.UNKNOWN_SERVER_ERROR, -1),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1),
        (ErrorCode.INVALID_REQUEST, -1),
    ],
)
def test_codes_of_the_broker_as_clients_can_take_them(world, theirs, told):
    """3.7: never a code on which the Java client throws; passing trouble is tried again."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.cluster.fail_next[1] = [theirs]
    answer = world.member().fetch(topic)
    assert entries(answer)[topic.topic_id, 0].error_code == told


def test_trouble_that_stays_is_told_as_not_leader(world):
    topic = world.cluster.create("t")
    world.cluster.fail_next[1] = [ErrorCode.UNKNOWN_LEADER_EPOCH] * 50
    answer = world.member().fetch(topic)
    assert entries(answer)[topic.topic_id, 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.cluster.count(1) <= 4


def test_read_uncommitted_delivers_aborted_records(world):
    """[113]"""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    topic.logs[0].aborted.append((9, 0))
    assert acquired(world.member().fetch(topic)) == [(0, 4, 1)]


def test_read_committed_skips_aborted_records(world):
    """[113] and stops at the last stable offset."""
    world.configure("g", share_isolation_level="read_committed")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.cluster.produce(topic, 3)
    world.cluster.produce(topic, 2)
    topic.logs[0].aborted.append((9, 0))
    topic.logs[0].stable = 8
    answer = world.member().fetch(topic)
    assert acquired(answer) == [(5, 7, 1)]


def test_a_whole_read_of_aborted_records_is_stepped_over(world):
    """Nothing to deliver in what was read: the fetch goes on behind it."""
    world.configure("g", share_isolation_level="read_committed")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    topic.logs[0].aborted.append((9, 0))
    member = world.member()
    reply = member.send_fetch(topic, wait_ms=5000)
    assert not reply.done
    world.timers.advance(0.6)
    world.cluster.produce(topic, 1)
    assert acquired(reply.message) == [(5, 5, 1)]


def test_isolation_levels_do_not_share_the_cache(world):
    world.configure("committed", share_isolation_level="read_committed", **EARLIEST)
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 2)
    world.cluster.produce(topic, 2)
    topic.logs[0].stable = 2
    assert acquired(world.member().fetch(topic, max_records=1)) == [(0, 1, 1)]
    assert acquired(world.member(group_id="committed").fetch(topic)) == [(0, 1, 1)]
    assert [r.isolation_level for r in world.cluster.requests(1)] == [0, 1]


def test_throttle_time_is_passed_on(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.cluster.throttle_ms = 77
    assert world.member().fetch(topic).throttle_time_ms == 77


def test_full_window_waits_for_room(world):
    """[134]"""
    world.configure("g", share_partition_max_record_locks="100")
    topic = world.cluster.create("t")
    for _ in range(12):
        world.cluster.produce(topic, 10)
    member = world.member()
    assert acquired(member.fetch(topic))[0][:2] == (0, 99)
    assert acquired(member.fetch(wait_ms=0)) == []
    assert acquired(member.fetch(acks={(topic.topic_id, 0): [(0, 49, [1])]})) == [(100, 119, 1)]


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


def test_old_wrappers_are_no_holes(world):
    """A compressed wrapper of magic 1 tells only its last offset; what it holds in front must not be skipped."""
    from proxy.apis.upstream_reads import _widen_old

    header = records.BatchHeader(
        base_offset=9,
        last_offset=9,
        position=0,
        size=100,
        magic=1,
        leader_epoch=-1,
        attributes=1,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=1,
    )
    _widen_old([header], 3)
    assert header.base_offset == 3


def test_repeated_partitions_of_one_request_are_joined(world):
    """librdkafka names a topic twice: to fetch and to acknowledge."""
    topic = world.cluster.create("t")
    for _ in range(4):
        world.cluster.produce(topic, 1)
    member = world.member()
    member.fetch(topic, max_records=4, batch_size=1)
    from proxy.wire import registry

    message = registry.message("ShareFetchRequest")

    def part(first):
        batch = message.AcknowledgementBatch(first_offset=first, last_offset=first, acknowledge_types=[1])
        return message.FetchPartition(partition_index=0, acknowledgement_batches=[batch])

    topics = [message.FetchTopic(topic_id=topic.topic_id, partitions=[part(i)]) for i in range(4)]
    answer = member.fetch(wait_ms=0, topics=topics)
    assert entries(answer)[topic.topic_id, 0].acknowledge_error_code == 0
    share = world.services.coordinator.share(("g", topic.topic_id, 0))
    assert share.partition.start_offset == 4
