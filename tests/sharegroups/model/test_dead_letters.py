"""Records that wait for their dead letters: chosen, archived with them, or kept (sharegroups/README.md rules 85-94)."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetterWrite
from kafka_share_proxy.sharegroups.model.offset_runs import ARCHIVED, AVAILABLE, EXHAUSTED, REJECTED
from kafka_share_proxy.sharegroups.model.partition import SharePartition, Transition
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition, partition_of
from kafka_share_proxy.sharegroups.model.queue_settings import effective
from kafka_share_proxy.sharegroups.model.redelivery import DelayedRuns
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.sharegroups.model.snapshot import ARCHIVING, ShareSnapshot

from tests.sharegroups.model.play import ACCEPT, GAP, REJECT, RELEASE, Play
from tests.sharegroups.model.test_key_order import Ordered

LETTERS = {"errors.deadletterqueue.topic.name": "dlq.orders"}
QUEUE, ORDER_ONLY = effective(LETTERS), effective({"share.ordering": "key"})


def queue_of(*log: tuple[int, int], **settings: int) -> Play:
    """A share partition of a group with a topic for dead letters."""
    play = Play(*log, **settings)
    play.partition = partition_of(play.partition, QUEUE, DelayedRuns())
    return play


def write_of(play: Play, records: int = 100) -> DeadLetterWrite:
    assert isinstance(play.partition, QueuePartition)
    write = play.partition.decide_dead_letters(records)
    assert write is not None
    return write


def test_a_rejected_record_waits_for_its_dead_letter_and_holds_the_start_offset() -> None:
    play = queue_of((0, 4))
    play.poll()
    assert play.ack((0, 0, ACCEPT), (1, 1, REJECT), (2, 4, ACCEPT)) is None
    assert play.partition.start_offset == 1
    assert play.partition.runs[0].state == REJECTED
    assert play.partition.dead_letters_waiting() == 1
    assert play.partition.is_held()


def test_a_gap_becomes_no_dead_letter() -> None:
    play = queue_of((0, 4))
    play.poll()
    play.ack((0, 4, GAP))
    assert play.partition.start_offset == 5
    assert play.partition.dead_letters_waiting() == 0


@pytest.mark.parametrize("ends", ["released", "expired", "session"])
def test_a_record_whose_deliveries_are_used_up_waits_for_its_dead_letter(ends: str) -> None:
    play = queue_of((0, 0), delivery_count_limit=2)
    for _ in range(2):
        assert play.poll()
        if ends == "released":
            play.ack((0, 0, RELEASE))
        elif ends == "expired":
            play.wait(1000)
        else:
            play.release("ann")
    assert play.state == [(0, 0, EXHAUSTED)]
    assert write_of(play).letters() == [(0, 2, False)]


def test_written_dead_letters_are_archived_in_the_snapshot_of_their_transaction_only() -> None:
    play = queue_of((0, 4))
    play.poll()
    play.ack((0, 4, REJECT))
    write = write_of(play)
    assert play.partition.snapshot().batches == ((0, 4, ARCHIVING, 1),)
    assert play.partition.snapshot(write).start_offset == 5
    assert play.partition.snapshot().batches == ((0, 4, ARCHIVING, 1),)
    assert play.partition.start_offset == 0
    play.partition.apply(write)
    assert play.window == (5, 4)


def test_records_of_a_refused_write_wait_again() -> None:
    play = queue_of((0, 4))
    play.poll()
    play.ack((0, 4, REJECT))
    write = write_of(play)
    assert isinstance(play.partition, QueuePartition)
    assert play.partition.decide_dead_letters(100) is None
    play.partition.revert(write, play.now, play.settings)
    assert play.state == [(0, 4, REJECTED)]
    assert write_of(play).letters() == [(offset, 1, True) for offset in range(5)]


def test_a_write_has_at_most_the_given_number_of_records_and_the_rest_follows() -> None:
    play = queue_of((0, 9))
    play.poll()
    play.ack((0, 9, REJECT))
    first = write_of(play, 4)
    second = write_of(play, 4)
    assert [letter.offset for letter in first.letters()] == [0, 1, 2, 3]
    assert [letter.offset for letter in second.letters()] == [4, 5, 6, 7]
    play.partition.apply(second)
    assert play.partition.start_offset == 0
    play.partition.apply(first)
    assert play.partition.start_offset == 8


def test_neighbouring_records_that_wait_are_one_run_unless_some_are_being_written() -> None:
    """A snapshot would otherwise grow with each acknowledgement until the next transaction."""
    play = queue_of((0, 9))
    play.poll()
    for offset in (0, 2, 1):
        play.ack((offset, offset, REJECT))
    assert [(run.first, run.last) for run in play.partition.runs if run.state == REJECTED] == [(0, 2)]
    write = write_of(play)
    assert write.size == len(write.letters()) == 3
    play.ack((3, 4, REJECT))
    assert [(run.first, run.last) for run in play.partition.runs if run.state == REJECTED] == [(0, 2), (3, 4)]
    play.partition.apply(write)
    assert play.partition.start_offset == 3
    assert write_of(play).letters() == [(3, 1, True), (4, 1, True)]


def test_a_snapshot_of_another_change_does_not_archive_records_being_written() -> None:
    play = queue_of((0, 4))
    play.poll()
    play.ack((0, 0, REJECT))
    write_of(play)
    other = play.decide((1, 1, ACCEPT))
    assert isinstance(other, Transition)
    assert play.partition.snapshot(other).batches == ((0, 0, ARCHIVING, 1), (1, 1, 2, 1))


def test_the_share_partition_reports_when_records_begin_to_wait() -> None:
    play = queue_of((0, 4), delivery_count_limit=2)
    reports: list[int] = []
    assert isinstance(play.partition, QueuePartition)
    play.partition.on_dead_letters = lambda: reports.append(play.partition.dead_letters_waiting())
    play.poll()
    play.ack((0, 0, ACCEPT))
    assert reports == []
    play.ack((1, 1, REJECT))
    assert reports == [1]


def test_a_refused_release_after_the_lock_expired_waits_for_its_dead_letter() -> None:
    play = queue_of((0, 0), delivery_count_limit=2)
    play.poll()
    play.ack((0, 0, RELEASE))
    play.poll()
    refused = play.decide((0, 0, RELEASE))
    assert isinstance(refused, Transition)
    play.partition.revert(refused, play.now + 1000, play.settings)
    assert play.state == [(0, 0, EXHAUSTED)]


@pytest.mark.parametrize("settings", [None, ORDER_ONLY], ids=["no-queue", "queue-without-dead-letters"])
def test_without_the_setting_waiting_records_are_archived(settings: object) -> None:
    play = queue_of((0, 4))
    play.poll()
    play.ack((0, 0, REJECT))
    write = write_of(play)
    pending = play.decide((1, 1, REJECT))
    play.partition = partition_of(play.partition, settings, DelayedRuns())
    assert play.partition.start_offset == 1
    assert isinstance(pending, Transition)
    play.partition.apply(pending)
    assert play.partition.start_offset == 2
    assert not write.is_of(play.partition)
    play.partition.apply(write)
    assert play.partition.start_offset == 2


def test_a_write_is_dropped_if_the_log_lost_its_records() -> None:
    play = queue_of((0, 4))
    play.poll()
    play.ack((0, 4, REJECT))
    write = write_of(play)
    assert write.is_of(play.partition)
    play.partition.move_log_start(5)
    assert not write.is_of(play.partition)


def test_a_group_without_the_setting_archives_rejected_records() -> None:
    play = Play((0, 0))
    play.poll()
    play.ack((0, 0, REJECT))
    assert type(play.partition) is SharePartition
    assert play.partition.start_offset == 1


# With key order


def test_a_record_that_waits_for_its_dead_letter_keeps_its_key_blocked() -> None:
    play = Ordered("aab", stored=LETTERS | {"share.ordering": "key"})
    assert play.poll() == [0, 2]
    assert play.ack(0, 0, REJECT)
    assert play.poll() == []
    assert isinstance(play.partition, QueuePartition)
    write = play.partition.decide_dead_letters(10)
    assert write is not None
    assert play.partition.snapshot(write).start_offset == 1
    assert play.poll() == []
    play.partition.apply(write)
    assert play.poll() == [1]


def test_after_a_takeover_the_key_is_still_blocked_by_the_dead_letter() -> None:
    play = Ordered("aab", stored=LETTERS | {"share.ordering": "key"})
    play.poll()
    play.ack(0, 0, REJECT)
    play.reload()
    assert play.poll() == [2]
    assert isinstance(play.partition, QueuePartition)
    write = play.partition.decide_dead_letters(10)
    assert write is not None
    play.partition.apply(write)
    assert play.poll() == [1]


def test_removing_the_setting_frees_the_key_of_a_waiting_record() -> None:
    play = Ordered("aab", stored=LETTERS | {"share.ordering": "key"})
    play.poll()
    play.ack(0, 0, REJECT)
    play.stored = {"share.ordering": "key"}
    play.partition = play.converted(play.partition)
    assert play.poll() == [1]


# The coordinator

KEY = ShareKey("g", b"t" * 16, 0)
STORED = ShareSnapshot(0, 0, 0, ((0, 0, ARCHIVING, 2), (1, 1, ARCHIVING, 5), (2, 4, 0, 1)), rejected=frozenset({0}))


def test_stored_archiving_records_are_reported_after_a_takeover() -> None:
    coordinator, reported = ShareCoordinator(BrokerShareLimits()), []
    coordinator.on_dead_letters = reported.append
    coordinator.store_settings("g", LETTERS)
    coordinator.rest(KEY, STORED.encode())
    coordinator.rest(ShareKey("g", b"t" * 16, 1), ShareSnapshot(0, 0, 0, ((0, 0, 0, 2),)).encode())
    coordinator.load_dead_letters("g")
    assert reported == [KEY]
    assert coordinator.resting == 1
    share = coordinator.share(KEY)
    assert share is not None
    assert isinstance(share.partition, QueuePartition)
    write = share.partition.decide_dead_letters(10)
    assert write is not None
    assert write.letters() == [(0, 2, True), (1, 5, False)]


def test_groups_without_dead_letters_stay_at_rest_after_a_takeover() -> None:
    coordinator = ShareCoordinator(BrokerShareLimits())
    coordinator.rest(KEY, STORED.encode())
    coordinator.load_dead_letters("g")
    assert coordinator.resting == 1
    share = coordinator.share(KEY)
    assert share is not None
    assert [run.state for run in share.partition.runs] == [AVAILABLE]


def test_a_share_partition_with_waiting_dead_letters_does_not_rest() -> None:
    coordinator = ShareCoordinator(BrokerShareLimits())
    coordinator.store_settings("g", LETTERS)
    coordinator.rest(KEY, STORED.encode())
    assert coordinator.share(KEY) is not None
    coordinator.rest_idle()
    coordinator.rest_idle()
    assert coordinator.resting == 0


def test_removing_the_setting_of_a_loaded_group_archives_what_waits() -> None:
    coordinator = ShareCoordinator(BrokerShareLimits())
    coordinator.store_settings("g", LETTERS)
    coordinator.rest(KEY, STORED.encode())
    assert coordinator.share(KEY) is not None
    coordinator.store_settings("g", {})
    share = coordinator.share(KEY)
    assert share is not None
    assert share.partition.start_offset == 2
    assert ARCHIVED not in {run.state for run in share.partition.runs}
