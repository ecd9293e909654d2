"""Key ranges are those of the views, in a form that a proxy understands (pipeline/README.md rules 3, 4, 9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.pipeline.source.key_ranges import KEY_FILTER_TAG, KeyRanges, key_filter, scanned_to
from kafka_share_proxy.views.fetch.key_filter import TAG, applied_tag, read_filter
from kafka_share_proxy.views.model.slots import EvenCut
from kafka_share_proxy.wire.definitions import messages

KEYS = st.none() | st.binary(max_size=20)


@given(st.integers(1, 1000), KEYS, st.integers(0, 1 << 62))
def test_even_ranges_are_the_slots_of_a_view(count: int, key: bytes | None, offset: int) -> None:
    assert KeyRanges.even(count).range_of(key, offset) == EvenCut(count).slot_of(key, offset)


@given(st.integers(1, 50), KEYS, st.integers(0, 1 << 62))
def test_exactly_one_filter_of_all_ranges_wants_a_record(count: int, key: bytes | None, offset: int) -> None:
    ranges = KeyRanges.even(count)
    expected = []
    for low, high in ranges.bounds:
        content = key_filter(low, high)
        cut = None if content is None else read_filter(content, b"digest").cut
        expected.append(cut is None or cut.slot_of(key, offset) == 0)
    assert [number for number, is_selected in enumerate(expected) if is_selected] == [ranges.range_of(key, offset)]


def test_everything_needs_no_filter_and_keys_alone_request_nothing_else() -> None:
    assert key_filter(0, 1 << 32) is None
    content = key_filter(3, 9, (b"one", b"two"))
    assert content is not None
    cut = read_filter(content, b"digest").cut
    assert [cut.slot_of(key, 5) for key in (b"one", b"two", b"three", None)] == [0, 0, -1, -1]


def test_a_plan_is_read() -> None:
    plan = '{"version": 1, "n": 2, "ranges": [[0, 100, 0.5], [100, 4294967296, 0.5]]}'
    assert list(KeyRanges.of_plan(plan).bounds) == [(0, 100), (100, 1 << 32)]


@pytest.mark.parametrize("count", [0, 65_537])
def test_a_number_of_ranges_has_bounds(count: int) -> None:
    with pytest.raises(ValueError, match="key ranges"):
        KeyRanges.even(count)


def test_a_response_contains_the_scanned_offset() -> None:
    assert KEY_FILTER_TAG == TAG
    entry = messages.FetchResponse.PartitionData()
    assert scanned_to(entry) is None
    entry.unknown_tags = (applied_tag(77),)
    assert scanned_to(entry) == 77
