"""Dead letters are written in the background, once each, and wait while their topic cannot be written."""

from __future__ import annotations

import itertools

import pytest
from kafka_share_proxy.brokers import record_lookup
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.letter_world import COPIES, SETTING, TOPIC, LetterWorld
from tests.support.ports import acquired, entries
from tests.support.scripted_cluster import ALL_BITS, Topic
from tests.support.share_steps import ACCEPT, REJECT, held, start_offset, ten_records

PERMISSION = "errors.deadletterqueue.group.enable"
READ_BIT = 1 << 3


def rejected(world: LetterWorld, topic: Topic, *offsets: int) -> None:
    """A member rejects these of ten records, and accepts the others."""
    member = held(world, topic)
    acks = [(offset, offset, [REJECT if offset in offsets else ACCEPT]) for offset in range(10)]
    response = member.fetch(acks={(topic.topic_id, 0): acks}, wait_ms=0)
    assert entries(response)[topic.topic_id, 0].acknowledge_error_code == 0


def test_rejected_records_become_dead_letters_and_the_start_offset_passes_them() -> None:
    world = LetterWorld()
    topic = ten_records(world)
    rejected(world, topic, 3, 5)
    assert start_offset(world, topic) == 3
    world.timers.advance(0.1)
    assert world.offsets() == [3, 5]
    assert start_offset(world, topic) == 10
    (first, _) = world.letters()
    assert dict(first.headers) == {
        "__dlq.errors.topic": b"t",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"3",
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }
    assert (first.key, first.value) == (None, None)


def test_markers_of_transactions_are_not_acquired_and_become_no_dead_letters() -> None:
    """librdkafka 2.16 does not acknowledge them, so that their locks expire. A redrive writes them, too."""
    world = LetterWorld()
    topic = world.cluster.create("t")
    member = world.member()
    for number in range(3):
        own = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
        world.cluster.produce(topic, 2, base_sequence=2 * number, **own)
        world.cluster.produce(topic, 1, is_control=True, **own)
    assert acquired(member.fetch(topic)) == [(0, 1, 1), (3, 4, 1), (6, 7, 1)]
    acks = [(first, first + 1, [REJECT]) for first in (0, 3, 6)]
    member.fetch(acks={(topic.topic_id, 0): acks}, wait_ms=0)
    world.timers.advance(1)
    assert world.offsets() == [0, 1, 3, 4, 6, 7]
    assert start_offset(world, topic) == 9


def test_the_response_to_the_client_does_not_wait_for_the_dead_letter() -> None:
    world = LetterWorld()
    world.journal.holds = True
    topic = ten_records(world)
    rejected(world, topic, 0)
    world.timers.advance(0.1)
    assert world.journal.transactions
    assert world.waiting(topic) == 1


def test_other_changes_of_the_share_partition_wait_for_the_transaction_and_no_others() -> None:
    world = LetterWorld()
    world.journal.holds = True
    topic, other = ten_records(world), world.cluster.create("other")
    rejected(world, topic, 0)
    world.timers.advance(0.1)
    world.cluster.produce(topic, 1)
    world.cluster.produce(other, 1)
    member = world.member(member_id="m2")
    assert acquired(member.fetch(topic, other), other) == [(0, 0, 1)]
    reply = member.send_fetch(acks={(topic.topic_id, 0): [(10, 10, [ACCEPT])]}, wait_ms=0)
    assert not reply.done
    assert start_offset(world, topic) == 0
    elsewhere = world.services.writes.write([])
    assert elsewhere.done
    world.journal.commit()
    world.timers.advance(0.1)
    assert reply.done
    assert start_offset(world, topic) == 11


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_refused_transaction_is_retried_and_nothing_is_archived_meanwhile(code: ErrorCode) -> None:
    world = LetterWorld()
    topic = ten_records(world)
    world.journal.refuses = [code] * 8
    rejected(world, topic, 0)
    world.timers.advance(60)
    assert world.waiting(topic) == 1
    assert world.letters() == []
    figures = world.services.figures.of("g")
    assert 5 <= figures.dead_letter_requests == figures.dead_letter_failures <= 8
    world.timers.advance(200)
    assert world.offsets() == [0]
    assert figures.dead_letters == 1
    events = [event for event, _ in world.notes]
    assert events.count("dead-letters-not-written") >= 1
    assert events[-1] == "dead-letters-written-again"


def test_a_missing_topic_is_awaited_and_reported() -> None:
    world = LetterWorld(partitions=0)
    topic = ten_records(world)
    rejected(world, topic, 1)
    world.timers.advance(100)
    assert world.waiting(topic) == 1
    assert world.services.dead_letters is not None
    assert "does not exist" in world.services.dead_letters.unwritable[TOPIC]
    world.cluster.create(TOPIC)
    world.timers.advance(40)
    assert world.offsets() == [1]
    assert world.services.dead_letters.unwritable == {}


