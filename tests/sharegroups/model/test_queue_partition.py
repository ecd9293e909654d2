"""Conversion of share partitions between groups with and without queue settings, and their snapshots."""

from __future__ import annotations

from kafka_share_proxy.sharegroups.model.offset_runs import AVAILABLE, BLOCKED, EXHAUSTED, REJECTED
from kafka_share_proxy.sharegroups.model.partition import SharePartition, Transition
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition, class_for, partition_of
from kafka_share_proxy.sharegroups.model.queue_settings import effective
from kafka_share_proxy.sharegroups.model.redelivery import DelayedRuns
from kafka_share_proxy.sharegroups.model.snapshot import ShareSnapshot

from tests.sharegroups.model.play import ACCEPT, Play

QUEUE = effective({"share.ordering": "key"})


def test_a_group_without_queue_settings_has_plain_share_partitions() -> None:
    partition = SharePartition(5)
    assert class_for(None) is SharePartition
    assert partition_of(partition, None, DelayedRuns()) is partition


def test_locks_and_pending_changes_survive_a_conversion_in_both_directions() -> None:
    play = Play((0, 9), (10, 19))
    play.poll()
    changed = play.decide((0, 4, ACCEPT))
    before = play.partition
    queue = play.partition = partition_of(before, QUEUE, DelayedRuns())
    assert isinstance(queue, QueuePartition)
    assert [lock.first for lock in queue.locks()] == [0, 5]
    assert isinstance(changed, Transition)
    queue.apply(changed)
    assert queue.start_offset == 5
    again = play.partition = partition_of(queue, None, DelayedRuns())
    assert type(again) is SharePartition
    play.ack((5, 19, ACCEPT))
    assert again.start_offset == 20


def test_records_that_wait_for_their_dead_letter_are_stored_as_archiving() -> None:
    stored = ShareSnapshot(0, 0, 0, ((0, 0, 3, 2), (1, 1, 3, 5), (2, 4, 0, 1)), rejected=frozenset({0}))
    partition = QueuePartition.from_snapshot(ShareSnapshot.decode(stored.encode()))
    assert [run.state for run in partition.runs] == [REJECTED, EXHAUSTED, AVAILABLE]
    assert partition.next_fetch_offset() == 2
    assert partition.snapshot() == stored


def test_blocked_records_are_stored_as_available() -> None:
    partition = QueuePartition.from_snapshot(ShareSnapshot(0, 0, 0, ((0, 0, 0, 2), (1, 1, 0, 1))))
    partition.runs[1].state = BLOCKED
    assert partition.snapshot().batches == ((0, 0, AVAILABLE, 2), (1, 1, AVAILABLE, 1))


def test_without_a_dead_letter_topic_archiving_records_are_archived() -> None:
    stored = ShareSnapshot(0, 0, 0, ((0, 0, 3, 2), (1, 1, 0, 1)))
    assert SharePartition.from_snapshot(stored).start_offset == 1
    queue = QueuePartition.from_snapshot(stored)
    queue.delayed = DelayedRuns()
    assert queue.start_offset == 0
    assert partition_of(queue, None, DelayedRuns()).start_offset == 1


def test_due_times_survive_encoding_and_an_older_reader_skips_them() -> None:
    stored = ShareSnapshot(0, 0, 0, ((0, 0, 0, 2),), due_s={0: 1_800_000_000})
    assert ShareSnapshot.decode(stored.encode()) == stored
    assert ShareSnapshot.decode(stored.encode()).batches == stored.batches
