"""Records of a batch, built on access: the same as if all had been built together."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.record_positions import RecordPositions
from kafka_share_proxy.wire.records.record_views import BUILT_AT_ONCE, LazyRecords
from kafka_share_proxy.wire.records.records import LOG_APPEND_TIME, Record

from tests.wire.any_records import batches_of_records, some_batch


def lazily(batch: bytes) -> LazyRecords:
    header = records.read_header(batch)
    return LazyRecords(*records.find_records(batch, header), header.timestamp_type)


def at(*offsets: int) -> LazyRecords:
    """Records at these offsets."""
    return lazily(records.build_batch(offsets[0], [Record(b"%d" % offset, offset=offset) for offset in offsets]))


def offsets(lazy: LazyRecords) -> list[int]:
    return [record.offset for record in lazy]


@pytest.mark.parametrize("codec", range(5))
def test_lazy_records_equal_decoded_records(codec: int) -> None:
    """Access is by index from either end, in a row, all together, and in slices."""
    batch = some_batch(random.Random(5), codec)
    lazy, expected = lazily(batch), records.decode_records(batch)
    assert len(lazy) == len(expected) > 5
    assert list(lazy) == lazy.built() == expected
    assert [lazy[n] for n in range(len(lazy))] == [lazy[n - len(lazy)] for n in range(len(lazy))] == expected
    assert list(lazy[2:5]) == expected[2:5]
    assert list(lazy[2:5][1:]) == expected[3:5]
    assert (lazy[2:5][0], lazy[2:5][-1]) == (expected[2], expected[4])
    assert expected[3] in lazy
    for part, index in ((lazy, len(lazy)), (lazy, -len(lazy) - 1), (lazy[2:5], 3), (lazy[2:5], -4)):
        with pytest.raises(IndexError):
            part[index]


def test_a_long_batch_is_iterated_in_pieces() -> None:
    count = 2 * BUILT_AT_ONCE + 3
    batch = records.build_batch(7, [Record(b"%d" % n) for n in range(count)])
    assert [(record.offset, record.key) for record in lazily(batch)] == [(7 + n, b"%d" % n) for n in range(count)]


def test_records_outlive_the_bytes_of_their_response() -> None:
    """They hold copies: one record that is kept does not keep its batch."""
    batch = bytearray(records.build_batch(0, [Record(b"key", b"value", (("h", b"x"),))]))
    (record,) = lazily(bytes(batch))
    (other,) = lazy = lazily(memoryview(batch))
    batch[61:] = bytes(len(batch) - 61)
    assert other == record == Record(b"key", b"value", (("h", b"x"),), -1, 0)
    assert lazy.positions.key_sizes[0] == 3


def test_every_record_has_its_timestamp_type() -> None:
    batch = bytearray(records.build_batch(0, [Record(timestamp=5), Record(timestamp=9)]))
    assert [(record.timestamp, record.timestamp_type) for record in lazily(bytes(batch))] == [(5, 0), (9, 0)]
    batch[22] |= records.TIMESTAMP_TYPE_MASK
    lazy = lazily(records.seal(bytes(batch)))
    assert [(record.timestamp, record.timestamp_type) for record in lazy] == [(9, LOG_APPEND_TIME)] * 2


def test_a_control_batch_has_one_record_with_the_type_in_its_key() -> None:
    for kind in (0, 1):
        key = bytes((0, 0, 0, kind))
        batch = records.build_batch(0, [Record(key, bytes(6))], producer_id=1, is_transactional=True, is_control=True)
        assert [record.key for record in lazily(batch)] == [key]


def test_from_offset_begins_at_the_offset_or_the_next_one() -> None:
    """At the first later one if compaction removed it."""
    lazy = at(10, 12, 13, 20)
    assert [offsets(lazy.from_offset(n)) for n in (0, 10)] == [[10, 12, 13, 20]] * 2
    assert [offsets(lazy.from_offset(n)) for n in (11, 12, 14, 20, 21)] == [[12, 13, 20], [12, 13, 20], [20], [20], []]
    assert offsets(lazy[1:3].from_offset(0)) == [12, 13]
    assert offsets(lazy[1:3].from_offset(13)) == [13]


def test_ranges_of_offsets_are_left_out() -> None:
    lazy = at(10, 12, 13, 20, 21)
    assert [offsets(run) for run in lazy.outside([(12, 12), (20, 20)])] == [[10], [13], [21]]
    assert [offsets(run) for run in lazy.outside([])] == [[10, 12, 13, 20, 21]]
    assert [offsets(run) for run in lazy.outside([(0, 9), (11, 11), (14, 19), (22, 99)])] == [[10, 12, 13, 20, 21]]
    assert lazy.outside([(0, 99)]) == []
    assert [offsets(run) for run in lazy.outside([(10, 13), (11, 12), (13, 20)])] == [[21]]


@settings(deadline=None)
@given(base_and_records=batches_of_records(), draw=st.data())
def test_left_out_records_are_those_of_the_ranges(
    base_and_records: tuple[int, list[Record], int], draw: st.DataObject
) -> None:
    base, expected, last = base_and_records
    lazy = lazily(records.build_batch(base, expected, last_offset=last))
    places = st.tuples(st.integers(base - 3, last + 3), st.integers(0, 300))
    ranges = sorted((first, first + size) for first, size in draw.draw(st.lists(places, max_size=4)))
    runs = lazy.outside(ranges)
    remaining_records = [r for r in expected if not any(first <= r.offset <= end for first, end in ranges)]
    assert [record for run in runs for record in run] == remaining_records
    assert all(len(run) for run in runs)
    start = draw.draw(st.integers(base - 3, last + 3))
    assert list(lazy.from_offset(start)) == [record for record in expected if record.offset >= start]


def test_lazy_records_without_positions_are_empty() -> None:
    nothing = LazyRecords()
    assert (len(nothing), list(nothing), nothing.built(), nothing.outside([(0, 5)])) == (0, [], [], [])
    assert len(nothing.from_offset(5)) == 0
    assert isinstance(nothing.positions, RecordPositions)