def test_a_topic_that_cannot_be_written_does_not_hold_up_another() -> None:
    world = LetterWorld(topics=("dlq.*",))
    world.configure("h", share_auto_offset_reset="earliest", **{SETTING: "absent"})
    topic = ten_records(world)
    member = world.member("h")
    member.fetch(topic)
    member.fetch(acks={(topic.topic_id, 0): [(0, 9, [REJECT])]}, wait_ms=0)
    rejected(world, topic, 0)
    world.timers.advance(1)
    assert world.offsets() == [0]


def test_a_changed_topic_is_used_without_waiting_for_the_retry() -> None:
    world = LetterWorld()
    world.configure("g", **{SETTING: "absent"})
    topic = ten_records(world)
    rejected(world, topic, 0)
    world.timers.advance(40)
    world.configure("g", **{SETTING: TOPIC})
    assert world.services.dead_letters is not None
    world.services.dead_letters.settings_changed("g")
    world.timers.advance(0.1)
    assert world.offsets() == [0]


def test_without_the_setting_waiting_records_are_archived_and_not_retried() -> None:
    world = LetterWorld(partitions=0)
    topic = ten_records(world)
    rejected(world, topic, 0)
    world.timers.advance(1)
    world.configure("g", **{SETTING: ""})
    assert start_offset(world, topic) == 10
    world.cluster.create(TOPIC)
    world.timers.advance(100)
    assert world.letters() == []
    assert world.timers.planned <= 2


def test_many_dead_letters_are_gathered_in_at_most_twenty_transactions_a_second() -> None:
    world = LetterWorld()
    topic = world.cluster.create("t")
    member = world.member()
    written = []
    for _ in range(20):
        world.cluster.produce(topic, 50)
        ((first, last, _),) = acquired(member.fetch(topic))
        member.fetch(acks={(topic.topic_id, 0): [(first, last, [REJECT])]}, wait_ms=0)
        world.timers.advance(0.05)
        written.append(len(world.letters()))
    world.timers.advance(0.2)
    assert world.offsets() == list(range(1000))
    assert len(world.journal.committed) <= 21


def test_slow_transactions_leave_time_for_other_changes() -> None:
    """Each takes 10 ms. The first few do not wait, those after them are gathered for a third of a second."""
    world = LetterWorld()
    world.journal.holds = True
    topic = world.cluster.create("t")
    member = world.member()
    commit_times, opened, start = list[float](), 0, world.timers.now()
    for step in range(4_000):
        if step % 20 == 0:
            world.cluster.produce(topic, 1)
            ((first, last, _),) = acquired(member.fetch(topic))
            member.send_fetch(acks={(topic.topic_id, 0): [(first, last, [REJECT])]}, wait_ms=0)
        opened = opened + 1 if world.journal.transactions else 0
        if opened == 10:
            world.journal.commit()
            commit_times.append(world.timers.now())
        world.timers.advance(0.001)
    pauses = [later - earlier for earlier, later in itertools.pairwise(commit_times)]
    assert commit_times[0] < start + 0.05
    assert all(0.29 <= pause <= 0.4 for pause in pauses[6:]), pauses


def test_partitions_are_chosen_by_the_source_partition() -> None:
    world = LetterWorld(partitions=2)
    topic = world.cluster.create("t", leaders=(1,) * 3)
    for partition in range(3):
        world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch(topic)
    member.fetch(acks={(topic.topic_id, p): [(0, 0, [REJECT])] for p in range(3)}, wait_ms=0)
    world.timers.advance(0.2)
    sources = [
        sorted(dict(each.headers)["__dlq.errors.partition"] or b"" for each in world.letters(p)) for p in range(2)
    ]
    assert sources == [[b"0", b"2"], [b"1"]]


# Copies


def test_key_and_value_are_copied_with_the_setting() -> None:
    world = LetterWorld()
    world.configure("g", **{COPIES: "true"})
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5, value=b"first")
    world.cluster.produce(topic, 5, value=b"second")
    member = world.member()
    assert acquired(member.fetch(topic)) == [(0, 9, 1)]
    member.fetch(acks={(topic.topic_id, 0): [(0, 9, [REJECT])]}, wait_ms=0)
    world.timers.advance(0.1)
    assert [each.value for each in world.letters()] == [b"first"] * 5 + [b"second"] * 5


def test_records_that_no_longer_exist_get_headers_only() -> None:
    world = LetterWorld()
    world.configure("g", **{COPIES: "true"})
    world.journal.refuses = [ErrorCode.NOT_ENOUGH_REPLICAS]
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5, value=b"first")
    world.cluster.produce(topic, 5, value=b"second")
    member = world.member()
    member.fetch(topic)
    member.fetch(acks={(topic.topic_id, 0): [(0, 9, [REJECT])]}, wait_ms=0)
    world.cluster.delete_records(topic, 5)
    world.timers.advance(10)
    assert [each.value for each in world.letters()] == [None] * 5 + [b"second"] * 5


