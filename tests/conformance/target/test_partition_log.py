"""The log of a partition."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target import partition_log
from kafka_share_proxy.conformance.target.partition_log import EpochStart, LogFull, PartitionLog
from kafka_share_proxy.wire.records import records

from tests.support.target_caller import START_MS, batch, values


def log_of(*texts: str) -> PartitionLog:
    log = PartitionLog()
    log.begin_epoch(0)
    for text in texts:
        data = batch(*text)
        log.append(data, records.read_header(data), 0)
    return log


def test_reads_are_cut_at_the_limit_but_begin_with_a_whole_batch_if_they_must() -> None:
    log = log_of("ab", "c")
    whole = len(log.batches[0].data)
    assert values(log.read(1, 3, 10_000, at_least_one=True)) == ["a", "b", "c"]
    assert len(log.read(0, 3, whole + 10, at_least_one=False)) == whole + 10
    assert len(log.read(0, 3, 1, at_least_one=True)) == whole
    assert log.read(0, 3, 1, at_least_one=False) == b""
    assert values(log.read(0, 2, 10_000, at_least_one=True)) == ["a", "b"]


def test_deleted_and_truncated_records_are_not_returned() -> None:
    log = log_of("a", "b", "c", "d")
    log.delete_before(1)
    log.truncate(3)
    assert (log.start, log.end, values(log.whole_batches(1, 9, 1000))) == (1, 3, ["b", "c"])
    assert log.size == sum(len(each.data) for each in log.batches)


def test_epochs_know_their_end() -> None:
    log = log_of("a", "b")
    log.begin_epoch(3)
    log.begin_epoch(4)
    assert log.epochs == [EpochStart(0, 0), EpochStart(4, 2)]
    assert [log.end_of_epoch(each) for each in (0, 3, 4, 5)] == [
        EpochStart(0, 2),
        EpochStart(0, 2),
        EpochStart(4, 2),
        EpochStart(-1, -1),
    ]


def test_open_transactions_hold_the_last_stable_offset() -> None:
    log = log_of("a")
    data = batch("b", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append(data, records.read_header(data), 0)
    assert log.stable_offset == 1
    log.append_marker(7, 0, commits=False, coordinator_epoch=0, leader_epoch=0, now_ms=START_MS)
    assert (log.stable_offset, log.end) == (3, 3)
    assert [(each.producer_id, each.first_offset) for each in log.aborted_between(0, 3)] == [(7, 1)]
    assert log.aborted_between(0, 1) == []


def test_a_full_log_refuses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "LOG_BYTES_MAX", 100)
    with pytest.raises(LogFull, match="the limit is 100"):
        log_of("a", "b")


def test_timestamps_are_found_in_records() -> None:
    log = log_of("a", "b")
    assert log.find_timestamp(START_MS) == (START_MS, 0)
    assert log.find_timestamp(START_MS + 1) is None
    assert log.find_max_timestamp() == (START_MS, 0)
