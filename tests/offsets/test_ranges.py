"""Ranges of offsets: each operation against a set of offsets, and what a store of one record per range must do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kafka_share_proxy.offsets.ranges import (
    NO_CHANGE,
    OFFSET_MAX,
    OffsetRanges,
    OffsetSpan,
    RangeChange,
    ascending,
    loaded,
)

LIMIT = 60
OFFSETS = st.integers(0, LIMIT)
SPANS = st.tuples(OFFSETS, st.integers(1, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))
MANY = st.lists(SPANS, max_size=12)
NO_RANGES = [(-1, 3), (3, 3), (5, 3), (0, OFFSET_MAX + 2)]


def offsets(spans: object) -> set[int]:
    return {offset for start, end in spans for offset in range(start, end)}  # type: ignore[attr-defined]


def spans_of(numbers: set[int]) -> list[tuple[int, int]]:
    """The few ranges that hold exactly these offsets."""
    starts = sorted(n for n in numbers if n - 1 not in numbers)
    ends = sorted(n + 1 for n in numbers if n + 1 not in numbers)
    return list(zip(starts, ends, strict=True))


class Compared(RuleBasedStateMachine):
    """Ranges, a set of offsets, and the records that a compacted topic would hold after each change."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges = OffsetRanges()
        self.model: set[int] = set()
        self.records: set[tuple[int, int]] = set()

    def stored(self, put: tuple[OffsetSpan, ...], removed: tuple[OffsetSpan, ...]) -> None:
        assert list(put) == sorted(put)
        assert list(removed) == sorted(removed)
        assert not set(put) & set(removed)
        assert set(removed) <= self.records
        assert not set(put) & self.records
        self.records = (self.records - set(removed)) | set(put)

    @rule(span=SPANS)
    def merge(self, span: tuple[int, int]) -> None:
        change = self.ranges.merge(*span)
        assert len(change.put) <= 1
        self.stored(*change)
        self.model |= offsets([span])

    @rule(spans=MANY)
    def merge_all(self, spans: list[tuple[int, int]]) -> None:
        foreseen, before = self.ranges.merging(spans), list(self.ranges)
        assert list(self.ranges) == before
        change = self.ranges.merge_all(spans)
        assert change == foreseen
        self.stored(*change)
        self.model |= offsets(spans)

    @rule(committed=OFFSETS)
    def absorb(self, committed: int) -> None:
        foreseen = self.ranges.absorbing(committed)
        moved, lost = self.ranges.absorb(committed)
        assert foreseen == (moved, lost)
        self.stored((), lost)
        assert moved == next(n for n in range(committed, 9 * LIMIT) if n not in self.model)
        self.model -= set(range(moved))

    @rule(committed=OFFSETS)
    def drop_below(self, committed: int) -> None:
        lost = self.ranges.drop_below(committed)
        assert lost == tuple(span for span in sorted(self.records) if span[1] <= committed)
        self.stored((), lost)
        self.model -= offsets(lost)

    @rule()
    def clear(self) -> None:
        self.stored((), self.ranges.clear())
        self.model = set()

    @invariant()
    def the_same_offsets_in_as_few_ranges(self) -> None:
        assert list(self.ranges) == spans_of(self.model) == sorted(self.records)
        assert len(self.ranges) == len(self.records)
        assert self.ranges.offsets == len(self.model)


TestCompared = Compared.TestCase
TestCompared.settings = settings(max_examples=60, deadline=None)


@settings(deadline=None)
@given(MANY, OFFSETS, OFFSETS)
def test_queries_have_the_results_of_a_set(spans: list, start: int, end: int) -> None:
    ranges, model = OffsetRanges(spans), offsets(spans)
    requested = set(range(start, end))
    assert [n for n in range(LIMIT + 20) if n in ranges] == sorted(model)
    assert list(ranges.gaps(start, end)) == spans_of(requested - model)
    assert ranges.covers(start, end) == (requested <= model)
    held = [span for span in spans_of(model) if span[0] <= start < span[1]]
    assert ([containing] if (containing := ranges.range_at(start)) else []) == held