def test_a_record_too_large_for_the_topic_gets_headers_only_and_its_neighbours_are_copied() -> None:
    world = LetterWorld(configs={"max.message.bytes": "1000"})
    world.configure("g", **{COPIES: "true"})
    topic = world.cluster.create("t")
    for value in (b"small", b"x" * 2000, b"small"):
        world.cluster.produce(topic, 1, value=value)
    member = world.member()
    member.fetch(topic)
    member.fetch(acks={(topic.topic_id, 0): [(0, 2, [REJECT])]}, wait_ms=0)
    world.timers.advance(5)
    assert world.offsets() == [0, 1, 2]
    assert [each.value for each in world.letters()] == [b"small", None, b"small"]


def test_a_topic_that_is_too_small_even_for_headers_keeps_the_record_waiting() -> None:
    world = LetterWorld(configs={"max.message.bytes": "100"})
    topic = ten_records(world)
    rejected(world, topic, 0)
    world.timers.advance(100)
    assert world.waiting(topic) == 1
    assert world.services.dead_letters is not None
    assert "max.message.bytes" in world.services.dead_letters.unwritable[TOPIC]


def test_a_batch_that_the_broker_finds_too_large_is_divided() -> None:
    world = LetterWorld()
    world.journal.refuses = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE]
    topic = ten_records(world)
    rejected(world, topic, *range(10))
    world.timers.advance(5)
    assert world.offsets() == list(range(10))


def test_records_that_cannot_be_read_wait_and_hold_up_no_others() -> None:
    world = LetterWorld()
    world.configure("g", **{COPIES: "true"})
    topics = [world.cluster.create(name) for name in ("s", "t")]
    for topic in topics:
        world.cluster.produce(topic, 2, value=topic.name.encode())
    member = world.member()
    member.fetch(*topics)
    member.fetch(acks={(each.topic_id, 0): [(0, 1, [REJECT])] for each in topics}, wait_ms=0)
    topics[0].bits = ALL_BITS & ~READ_BIT
    world.timers.advance(0.5)
    assert [each.value for each in world.letters()] == [b"t"] * 2
    assert [world.waiting(each) for each in topics] == [2, 0]
    assert world.services.dead_letters is not None
    assert "TOPIC_AUTHORIZATION_FAILED" in world.services.dead_letters.unwritable[TOPIC]
    requests = world.cluster.count(1)
    world.timers.advance(20)
    assert world.cluster.count(1) - requests <= 5, "retries wait from one second to thirty"
    topics[0].bits = ALL_BITS
    world.timers.advance(40)
    assert [each.value for each in world.letters()] == [b"t"] * 2 + [b"s"] * 2
    assert world.services.dead_letters.unwritable == {}


def test_records_beyond_the_limits_of_one_read_are_copied_by_the_next_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_lookup, "READ_BYTES", 1)
    monkeypatch.setattr(record_lookup, "READS_MAX", 2)
    world = LetterWorld()
    world.configure("g", **{COPIES: "true"})
    topic = world.cluster.create("t")
    for number in range(5):
        world.cluster.produce(topic, 1, value=b"%d" % number)
    member = world.member()
    member.fetch(topic)
    member.fetch(acks={(topic.topic_id, 0): [(0, 4, [REJECT])]}, wait_ms=0)
    world.timers.advance(1)
    assert [each.value for each in world.letters()] == [b"%d" % number for number in range(5)]
    assert world.journal.committed == [2, 2, 1]


# Takeover


def test_after_a_takeover_the_new_owner_writes_what_waits_exactly_once() -> None:
    old = LetterWorld()
    topic = ten_records(old)
    old.journal.refuses = [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    rejected(old, topic, 0, 1)
    old.timers.advance(0.1)
    assert old.letters() == []
    stored = dict(old.journal.values)
    new = LetterWorld()
    new.cluster.topics["t"] = topic
    for key, value in stored.items():
        if key.kind == "partition":
            new.services.coordinator.rest(ShareKey(key.group_id, key.topic_id, key.partition), value)
    new.services.coordinator.load_dead_letters("g")
    new.timers.advance(0.2)
    assert new.offsets() == [0, 1]
    assert start_offset(new, topic) == 10


def test_a_group_without_the_setting_writes_no_dead_letters() -> None:
    world = LetterWorld()
    world.configure("g", **{SETTING: ""})
    topic = ten_records(world)
    rejected(world, topic, 0)
    assert start_offset(world, topic) == 10
    assert world.journal.committed == []


def test_the_identity_without_a_connection_keeps_records_waiting() -> None:
    world = LetterWorld()
    topic = ten_records(world)
    world.own.refuses = "no broker"
    rejected(world, topic, 0)
    world.timers.advance(10)
    assert world.waiting(topic) == 1
    world.own.refuses = None
    world.timers.advance(60)
    assert world.offsets() == [0]
