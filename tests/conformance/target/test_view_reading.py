"""Records of one slot of a view."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target import view_reading
from kafka_share_proxy.conformance.target.partition_log import PartitionLog
from kafka_share_proxy.conformance.target.view_reading import read_slot
from kafka_share_proxy.views.model.slots import STRIPE_OFFSETS, StripeCut
from kafka_share_proxy.wire.records import records

from tests.support.target_caller import batch

CUT = StripeCut(2)
LARGE = 1 << 20


def log_of(*counts: int) -> PartitionLog:
    log = PartitionLog()
    log.begin_epoch(0)
    for count in counts:
        append(log, batch(*("v" * count)))
    return log


def append(log: PartitionLog, data: bytes) -> None:
    log.append(data, records.read_header(data), 0)


def read(log: PartitionLog, slot: int, offset: int = 0, size: int = LARGE, *, committed: bool = False) -> bytes:
    upto = log.stable_offset if committed else log.end
    return read_slot(log, CUT, slot, offset, upto, size, at_least_one=True, committed=committed)


def content(data: bytes) -> list[tuple[bool, int, int, int]]:
    """Return (is control batch, base offset, last offset, number of records) of each batch."""
    batches = records.iter_batches(data)
    return [(each.is_control, each.base_offset, each.last_offset, each.records_count) for each in batches]


def test_a_batch_is_shortened_and_followed_by_a_filler() -> None:
    log = log_of(STRIPE_OFFSETS + 6)
    assert content(read(log, 0)) == [(False, 0, 63, 64), (True, 64, 69, 1)]
    assert content(read(log, 1, 3)) == [(False, 0, 69, 6)]
    assert [each.offset for each in records.decode_records(read(log, 1, 66))] == [66, 67, 68, 69]


def test_a_slot_without_records_gets_one_filler_and_nothing_at_the_end() -> None:
    log = log_of(5, 5)
    assert content(read(log, 1)) == [(True, 0, 9, 1)]
    assert content(read(log, 1, 7)) == [(True, 7, 9, 1)]
    assert read(log, 1, 10) == b""


def test_the_bytes_are_limited_but_one_batch_is_returned() -> None:
    log = log_of(5, 5)
    assert content(read(log, 0, size=1)) == [(False, 0, 4, 5)]


def test_a_read_scans_a_limited_part_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_reading, "SCANNED_BYTES_MAX", 1)
    assert content(read(log_of(5, 5), 1)) == [(True, 0, 4, 1)]


@pytest.mark.parametrize(
    ("committed", "expected"), [(True, [(True, 0, 2, 1)]), (False, [(False, 0, 1, 2), (True, 2, 2, 1)])]
)
def test_read_committed_leaves_out_aborted_records_and_markers(
    committed: bool, expected: list[tuple[bool, int, int, int]]
) -> None:
    log = log_of()
    append(log, batch("a", "b", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    log.append_marker(7, 0, commits=False, coordinator_epoch=0, leader_epoch=0, now_ms=1)
    data = read(log, 0, committed=committed)
    assert content(data) == expected
