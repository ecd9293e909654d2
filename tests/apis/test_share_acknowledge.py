"""Acknowledgements, standalone and in a ShareFetch: share-groups.md 5 and 6; numbers in brackets are of section 10."""

from __future__ import annotations

import pytest

from proxy.apis.memory_journal import MemoryJournal
from proxy.apis.ports import JournalRefused
from proxy.apis.promise import Promise
from proxy.errors import ErrorCode
from proxy.share.facts import ShareSnapshot
from tests.support.ports import World, acquired, entries

EARLIEST = {"share_auto_offset_reset": "earliest"}
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class SlowJournal(MemoryJournal):
    """Confirms or refuses each append when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[tuple[list, Promise[None]]] = []
        self.slow = False

    def append(self, records):
        if not self.slow:
            return super().append(records)
        promise: Promise[None] = Promise()
        self.appends.append((list(records), promise))
        return promise

    def confirm(self) -> None:
        records, promise = self.appends.pop(0)
        super().append(records)
        promise.set(None)

    def refuse(self, code: ErrorCode) -> None:
        self.appends.pop(0)[1].fail(JournalRefused(code))


@pytest.fixture
def journal() -> SlowJournal:
    return SlowJournal()


@pytest.fixture
def world(journal) -> World:
    made = World(journal=journal)
    made.configure("g", **EARLIEST)
    return made


@pytest.fixture
def topic(world):
    made = world.cluster.create("t")
    world.cluster.produce(made, 10)
    return made


def held(world, topic, name="m1"):
    """A member that holds 0-9."""
    member = world.member(member_id=name)
    assert acquired(member.fetch(topic)) == [(0, 9, 1)]
    return member


def code(answer, topic, partition=0):
    return entries(answer)[topic.topic_id, partition].error_code


def start_offset(world, topic, group="g"):
    return world.services.coordinator.share((group, topic.topic_id, 0)).partition.start_offset


def test_accepted_records_are_settled(world, topic):
    """[6]"""
    member = held(world, topic)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]}), topic) == 0
    assert start_offset(world, topic) == 10
    assert acquired(member.fetch(wait_ms=0)) == []


def test_rejected_records_never_come_again(world, topic):
    """[10]"""
    member = held(world, topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [REJECT])]})
    world.cluster.produce(topic, 2)
    assert acquired(member.fetch()) == [(10, 11, 1)]


def test_delivery_limit(world, topic):
    """[11]"""
    world.configure("g", share_delivery_count_limit="2")
    member = held(world, topic)
    assert acquired(member.fetch(acks={(topic.topic_id, 0): [(0, 9, [RELEASE])]})) == [(0, 9, 2)]
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [RELEASE])]})
    world.cluster.produce(topic, 1)
    assert acquired(member.fetch()) == [(10, 10, 1)]


def test_final_epoch_releases_the_rest_and_ends(world, topic):
    """[15]"""
    member = held(world, topic)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 4, [ACCEPT])]}, epoch=-1), topic) == 0
    assert acquired(world.member(member_id="b").fetch(topic)) == [(5, 9, 2)]
    assert member.acknowledge({}, epoch=2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_epochs(world, topic):
    """[17, 18, 19]"""
    member = held(world, topic)
    acks = {(topic.topic_id, 0): [(0, 9, [ACCEPT])]}
    assert member.acknowledge(acks, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(acks, epoch=5).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    stranger = world.member(member_id="b")
    assert stranger.acknowledge(acks, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(member.acknowledge(acks, epoch=1), topic) == 0


def test_refusals_of_the_whole_request(world, topic):
    """42, 30; the lock duration is 0 then."""
    member = held(world, topic)
    world.cluster.group_errors["secret"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer = world.member(group_id="secret").acknowledge({}, epoch=1)
    assert (answer.error_code, answer.acquisition_lock_timeout_ms) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)
    assert world.member(member_id="x" * 37).acknowledge({}, epoch=1).error_code == ErrorCode.INVALID_REQUEST
    member.group_id = None
    assert member.acknowledge({}, epoch=1).error_code == ErrorCode.INVALID_REQUEST


def test_records_of_another_member(world, topic):
    """[29]"""
    owner = held(world, topic)
    other = world.member(member_id="b")
    other.fetch(topic, wait_ms=0)
    acks = {(topic.topic_id, 0): [(0, 9, [ACCEPT])]}
    assert code(other.acknowledge(acks), topic) == ErrorCode.INVALID_RECORD_STATE
    assert code(owner.acknowledge(acks), topic) == 0


@pytest.mark.parametrize(
    "batches",
    [
        [(5, 3, [1])],
        [(0, 5, [1]), (3, 8, [1])],
        [(0, 5, [])],
        [(0, 1, [1, 1, 1])],
        [(0, 5, [5])],
        [(0, 5, [4])],
        [(0, 30, [1])],
    ],
)
def test_bad_batches_fail_their_partition_only(world, batches):
    """[30, 32]"""
    topic = world.cluster.create("two", leaders=(1, 1))
    for partition in range(2):
        world.cluster.produce(topic, 10, partition)
    member = world.member()
    member.fetch(topic)
    answer = member.acknowledge({(topic.topic_id, 0): batches, (topic.topic_id, 1): [(0, 9, [ACCEPT])]})
    assert (code(answer, topic, 0), code(answer, topic, 1)) == (ErrorCode.INVALID_REQUEST, 0)


def test_bad_shape_is_judged_before_the_topic(world, topic):
    """6.1: 42 comes before 100."""
    member = held(world, topic)
    unknown = b"\xee" * 16
    answer = member.acknowledge({(unknown, 0): [(5, 3, [1])], (unknown, 1): [(3, 5, [1])]})
    codes = [entries(answer)[unknown, partition].error_code for partition in range(2)]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_ID]


def test_one_bad_record_changes_none(world, topic):
    """[31]"""
    member = held(world, topic)
    member.acknowledge({(topic.topic_id, 0): [(7, 7, [ACCEPT])]})
    answer = member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    assert code(answer, topic) == ErrorCode.INVALID_RECORD_STATE
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 6, [ACCEPT]), (8, 9, [ACCEPT])]}), topic) == 0


def test_repeated_acknowledgement(world, topic):
    """[33] 121 while the start offset has not passed, 0 after it has."""
    member = held(world, topic)
    member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]})
    assert code(member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]}), topic) == ErrorCode.INVALID_RECORD_STATE
    member.acknowledge({(topic.topic_id, 0): [(0, 4, [ACCEPT])]})
    assert code(member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]}), topic) == 0


def test_types_per_offset(world, topic):
    """[34]"""
    member = held(world, topic)
    types = [ACCEPT, RELEASE, REJECT, 0, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE]
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, types)]}), topic) == 0
    assert acquired(member.fetch()) == [(1, 1, 2), (9, 9, 2)]


def test_partition_without_batches_succeeds(world, topic):
    member = held(world, topic)
    assert code(member.acknowledge({(topic.topic_id, 0): []}), topic) == 0


def test_partition_that_was_never_fetched(world, topic):
    """3: its state is not loaded."""
    other = world.cluster.create("other")
    member = held(world, topic)
    assert code(member.acknowledge({(other.topic_id, 0): [(0, 0, [1])]}), other) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_without_the_right_to_read(world, topic):
    member = held(world, topic)
    secret = world.cluster.create("secret")
    secret.bits = 1 << 8
    answer = member.acknowledge({(secret.topic_id, 0): [(0, 0, [1])]})
    assert code(answer, secret) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_not_leader_has_a_hint(world, topic):
    member = held(world, topic)
    world.cluster.move_leader(topic, 2)
    world.services.topology.mark_stale("t")
    answer = member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    entry = entries(answer)[topic.topic_id, 0]
    assert (entry.error_code, entry.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert [(n.node_id, n.port) for n in answer.node_endpoints] == [(2, 9102)]


def test_answer_waits_for_the_journal(world, journal, topic):
    """Nothing is told, and nothing moves, before the change is stored."""
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


def test_one_append_for_all_partitions_of_a_request(world, journal):
    topic = world.cluster.create("many", leaders=(1,) * 5)
    for partition in range(5):
        world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch(topic)
    journal.slow = True
    member.send_fetch(acks={(topic.topic_id, p): [(0, 0, [1])] for p in range(5)}, wait_ms=0)
    assert [len(records) for records, _ in journal.appends] == [5]


def test_one_append_in_flight_carries_what_came_meanwhile(world, journal, topic):
    """Decision 21: the next snapshot is made when its append starts, of the state confirmed by then."""
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


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refused_append_gives_the_records_back_to_their_holder(world, journal, topic, stored, told):
    """6.3, 6.4"""
    member = held(world, topic)
    journal.slow = True
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(0, 9, [ACCEPT])]}, wait_ms=0)
    journal.refuse(stored)
    assert entries(reply.message)[topic.topic_id, 0].acknowledge_error_code == told
    journal.slow = False
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]}), topic) == 0


def test_client_that_leaves_before_the_journal_answers(world, journal, topic):
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


def test_late_acknowledgement(world, topic):
    member = held(world, topic)
    world.timers.advance(30.1)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [1])]}), topic) == ErrorCode.INVALID_RECORD_STATE


# RENEW


@pytest.mark.parametrize("field", ["max_wait_ms", "min_bytes", "max_bytes", "max_records"])
def test_renewing_fetch_must_not_fetch(world, topic, field):
    """[41] 42, and the epoch is not used up."""
    member = held(world, topic)
    zeros = {"wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    answer = member.fetch(epoch=1, **(zeros | {field: 1}))
    assert (answer.error_code, answer.acquisition_lock_timeout_ms) == (ErrorCode.INVALID_REQUEST, 0)
    assert field.title().replace("_", "") in answer.error_message
    assert member.fetch(epoch=1, **zeros).error_code == 0


def renewing(member, acks, **fields):
    return member.fetch(acks=acks, wait_ms=0, min_bytes=0, max_bytes=0, max_records=0, is_renew_ack=True, **fields)


def test_renewing_fetch_acknowledges_and_gives_no_records(world, topic):
    """[42, 44]"""
    member = held(world, topic)
    world.cluster.produce(topic, 5)
    types = [ACCEPT] * 5 + [RENEW] * 5
    answer = renewing(member, {(topic.topic_id, 0): [(0, 9, types)]}, batch_size=500)
    entry = entries(answer)[topic.topic_id, 0]
    assert (entry.acknowledge_error_code, len(entry.records), acquired(answer)) == (0, 0, [])
    assert start_offset(world, topic) == 5
    answer = renewing(member, {(topic.topic_id, 0): [(5, 9, [ACCEPT])]})
    assert entries(answer)[topic.topic_id, 0].acknowledge_error_code == 0


def test_renew_without_the_flag_or_in_v1(world, topic):
    """[43]"""
    member = held(world, topic)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}), topic) == ErrorCode.INVALID_REQUEST
    member.version = 1
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}), topic) == ErrorCode.INVALID_REQUEST
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]}), topic) == 0


def test_renewed_lock_lasts_its_whole_time_again(world, topic):
    """[45]"""
    member = held(world, topic)
    other = world.member(member_id="b")
    other.fetch(topic, wait_ms=0)
    world.timers.advance(18)
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}, renew=True), topic) == 0
    world.timers.advance(18)
    assert acquired(other.fetch(wait_ms=0)) == []
    world.timers.advance(12.1)
    assert acquired(other.fetch(wait_ms=0)) == [(0, 9, 2)]


def test_renew_writes_nothing(world, journal, topic):
    """[48]"""
    member = held(world, topic)
    before = dict(journal.values)
    journal.slow = True
    assert code(member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}, renew=True), topic) == 0
    assert journal.appends == []
    assert dict(journal.values) == before


def test_renew_of_what_is_not_held(world, topic):
    """[46]"""
    member = held(world, topic)
    member.acknowledge({(topic.topic_id, 0): [(5, 9, [ACCEPT])]})
    answer = member.acknowledge({(topic.topic_id, 0): [(5, 9, [RENEW])]}, renew=True)
    assert code(answer, topic) == ErrorCode.INVALID_RECORD_STATE
    world.timers.advance(30.1)
    answer = member.acknowledge({(topic.topic_id, 0): [(0, 4, [RENEW])]}, renew=True)
    assert code(answer, topic) == ErrorCode.INVALID_RECORD_STATE


def test_changed_lock_duration_holds_and_is_told(world, topic):
    """[47]"""
    member = held(world, topic)
    world.configure("g", share_record_lock_duration_ms="25000")
    answer = member.acknowledge({(topic.topic_id, 0): [(0, 9, [RENEW])]}, renew=True)
    assert answer.acquisition_lock_timeout_ms == 25_000
    world.timers.advance(24.9)
    assert acquired(world.member(member_id="b").fetch(topic, wait_ms=0)) == []
    world.timers.advance(0.2)
    assert acquired(world.member(member_id="c").fetch(topic, wait_ms=0)) == [(0, 9, 2)]


def test_renew_switched_off(world, topic):
    """[49]"""
    world.configure("g", share_renew_acknowledge_enable="false")
    member = held(world, topic)
    types = [ACCEPT] * 5 + [RENEW] * 5
    answer = member.acknowledge({(topic.topic_id, 0): [(0, 9, types)]}, renew=True)
    assert code(answer, topic) == ErrorCode.INVALID_RECORD_STATE
    assert start_offset(world, topic) == 0


def test_renew_of_one_partition_and_nonsense_for_another(world):
    """[50]"""
    topic = world.cluster.create("two", leaders=(1, 1))
    for partition in range(2):
        world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch(topic)
    acks = {(topic.topic_id, 0): [(0, 0, [RENEW])], (topic.topic_id, 1): [(0, 0, [9])]}
    answer = member.acknowledge(acks, renew=True)
    assert (code(answer, topic, 0), code(answer, topic, 1)) == (0, ErrorCode.INVALID_REQUEST)
