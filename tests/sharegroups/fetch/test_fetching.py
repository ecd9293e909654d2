"""The fetch half of a ShareFetch: budget, order, waiting, sharing, reading ahead, isolation, leaders."""

from __future__ import annotations

import itertools

import pytest
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import UNKNOWN_NODE

from tests.support.ports import World, acquired, assigned, entries
from tests.support.share_steps import EARLIEST, from_the_start

AT_OWNER_AND_EDGE = True


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def test_nothing_to_read_gets_a_response_after_the_wait(world):
    """[35] and new records immediately."""
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
    acquired_ranges = acquired(member.fetch(topic, max_records=10))
    for _ in range(49):
        acquired_ranges += acquired(member.fetch(max_records=10))
    assert acquired_ranges == [(i * 10, i * 10 + 9, 1) for i in range(50)]
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


def reading(world, count, size):
    """Create a topic with this many batches of one record, and a member that has taken the first."""
    topic = world.cluster.create("t")
    for _ in range(count):
        world.cluster.produce(topic, 1, value=bytes(size))
    member = world.member()
    member.fetch(topic, max_records=1)
    return topic, member


def test_reading_ahead_follows_the_members(world):
    """A size used up in time is doubled up to the limit; a size read for nothing is halved."""
    topic, member = reading(world, 400, 100_000)
    requested = []
    for _ in range(300):
        member.fetch(max_records=1, acks={})
        world.timers.advance(0.001)
        share = world.services.coordinator.share(("g", topic.topic_id, 0))
        requested.append(share.read_bytes)
    assert max(requested) == world.services.options.read_ahead_bytes
    for _ in range(12):
        world.timers.advance(2.1)
        member.fetch(max_records=1)
    assert world.services.coordinator.share(("g", topic.topic_id, 0)).read_bytes < 1 << 18


def test_next_chunk_is_read_while_the_client_works(world):
    """The Fetch after a half-used chunk is sent with the response, and only if more records are known to exist."""
    _, member = reading(world, 6, 60_000)
    assert world.cluster.count(1) == 1
    member.fetch(max_records=1)
    assert [r.topics[0].partitions[0].fetch_offset for r in world.cluster.requests(1)] == [0, 4]
    for _ in range(4):
        member.fetch(max_records=1)
        assert world.cluster.count(1) == 2
    world.assert_idle()


def test_nothing_is_read_ahead_of_members_that_would_not_use_it_up_in_time(world):
    """Half of a chunk must be gone in a quarter of the time that the cache keeps it."""
    _, member = reading(world, 6, 60_000)
    world.timers.advance(world.services.options.cache_age_s / 4)
    member.fetch(max_records=1)
    assert world.cluster.count(1) == 1
    world.assert_idle()


def test_rotation_lets_every_partition_be_first(world):
    """3.5: with a budget for one partition, all of them get their turn."""
    topic = world.cluster.create("t", leaders=(1, 1, 1))
    for partition in range(3):
        for _ in range(3):
            world.cluster.produce(topic, 1, partition)
    member = world.member()
    responses = [member.fetch(topic, max_records=1)] + [member.fetch(max_records=1) for _ in range(8)]
    counts = [sum(len(acquired(response, topic, p)) for response in responses) for p in range(3)]
    assert counts == [3, 3, 3]


def test_quiet_partition_is_read_in_addition_to_a_busy_one(world):
    """A partition with a full cache does not keep another from being read."""
    topic = world.cluster.create("t", leaders=(1, 1))
    for _ in range(200):
        world.cluster.produce(topic, 1, 0)
    member = world.member()
    member.fetch(topic, max_records=1)
    world.cluster.produce(topic, 1, 1)
    world.timers.advance(0.11)
    responses = [member.fetch(max_records=1) for _ in range(2)]
    assert [a for response in responses for a in acquired(response, topic, 1)] == [(0, 0, 1)]


