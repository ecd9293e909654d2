"""Start of a share partition, and changes of the log's own bounds (sharegroups/README.md rules 50, 51).

Numbers in brackets are items of tests/oracle.
"""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.apis import k42_delete_groups
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.manual_timers import WALL_MS
from tests.support.ports import Reply, SlowJournal, World, acquired, entries
from tests.support.scripted_cluster import Log
from tests.support.share_steps import from_the_start

AT_OWNER_AND_EDGE = True


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def test_log_start_that_moved(world):
    """[39] The start offset follows, once ListOffsets has said so."""
    topic = world.cluster.create("t")
    for _ in range(10):
        world.cluster.produce(topic, 1)
    member = world.member()
    member.fetch(topic, max_records=1)
    world.cluster.delete_records(topic, 5)
    world.timers.advance(2.1)
    response = member.fetch()
    assert entries(response)[topic.topic_id, 0].error_code == 0
    assert acquired(response) == [(5, 9, 1)]
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


def test_first_offset_is_stored_immediately(world):
    """`latest` must not be read anew after a restart."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    world.member(group_id="late").fetch(topic, wait_ms=0)
    (key,) = world.journal.values
    assert (key.kind, key.group_id, key.topic_id, key.partition) == ("partition", "late", topic.topic_id, 0)


def test_two_members_race_for_an_unstarted_partition(world):
    """One looks the start up, the other is parked and continues when it is known."""
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


def test_failing_start_is_reported(world):
    topic = world.cluster.create("t")
    world.cluster.fail_next[2] = [ErrorCode.OFFSET_NOT_AVAILABLE]
    member = world.member()
    assert entries(member.fetch(topic, wait_ms=0))[topic.topic_id, 0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    world.cluster.produce(topic, 1)
    assert acquired(member.fetch()) == [(0, 0, 1)]


def delete_group(world):
    """Delete group g. Return the reply, which may arrive later."""
    request = registry.message("DeleteGroupsRequest")(groups_names=["g"])
    call = Call(42, 2, 1, "admin", request, world.connect())
    task = Task(k42_delete_groups.handle(call, world.services), lambda _: None)
    task.start()
    return Reply(task, 42, 2)


def code_of(reply):
    return reply.message.results[0].error_code


def test_share_fetch_that_waits_does_not_begin_a_deleted_group_anew(world):
    """Its session is gone, and nothing is stored of the group from then on."""
    topic = world.cluster.create("t")
    world.services.coordinator.add_group("g")
    member = world.member()
    waiting = member.send_fetch(topic, wait_ms=5000)
    world.timers.advance(1)
    assert not waiting.done
    assert [key.kind for key in world.journal.values] == ["partition"]
    assert code_of(delete_group(world)) == 0
    world.cluster.produce(topic, 3)
    world.timers.advance(6)
    assert waiting.message.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (world.journal.values, world.services.coordinator.keys_of("g")) == ({}, ())
    world.assert_idle()


def test_deletion_waits_for_lookups_of_start_offsets(world):
    """The result of the look-up is no longer stored: the session of the requester has ended."""
    topic = world.cluster.create("t")
    world.services.coordinator.add_group("g")
    world.cluster.held.add(2)
    waiting = world.member().send_fetch(topic, wait_ms=500)
    deletion = delete_group(world)
    assert not deletion.done
    world.cluster.release(2)
    world.timers.advance(1)
    assert code_of(deletion) == 0
    assert waiting.message.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (world.journal.values, world.services.coordinator.keys_of("g")) == ({}, ())
    world.assert_idle()


def test_first_snapshot_that_is_on_its_way_is_deleted_with_its_group():
    """The deletion follows it in the journal."""
    world = World(journal=SlowJournal())
    topic = world.cluster.create("t")
    world.services.coordinator.add_group("g")
    world.journal.slow = True
    waiting = world.member().send_fetch(topic, wait_ms=500)
    deletion = delete_group(world)
    for _ in range(10):
        if world.journal.appends:
            world.journal.confirm()
    world.timers.advance(1)
    assert code_of(deletion) == 0
    assert waiting.message.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (world.journal.values, world.services.coordinator.keys_of("g")) == ({}, ())


def test_member_that_joins_while_its_group_is_being_deleted_keeps_it(world):
    """68, as for any group with members."""
    topic = world.cluster.create("t")
    world.services.coordinator.add_group("g")
    world.cluster.held.add(2)
    world.member().send_fetch(topic, wait_ms=500)
    deletion = delete_group(world)
    assert world.member(member_id="late").heartbeat(0, ["t"]).error_code == 0
    world.cluster.release(2)
    world.timers.advance(1)
    assert code_of(deletion) == ErrorCode.NON_EMPTY_GROUP


@pytest.fixture
def slow(world) -> SlowJournal:
    """Return a journal that responds on demand, under the same settings."""
    journal = world.services.writes._journal = SlowJournal()
    journal.slow = True
    return journal


def test_fetch_does_not_wait_longer_than_it_says_for_a_first_offset_to_be_stored(world, slow):
    """The response omits that share partition; the next request waits too, and the offset is not looked up again."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 2)
    member = world.member()
    first = member.send_fetch(topic, wait_ms=2000)
    world.timers.advance(1.9)
    assert not first.done
    world.timers.advance(0.2)
    assert (first.message.error_code, acquired(first.message)) == (0, [])
    second = member.send_fetch(wait_ms=2000)
    world.timers.advance(1)
    assert world.cluster.count(2) == 1
    slow.confirm()
    world.timers.advance(1.1)
    assert acquired(second.message) == [(0, 1, 1)]
    world.assert_idle()


def test_first_offset_on_its_way_into_the_journal_is_not_begun_again_when_its_starter_leaves(world, slow):
    """Else the second one would replace a share partition that is served already."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 2)
    first = world.member(member_id="a")
    first.send_fetch(topic)
    first.connection.close()
    second = world.member(member_id="b").send_fetch(topic, wait_ms=2000)
    assert (world.cluster.count(2), len(slow.appends)) == (1, 1)
    slow.confirm()
    world.timers.advance(2.1)
    assert acquired(second.message) == [(0, 1, 1)]
    world.assert_idle()


def test_nothing_begins_in_a_group_that_is_being_deleted(world, slow):
    """A new share partition would be left over; the client retries."""
    topic = world.cluster.create("t")
    world.services.coordinator.add_group("g").deleting = True
    response = world.member().fetch(topic)
    assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert slow.appends == []
