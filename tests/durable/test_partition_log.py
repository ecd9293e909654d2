"""Log of several owners: only records written under the latest takeover record before them count."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.partition_log import ENDLESS, TAKEOVERS_KEPT, OwnerEpoch, Replay
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.records import Record, build_batch, decode_records, iter_batches


def owner_epoch_of(key):
    if not key.startswith(b"T"):
        return None
    pid, epoch = key[1:].split(b"/")
    return OwnerEpoch(int(pid), int(epoch))


def takeover(pid, epoch):
    return (pid, epoch, [Record(b"T%d/%d" % (pid, epoch), b"owner")])


def put(pid, epoch, **values):
    records = [Record(key.encode(), None if value is None else value.encode()) for key, value in values.items()]
    return (pid, epoch, records)


def replay(*batches, until=None, start=0) -> Replay:
    offset, data = start, b""
    for pid, epoch, records in batches:
        data += build_batch(offset, records, producer_id=pid, producer_epoch=epoch, base_sequence=0)
        offset += len(records)
    replayed = Replay(owner_epoch_of, offset - 1 if until is None else until)
    for batch in iter_batches(data):
        replayed.read(batch, lambda batch=batch: decode_records(data[batch.position : batch.end]))
    return replayed


def state(replayed):
    return {key.decode(): value.decode() for key, value in replayed.values.items()}


def test_last_value_counts_and_deletions_delete():
    replayed = replay(takeover(7, 0), put(7, 0, a="1", b="1"), put(7, 0, a="2", b=None))
    assert state(replayed) == {"a": "2"}
    assert replayed.done


def test_equal_consecutive_values_are_in_memory_once():
    """A commit of 10,000 ranges stores 10,000 records with one value."""
    replayed = replay(takeover(7, 0), put(7, 0, a="same", b="same", c="other", d="other"))
    assert state(replayed) == {"a": "same", "b": "same", "c": "other", "d": "other"}
    assert replayed.values[b"a"] is replayed.values[b"b"]
    assert replayed.values[b"c"] is replayed.values[b"d"]


def test_next_owner_continues():
    replayed = replay(takeover(7, 0), put(7, 0, a="1", b="1"), takeover(7, 1), put(7, 1, a="2"))
    assert state(replayed) == {"a": "2", "b": "1"}
    assert replayed.owner_epoch == OwnerEpoch(7, 1)
    assert replayed.ignored == 0


def test_records_of_a_late_owner_are_ignored():
    """The broker forgot the fence and took it (durable/README.md rule 15)."""
    replayed = replay(takeover(7, 0), put(7, 0, a="1"), takeover(7, 1), put(7, 0, a="late"), put(7, 1, b="1"))
    assert state(replayed) == {"a": "1", "b": "1"}
    assert replayed.ignored == 1


def test_late_takeover_record_does_not_restore_an_earlier_owner():
    replayed = replay(takeover(7, 1), put(7, 1, a="1"), takeover(7, 0), put(7, 0, a="late"))
    assert state(replayed) == {"a": "1"}
    assert replayed.ignored == 2


def test_takeover_with_a_new_producer_id_begins_an_owner_epoch():
    """After the transactional id expired the epoch starts at 0 again."""
    replayed = replay(takeover(7, 5), put(7, 5, a="1"), takeover(8, 0), put(8, 0, b="1"), put(7, 5, a="late"))
    assert state(replayed) == {"a": "1", "b": "1"}


def test_records_before_the_first_takeover_are_ignored():
    replayed = replay(put(7, 0, a="1"), (-1, -1, [Record(b"a", b"foreign")]), takeover(7, 0))
    assert state(replayed) == {}


def test_records_of_other_producers_are_ignored():
    """A foreign writer with the right to write wrote a copy of a takeover record."""
    replayed = replay(takeover(7, 0), (-1, -1, [Record(b"T9/0", b"owner")]), put(7, 0, a="1"), put(9, 0, a="x"))
    assert state(replayed) == {"a": "1"}


def test_batches_after_the_own_takeover_record_are_ignored():
    replayed = replay(takeover(7, 0), put(7, 0, a="1"), takeover(7, 1), put(7, 1, a="2"), until=2)
    assert state(replayed) == {"a": "1"}
    assert replayed.done


def test_gaps_of_a_compacted_log_are_skipped():
    """Compaction leaves offsets out, and empty batches of the last producer."""
    replayed = Replay(owner_epoch_of, 100)
    batches = [
        build_batch(3, [Record(b"T7/0", b"o", offset=3)], producer_id=7, producer_epoch=0, base_sequence=0),
        build_batch(50, [Record(b"a", b"1", offset=57)], producer_id=7, producer_epoch=0, base_sequence=9),
        build_batch(90, [], producer_id=7, producer_epoch=0, base_sequence=50, last_offset=100),
    ]
    for data in batches:
        (batch,) = iter_batches(data)
        replayed.read(batch, lambda data=data: decode_records(data))
    assert state(replayed) == {"a": "1"}
    assert replayed.next_offset == 101
    assert replayed.done


def test_takeover_records_with_dependent_batches_are_not_deleted():
    """A value, or a deletion that may have to hide an older value, keeps the takeover record of its owner epoch."""
    batches = [takeover(7, epoch) for epoch in range(TAKEOVERS_KEPT + 10)]
    batches.insert(6, put(7, 5, a="1"))
    batches.insert(4, put(7, 3, lost=None))
    replayed = replay(*batches)
    superfluous = replayed.superfluous()
    assert len(superfluous) == TAKEOVERS_KEPT + 10 - 3
    assert not {b"T7/3", b"T7/5", b"T7/%d" % (TAKEOVERS_KEPT + 9)} & set(superfluous)
    last = TAKEOVERS_KEPT + 9
    after = replay(*batches, (7, last, [Record(key, None) for key in superfluous]))
    assert state(after) == {"a": "1"}
    assert after.superfluous() == []


def test_next_read_begins_with_the_unreadable_batch_again():
    """The next reader of that partition reads it once more."""
    replayed = Replay(refuse, 100)
    batch = next(iter_batches(build_batch(0, [Record(b"new", b"x")], producer_id=7, producer_epoch=1, base_sequence=0)))
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            replayed.read(batch, lambda: [Record(b"new", b"x")])
        assert replayed.next_offset == 0


def refuse(key):
    raise RemoteProtocolError(f"{key!r} is not known here")


def test_follower_receives_the_records_that_count_and_no_values_are_kept():
    """Values are in the order of the log, deletions included, takeovers and late owners omitted."""
    followed_records = []
    replayed = Replay(owner_epoch_of, ENDLESS, sink=followed_records.append)
    for epoch, records in (
        (1, [Record(b"T7/1", b"")]),
        (1, [Record(b"a", b"1"), Record(b"b", b"1")]),
        (2, [Record(b"T7/2", b"")]),
        (1, [Record(b"a", b"late")]),
        (2, [Record(b"a", None)]),
    ):
        data = build_batch(replayed.next_offset, records, producer_id=7, producer_epoch=epoch, base_sequence=0)
        replayed.read(next(iter_batches(data)), lambda records=records: records)
    assert [(record.key, record.value) for record in followed_records] == [(b"a", b"1"), (b"b", b"1"), (b"a", None)]
    assert (replayed.values, replayed.ignored, replayed.next_offset, replayed.done) == ({}, 1, 6, False)


def transactional(pid, epoch, **values):
    return (*put(pid, epoch, **values), True)


def marker(pid, epoch, *, committed):
    return (pid, epoch, [Record(b"\0\0" + int(committed).to_bytes(2, "big"), bytes(6))], True, True)


def replay_with_markers(*batches) -> Replay:
    """As `replay`, of batches that may be transactional or markers."""
    offset, data = 0, b""
    for pid, epoch, records, *attributes in batches:
        is_transactional, is_control = (*attributes, False, False)[:2]
        data += build_batch(
            offset,
            records,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=is_transactional,
            is_control=is_control,
        )
        offset += len(records)
    replayed = Replay(owner_epoch_of, offset - 1)
    for batch in iter_batches(data):
        replayed.read(batch, lambda batch=batch: decode_records(data[batch.position : batch.end]))
    return replayed


def test_transaction_counts_from_its_commit_marker_on():
    """durable/README.md rule 45."""
    batches = (takeover(7, 0), put(7, 0, a="1"), transactional(7, 0, a="2"))
    assert state(replay_with_markers(*batches)) == {"a": "1"}
    assert state(replay_with_markers(*batches, marker(7, 0, committed=True))) == {"a": "2"}
    after = replay_with_markers(*batches, marker(7, 0, committed=True), put(7, 0, a="3"))
    assert state(after) == {"a": "3"}
    assert after.ignored == 0


def test_aborted_transaction_does_not_count():
    """Its coordinator raised the epoch of the marker if it fenced the producer."""
    batches = (takeover(7, 0), put(7, 0, a="1"), transactional(7, 0, a="2", b="2"))
    for epoch in (0, 1):
        replayed = replay_with_markers(*batches, marker(7, epoch, committed=False), takeover(7, 2), put(7, 2, c="3"))
        assert state(replayed) == {"a": "1", "c": "3"}
        assert replayed.ignored == 0


def test_marker_ends_only_the_transaction_of_its_producer():
    replayed = replay_with_markers(
        takeover(7, 0), transactional(7, 0, a="1"), marker(8, 0, committed=True), marker(7, 0, committed=False)
    )
    assert state(replayed) == {}


def test_transaction_of_an_earlier_owner_is_ignored_when_it_is_committed_late():
    replayed = replay_with_markers(
        takeover(7, 0), transactional(7, 0, a="1"), takeover(8, 0), marker(7, 0, committed=True), put(8, 0, b="2")
    )
    assert state(replayed) == {"b": "2"}
    assert replayed.ignored == 1


def test_deletion_in_a_transaction_deletes():
    replayed = replay_with_markers(
        takeover(7, 0), put(7, 0, a="1"), transactional(7, 0, a=None), marker(7, 0, committed=True)
    )
    assert state(replayed) == {}
