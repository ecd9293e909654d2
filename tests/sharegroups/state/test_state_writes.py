"""Changes on their way through the journal: a round of appends at a time, reported only when they are confirmed."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.loop.promise import Promise, on_behalf_of, running
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot
from kafka_share_proxy.sharegroups.state import state_writes
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.sharegroups.state.state_writes import ShareWrites
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import World, acquired, entries
from tests.support.share_steps import ACCEPT, code, from_the_start, held, start_offset


@pytest.fixture
def world(journal) -> World:
    return from_the_start(World(journal=journal))


def test_response_waits_for_the_journal(world, journal, topic):
    """No response and no move before the change is stored."""
    member = held(world, topic)
    journal.slow = True
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]}, wait_ms=0)
    assert not reply.done
    assert start_offset(world, topic) == 0
    ((record,), _) = journal.appends[0]
    assert ShareSnapshot.decode(record[1]).start_offset == 10
    journal.confirm()
    assert entries(reply.message)[topic.topic_id, 0].acknowledge_error_code == 0
    assert start_offset(world, topic) == 10


def many(world, count):
    """A member that holds a record in each of this many share partitions."""
    topic = world.cluster.create("many", leaders=(1,) * count)
    for partition in range(count):
        world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch(topic)
    return topic, member, {(topic.topic_id, p): [(0, 0, [ACCEPT])] for p in range(count)}


def test_all_share_partitions_of_a_request_are_appended_together(world, journal):
    """Each by itself: the journal puts as many into one request as fit."""
    _, member, acks = many(world, 5)
    journal.slow = True
    reply = member.send_fetch(acks=acks, wait_ms=0)
    assert [len(records) for records, _ in journal.appends] == [1] * 5
    for _ in range(5):
        assert not reply.done
        journal.confirm()
    assert reply.done


def test_what_cannot_be_stored_fails_alone(world, journal):
    """One share partition is too large for the topic: the others of the request are settled."""
    topic, member, acks = many(world, 3)
    journal.slow = True
    reply = member.send_fetch(acks=acks, wait_ms=0)
    journal.confirm()
    journal.refuse(ErrorCode.MESSAGE_TOO_LARGE)
    journal.confirm()
    codes = [entries(reply.message)[topic.topic_id, p].acknowledge_error_code for p in range(3)]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


def test_snapshots_are_made_in_bounded_rounds(world, journal, monkeypatch):
    """However much waits: what is not in this round is made when its own begins."""
    monkeypatch.setattr(state_writes, "ROUND_BYTES_MAX", 60)
    _, member, acks = many(world, 7)
    journal.slow = True
    reply = member.send_fetch(acks=acks, wait_ms=0)
    rounds = []
    while journal.appends:
        rounds.append(len(journal.appends))
        for _ in range(rounds[-1]):
            journal.confirm()
    assert rounds == [3, 3, 1]
    assert reply.done


def test_writes_during_an_append_are_combined_in_the_next(world, journal, topic):
    """The next snapshot is made when its append starts, of the state confirmed by then."""
    first = world.member(member_id="a")
    assert acquired(first.fetch(topic)) == [(0, 9, 1)]
    world.cluster.produce(topic, 10)
    second = world.member(member_id="b")
    assert acquired(second.fetch(topic)) == [(10, 19, 1)]
    journal.slow = True
    one = first.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [1])]}, wait_ms=0)
    two = second.send_fetch(acks={(topic.topic_id, 0): [(10, 19, [1])]}, wait_ms=0)
    assert len(journal.appends) == 1
    journal.confirm()
    assert one.done
    assert not two.done
    ((record,), _) = journal.appends[0]
    assert ShareSnapshot.decode(record[1]).start_offset == 20
    journal.confirm()
    assert entries(two.message)[topic.topic_id, 0].acknowledge_error_code == 0


def held_by_each(world, topic, count):
    """Members that hold a record each, of one share partition."""
    members = [world.member(member_id=f"m{number}") for number in range(count)]
    for number, member in enumerate(members):
        assert acquired(member.fetch(topic, max_records=1, share_acquire_mode=1)) == [(number, number, 1)]
    return members


def accept_all(topic, members):
    """Let each member accept its record, while the journal is slow."""
    return [
        member.send_acknowledge({(topic.topic_id, 0): [(number, number, [ACCEPT])]})
        for number, member in enumerate(members)
    ]


def codes_of(topic, replies):
    return [entries(reply.message)[topic.topic_id, 0].error_code for reply in replies]


def test_changes_of_one_share_partition_share_an_append(world, journal, topic):
    """Each member waits for two appends at most: the one in flight, and the one of all that wait."""
    members = held_by_each(world, topic, 5)
    journal.slow = True
    replies = accept_all(topic, members)
    journal.confirm()
    assert [reply.done for reply in replies] == [True, False, False, False, False]
    ((record,), _) = journal.appends[0]
    assert ShareSnapshot.decode(record[1]).start_offset == 5
    journal.confirm()
    assert journal.appends == []
    assert codes_of(topic, replies) == [ErrorCode.NONE] * 5
    assert start_offset(world, topic) == 5


def test_changes_that_share_a_refused_append_are_all_reverted(world, journal, topic):
    members = held_by_each(world, topic, 4)
    journal.slow = True
    replies = accept_all(topic, members)
    journal.confirm()
    journal.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert codes_of(topic, replies) == [ErrorCode.NONE] + [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    journal.slow = False
    for number, member in enumerate(members[1:], 1):
        again = member.acknowledge({(topic.topic_id, 0): [(number, number, [ACCEPT])]})
        assert code(again, topic) == ErrorCode.NONE
    assert start_offset(world, topic) == 4


def test_the_changes_in_one_snapshot_are_bounded(world, journal, topic, monkeypatch):
    monkeypatch.setattr(state_writes, "CHANGES_MAX", 2)
    members = held_by_each(world, topic, 6)
    journal.slow = True
    replies = accept_all(topic, members)
    starts = []
    while journal.appends:
        ((record,), _) = journal.appends[0]
        starts.append(ShareSnapshot.decode(record[1]).start_offset)
        journal.confirm()
    assert starts == [1, 3, 5, 6]
    assert codes_of(topic, replies) == [ErrorCode.NONE] * 6


@pytest.mark.parametrize(
    ("stored", "codes"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refused_append_gives_the_records_back_to_their_holder(world, journal, topic, stored, codes):
    """6.3, 6.4"""
    member = held(world, topic)
    journal.slow = True
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]}, wait_ms=0)
    journal.refuse(stored)
    assert entries(reply.message)[topic.topic_id, 0].acknowledge_error_code == codes
    journal.slow = False
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]}), topic) == 0


def test_client_that_disconnects_before_the_journal_completes(world, journal, topic):
    """The change is applied all the same, and what it did not settle is free."""
    member = held(world, topic)
    journal.slow = True
    member.send_fetch(acks={(topic.topic_id, 0): [(0, 4, [ACCEPT])]}, wait_ms=0)
    member.connection.close()
    journal.confirm()
    journal.confirm()
    journal.slow = False
    assert start_offset(world, topic) == 5
    assert acquired(world.member(member_id="b").fetch(topic)) == [(5, 9, 2)]
    world.assert_idle()


def test_lock_timeout_is_written_and_holds_when_that_fails(world, journal, topic):
    """4.6: memory first; a failed write is ignored."""
    held(world, topic)
    journal.slow = True
    world.timers.advance(30.1)
    other = world.member(member_id="b")
    ((record,), _) = journal.appends[0]
    assert ShareSnapshot.decode(record[1]).batches == ((0, 9, 0, 1),)
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert acquired(other.fetch(topic)) == [(0, 9, 2)]


def test_a_deletion_waits_for_the_change_in_front_of_it(world, journal, topic):
    """Appends of one share partition are sequential, whatever their kind."""
    member = held(world, topic)
    journal.slow = True
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 4, [ACCEPT])]}, wait_ms=0)
    key = ShareKey("g", topic.topic_id, 0)
    lost = world.services.writes.remove([key])
    assert len(journal.appends) == 1
    journal.confirm()
    assert entries(reply.message)[topic.topic_id, 0].acknowledge_error_code == 0
    assert not lost.done
    journal.confirm()
    assert lost.result() == {key: ErrorCode.NONE}
    assert world.services.coordinator.share(key) is None
    assert not [stored for stored in journal.values if stored.kind == "partition"]


@pytest.mark.parametrize(
    ("replace", "codes"),
    [(True, ErrorCode.NOT_LEADER_OR_FOLLOWER), (False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    ids=["replaced", "deleted"],
)
def test_decision_of_a_deleted_share_partition_is_not_reported_as_done(world, journal, topic, replace, codes):
    """Its state was altered or deleted while the acknowledgement waited: nothing of it is in what follows."""
    member = held(world, topic)
    journal.slow = True
    key, writes = ShareKey("g", topic.topic_id, 0), world.services.writes
    done = (
        writes.create(key, world.services.coordinator.new_partition(key, 4, 1), 1) if replace else writes.remove([key])
    )
    reply = member.send_acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    assert not reply.done
    journal.confirm()
    assert done.result() == {key: ErrorCode.NONE}
    assert code(reply.message, topic) == codes
    assert journal.appends == []
    assert not replace or start_offset(world, topic) == 4


class Party:
    """Owns callbacks, and calls them when the test says so."""

    def __init__(self):
        self.soon = []

    def call_soon(self, callback):
        self.soon.append(lambda: on_behalf_of(self, callback))

    def failed(self, error):
        raise error


def test_what_follows_an_append_is_on_behalf_of_the_share_state(journal):
    """Not on behalf of the requesting client: it happens whether or not that is still connected."""
    state, client = Party(), Party()
    writes = ShareWrites(journal, None, lambda *_, **__: None, lambda: 0.0, lambda _key: None, state)
    journal.slow = True
    owners = []

    def send_request():
        stored = writes.put([(StateKey("group", "g"), b"1")])
        writes.call_after(stored, lambda: owners.append(running()))

    on_behalf_of(client, send_request)
    on_behalf_of(state, journal.confirm)
    assert owners == [state]
    on_behalf_of(client, send_request)
    journal.confirm()
    assert len(state.soon) == 1
    state.soon.pop()()
    assert owners == [state, state]


def test_immediate_refusal_is_reverted_immediately(journal):
    writes = ShareWrites(journal, None, lambda *_, **__: None, lambda: 0.0, lambda _key: None, Party())
    stored = Promise()
    stored.fail(JournalRefused(ErrorCode.NOT_COORDINATOR))
    called = []
    writes.call_after(stored, lambda: called.append(True))
    assert called == [True]