def test_a_quiet_partition_of_many_is_read_while_each_busy_one_has_enough(world):
    """Most requests check the first partitions only, one in a tenth of a second all of them."""
    topic = world.cluster.create("t", leaders=(1,) * 20)
    for partition in range(19):
        for _ in range(200):
            world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch(*((topic, partition) for partition in range(20)), max_records=1)
    world.cluster.produce(topic, 1, 19)
    delivered = []
    for _ in range(60):
        world.timers.advance(0.01)
        delivered.append(acquired(member.fetch(max_records=1), topic, 19))
    assert [records for records in delivered if records] == [[(0, 0, 1)]]


def test_all_partitions_are_checked_once_in_a_tenth_of_a_second(world):
    """Records are read before it is the turn of their partition."""
    topic = world.cluster.create("t", leaders=(1,) * 100)
    for partition in range(99):
        world.cluster.produce(topic, 9, partition)
    member = world.member()
    member.fetch(*((topic, partition) for partition in range(100)), max_records=1)
    world.cluster.produce(topic, 1, 99)
    earlier = len(world.cluster.requests(1))
    for _ in range(9):
        world.timers.advance(0.01)
        member.fetch(max_records=1)
    assert len(world.cluster.requests(1)) == earlier
    world.timers.advance(0.011)
    member.fetch(max_records=1)
    assert len(world.cluster.requests(1)) == earlier + 1


def test_a_request_goes_on_to_other_partitions_if_the_first_have_nothing_to_deliver(world):
    """The cache has enough of the first, all of it aborted."""
    world.configure("g", share_isolation_level="read_committed")
    topic = world.cluster.create("t", leaders=(1, 1))
    for partition in range(2):
        world.cluster.produce(topic, 1, partition)
    for base_sequence in range(5):
        world.cluster.produce(
            topic, 1, 0, producer_id=9, producer_epoch=0, base_sequence=base_sequence, is_transactional=True
        )
        world.cluster.produce(topic, 1, 1)
    topic.logs[0].aborted.append((9, 1))
    member = world.member()
    assert acquired(member.fetch((topic, 0), (topic, 1), max_records=1), topic, 0) == [(0, 0, 1)]
    response = member.fetch(max_records=3)
    assert [acquired(response, topic, partition) for partition in range(2)] == [[], [(0, 2, 1)]]
    world.assert_idle()


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