@settings(deadline=None)
@given(MANY, MANY)
def test_the_union_has_the_offsets_of_both(one: list, other: list) -> None:
    left, right = OffsetRanges(one), OffsetRanges(other)
    both = left.union(right)
    assert offsets(both) == offsets(one) | offsets(other)
    assert both == right.union(left) == OffsetRanges(one + other)
    assert (left, right) == (OffsetRanges(one), OffsetRanges(other))


@settings(deadline=None)
@given(MANY, SPANS)
def test_one_range_is_merged_as_several_are(stored: list, one: tuple[int, int]) -> None:
    """Most commits have one range, and make one longer."""
    ranges = OffsetRanges(stored)
    change = ranges.merging(OffsetRanges.of_one(*one))
    assert change == ranges.merging([one])
    ranges.apply(change)
    assert ranges == OffsetRanges([*stored, one])


@settings(deadline=None)
@given(MANY, MANY)
def test_a_large_change_is_applied_as_a_small_one(stored: list, more: list) -> None:
    """Both ways of applying: record by record, and the arrays built anew."""
    small = OffsetRanges(stored)
    change = small.merging(more)
    large = small.copy()
    small.apply(change)
    large._rebuild(change)
    assert small == large == OffsetRanges(stored + more)


def test_many_ranges_are_merged_together() -> None:
    stored = OffsetRanges([(n * 10, n * 10 + 3) for n in range(1000)])
    change = stored.merge_all([(n * 10 + 3, n * 10 + 5) for n in range(0, 1000, 2)])
    assert (len(change.put), len(change.removed), len(stored)) == (500, 500, 1000)
    assert stored.range_at(4) == OffsetSpan(0, 5)
    change = stored.merge_all([(0, 10_000)])
    assert (list(stored), change.put, len(change.removed)) == ([(0, 10_000)], ((0, 10_000),), 1000)


@settings(deadline=None)
@given(MANY)
def test_stored_ranges_that_overlap_are_merged_when_loaded(stored: list) -> None:
    ranges, change = loaded(stored)
    assert ranges == OffsetRanges(stored)
    assert (set(stored) - set(change.removed)) | set(change.put) == set(ranges)
    assert loaded(ranges) == (ranges, NO_CHANGE)


@pytest.mark.parametrize("span", NO_RANGES)
def test_an_invalid_range_is_refused(span: tuple[int, int]) -> None:
    ranges = OffsetRanges([(3, 5)])
    for attempt in (
        lambda: ranges.merge(*span),
        lambda: ranges.merge_all([(7, 9), span]),
        lambda: OffsetRanges([span]),
        lambda: OffsetRanges.of_one(*span),
    ):
        with pytest.raises(ValueError, match=r"is no range of offsets: (it must begin at 0|the largest is)"):
            attempt()
    assert list(ranges) == [(3, 5)]


def test_the_largest_offset_has_a_place() -> None:
    ranges = OffsetRanges([(OFFSET_MAX, OFFSET_MAX + 1)])
    assert OFFSET_MAX in ranges
    assert ranges.absorb(OFFSET_MAX) == (OFFSET_MAX + 1, ((OFFSET_MAX, OFFSET_MAX + 1),))


@pytest.mark.parametrize("large", [False, True])
def test_a_change_for_other_ranges_is_refused_and_changes_nothing(large: bool) -> None:
    ranges = OffsetRanges([(0, 3), (5, 8), (10, 12)])
    wrong = RangeChange((OffsetSpan(20, 30),), (OffsetSpan(0, 3), OffsetSpan(5, 7)))
    with pytest.raises(ValueError, match="5-6 is not one of the ranges"):
        ranges._rebuild(wrong) if large else ranges.apply(wrong)
    assert list(ranges) == [(0, 3), (5, 8), (10, 12)]


def test_ranges_are_shown_inclusive() -> None:
    ranges = OffsetRanges([(48, 50), (43, 46), (50, 51)])
    assert (str(ranges), repr(ranges)) == ("43-45,48-50", "<OffsetRanges 43-45,48-50>")
    assert repr(OffsetRanges([(n, n + 1) for n in range(0, 40, 2)])).endswith("18-18,...>")
    assert (str(OffsetSpan(50, 51)), OffsetSpan(43, 46).last) == ("50-50", 45)
    assert ascending([]) == []