@pytest.mark.parametrize(
    ("theirs", "expected"),
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
def test_codes_of_the_broker_as_clients_can_take_them(world, theirs, expected):
    """3.7: never a code on which the Java client throws; passing trouble is tried again."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.cluster.fail_next[1] = [theirs]
    response = world.member().fetch(topic)
    assert entries(response)[topic.topic_id, 0].error_code == expected


def test_lasting_trouble_is_reported_as_not_leader(world):
    topic = world.cluster.create("t")
    world.cluster.fail_next[1] = [ErrorCode.UNKNOWN_LEADER_EPOCH] * 50
    response = world.member().fetch(topic)
    assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.cluster.count(1) <= 4


def test_at_a_bootstrap_listener_of_an_unknown_broker_the_leader_is_returned_and_the_reason_logged(world):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    member = world.member(node_id=UNKNOWN_NODE)
    for _ in range(3):
        expected = entries(member.fetch(topic))[topic.topic_id, 0]
        assert (expected.error_code, expected.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
    (note,) = [context for name, context in world.notes if name == "share-fetch-at-bootstrap"]
    assert "upstream.bootstrap" in note["reason"]


def test_read_uncommitted_delivers_aborted_records(world):
    """[113]"""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    topic.logs[0].aborted.append((9, 0))
    assert acquired(world.member().fetch(topic)) == [(0, 4, 1)]


def test_a_whole_read_of_aborted_records_is_stepped_over(world):
    """Nothing to deliver in what was read: the fetch continues after it."""
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


def through_all_waits(world, topic, hold):
    """A member whose requests to the broker are held back, one API after the other."""
    world.cluster.held = {hold}
    member = world.member(member_id="leaver")
    return member, member.send_fetch(topic, wait_ms=5000)


@pytest.mark.parametrize("hold", [12, 3, 2, 1])
def test_client_that_leaves_at_any_wait_leaves_no_state(world, hold):
    """Heartbeat, Metadata, ListOffsets, Fetch: at every wait, another member gets everything afterwards."""
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
def test_late_responses_for_a_client_that_left_do_no_harm(world, hold):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    leaver, _ = through_all_waits(world, topic, hold)
    for task in leaver.connection.tasks:
        task.cancel()  # the client's request is over, its upstream connection still gets the response
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
    """The next waiter reads immediately, not when its own wait is over."""
    topic = world.cluster.create("t")
    reader, waiter = world.member(member_id="a"), world.member(member_id="b")
    reader.send_fetch(topic, wait_ms=5000)
    reply = waiter.send_fetch(topic, wait_ms=5000)
    assert world.cluster.count(1) == 1
    reader.connection.close()
    assert world.cluster.count(1) == 2
    world.cluster.produce(topic, 1)
    assert acquired(reply.message) == [(0, 0, 1)]


def test_records_of_one_group_wake_the_other(world):
    """Records read by one group's member are available to the waiting members of all groups."""
    world.configure("h", **EARLIEST)
    topic = world.cluster.create("t")
    first = world.member().send_fetch(topic, wait_ms=5000)
    second = world.member(group_id="h").send_fetch(topic, wait_ms=5000)
    world.cluster.produce(topic, 4)
    assert acquired(first.message) == acquired(second.message) == [(0, 3, 1)]


def test_four_members_and_four_thousand_records(world):
    """Every record is delivered exactly once, and nothing is left over."""
    topic = world.cluster.create("t", leaders=(1, 1))
    members = [world.member(member_id=f"m{i}") for i in range(4)]
    delivered: list[tuple[int, int]] = []
    held: list[dict] = [{} for _ in members]
    for iteration in range(400):
        if iteration < 40:
            world.cluster.produce(topic, 50, iteration % 2)
            world.cluster.produce(topic, 50, (iteration + 1) % 2)
        for index, member in enumerate(members):
            first = [topic] if member.epoch == 0 else []
            response = member.fetch(*first, acks=held[index] or None, wait_ms=0, max_records=75)
            assert response.error_code == 0
            held[index] = {}
            for (topic_id, partition), entry in entries(response).items():
                assert (entry.error_code, entry.acknowledge_error_code) == (0, 0)
                for span in entry.acquired_records:
                    assert span.delivery_count == 1
                    delivered += [(partition, offset) for offset in range(span.first_offset, span.last_offset + 1)]
                    held[index].setdefault((topic_id, partition), []).append((span.first_offset, span.last_offset, [1]))
        world.timers.advance(0.01)
        if len(delivered) == 4000 and not any(held):
            break
    assert sorted(delivered) == list(itertools.product(range(2), range(2000)))
    shares = dict(world.services.coordinator.shares())
    assert {share.partition.start_offset for share in shares.values()} == {2000}
    world.assert_idle()
    world.timers.advance(60)
    assert world.timers.planned == 0
    assert world.services.reads.cache.bytes == 0


def giving(response):
    """The partitions of which there are records."""
    return {partition for (_, partition), entry in entries(response).items() if entry.acquired_records}


def test_a_member_acquires_nothing_of_a_partition_to_be_revoked_and_settles_it_first(world):
    """Nothing that was fetched is in a client's buffer when it hears that a partition is no longer its own."""
    topic = world.cluster.create("t", leaders=(1, 1))
    for partition in (0, 1):
        world.cluster.produce(topic, 10, partition)
    first, second = (world.member(member_id=name) for name in "ab")
    joined = first.heartbeat(0, ["t"])
    assert assigned(joined) == {topic.topic_id: [0, 1]}
    got = first.fetch((topic, 0), (topic, 1))
    assert giving(got) == {0, 1}
    for partition in (0, 1):
        world.cluster.produce(topic, 10, partition)
    (lost,) = assigned(second.heartbeat(0, ["t"]))[topic.topic_id]
    expected = first.heartbeat(joined.member_epoch)
    assert (expected.member_epoch, assigned(expected)) == (joined.member_epoch + 1, None)
    acks = {
        (topic.topic_id, partition): [(first, last, [1]) for first, last, _ in acquired(got, topic, partition)]
        for partition in (0, 1)
    }
    assert giving(first.fetch(acks=acks)) == {1 - lost}
    assert assigned(first.heartbeat(expected.member_epoch)) == {topic.topic_id: [1 - lost]}
    assert giving(second.fetch((topic, lost))) == {lost}


def test_a_fetch_under_way_brings_nothing_of_a_partition_that_was_given_up(world):
    """It waited at the end of the log when the member heard of it; the records go to the other."""
    topic = world.cluster.create("t", leaders=(1, 1))
    first, second = (world.member(member_id=name) for name in "ab")
    joined = first.heartbeat(0, ["t"])
    first.fetch((topic, 0), (topic, 1), wait_ms=0)
    late = first.send_fetch(wait_ms=5000)
    (lost,) = assigned(second.heartbeat(0, ["t"]))[topic.topic_id]
    assert assigned(first.heartbeat(joined.member_epoch)) == {topic.topic_id: [1 - lost]}
    theirs = second.send_fetch((topic, lost), wait_ms=5000)
    world.cluster.produce(topic, 10, lost)
    assert giving(theirs.message) == {lost}
    assert not late.done
    world.cluster.produce(topic, 10, 1 - lost)
    assert giving(late.message) == {1 - lost}
    world.timers.advance(60)
    world.assert_idle()


def test_a_log_batch_wider_than_the_window_may_become_is_given_out_in_parts(world):
    """The stored window is bounded; the same batch is read again for each part, and all of it is settled."""
    world.configure("g", share_auto_offset_reset="earliest")
    world.services.coordinator.bound_records(5000)
    topic = world.cluster.create("wide")
    world.cluster.produce(topic, 1000)
    member, delivered = world.member(), []
    for _ in range(40):
        for first, last, count in acquired(member.fetch(topic)):
            delivered += [(offset, count) for offset in range(first, last + 1)]
            types = [1 if count > 1 or offset % 2 else 2 for offset in range(first, last + 1)]
            response = member.acknowledge({(topic.topic_id, 0): [(first, last, types)]})
            assert entries(response)[topic.topic_id, 0].error_code == 0
    assert sorted(delivered) == sorted([(o, 1) for o in range(1000)] + [(o, 2) for o in range(0, 1000, 2)])
    assert world.services.coordinator.share(("g", topic.topic_id, 0)).partition.start_offset == 1000


def test_a_waiting_fetch_of_a_group_that_moves_confirms_its_acknowledgements_and_takes_nothing(world):
    """It gets its response before the move. Records that it acquired would be delivered again after it."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member, other = world.member(), world.member("others")
    member.fetch(topic)
    other.fetch(topic)
    waiting = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [1])]}, wait_ms=60_000)
    elsewhere = other.send_fetch(wait_ms=60_000)
    world.timers.advance(1)
    assert not waiting.done
    gate = world.services.gate
    gate.closing([gate.partition_of(member.group_id)], ErrorCode.COORDINATOR_NOT_AVAILABLE, "moves")
    assert (waiting.message.error_code, waiting.message.acquisition_lock_timeout_ms > 0) == (0, True)
    assert [(entry.acknowledge_error_code, entry.acquired_records) for entry in entries(waiting.message).values()] == [
        (0, [])
    ]
    assert not elsewhere.done, "another group stays"
