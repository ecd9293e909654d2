"""Records in the topic beside the ranges in the broker's metadata: planned, stored, failed."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits.model.topic_records import TextPlan, TopicRecords, fitting
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan, RangeChange

ROOM = 100


def ranges(*spans: tuple[int, int]) -> OffsetRanges:
    return OffsetRanges(spans)


def planned(records: TopicRecords, before: OffsetRanges, change: RangeChange, room: int = ROOM) -> TextPlan:
    after = before.copy()
    after.apply(change)
    return records.plan(before, after, change, room)


def change(before: OffsetRanges, *spans: tuple[int, int]) -> RangeChange:
    return before.merging(spans)


def test_ranges_with_room_are_planned_into_the_text() -> None:
    before = ranges((10, 12))
    assert planned(TopicRecords(), before, change(before, (20, 21)), ROOM) == TextPlan("10-11,20-20")
    assert str(before) == "10-11", "a plan changes nothing"


@pytest.mark.parametrize("room", [-5, 0, 3])
def test_commit_without_any_room_is_stored_afterwards(room: int) -> None:
    before = ranges((10, 12))
    assert planned(TopicRecords(), before, change(before, (20, 30)), room) == TextPlan(spills=True, stores=True)
    assert planned(TopicRecords(), ranges(), change(ranges(), (20, 30)), room) == TextPlan(stores=True)


def test_what_is_stored_is_left_out_unless_it_becomes_longer() -> None:
    records, before = TopicRecords(), ranges((10, 12), (30, 32))
    assert records.store_all(before, set(), is_foreign=False) == RangeChange(((10, 12), (30, 32)), ())
    later = change(before, (40, 41), (50, 51), (60, 61))
    plan = planned(records, before, later, 17)
    assert plan == TextPlan("40-40,50-50,60-60")
    before.apply(later)
    records.follow(later)
    longer = change(before, (12, 13))
    assert planned(records, before, longer, 23) == TextPlan("10-12,40-40,50-50,60-60")


def test_topic_is_cleared_but_for_one_record_with_the_topic_id() -> None:
    records, before = TopicRecords(), ranges((10, 12), (30, 32))
    records.store_all(before, set(), is_foreign=False)
    plan = planned(records, before, RangeChange(), ROOM)
    assert plan == TextPlan("10-11,30-31", tidies=True)
    after = records.records_to_append(plan, before, 5, set())
    assert (after.change, after.binding, after.is_awaited) == (RangeChange((), ((10, 12),)), (30, 32), False)
    assert (records.exist, records.is_bound, len(records.stored)) == (True, True, 0)


def test_first_text_stores_the_topic_id_and_later_ones_do_not() -> None:
    records, held = TopicRecords(), ranges((10, 12))
    after = records.records_to_append(TextPlan("10-11"), held, 5, set())
    assert (after.binding, after.is_awaited) == ((10, 12), True)
    later = records.records_to_append(TextPlan("10-11"), held, 5, set())
    assert (bool(later.change), later.binding, later.is_awaited) == (False, None, False)


def test_failed_append_of_the_topic_id_is_repeated() -> None:
    records, held = TopicRecords(), ranges((10, 12))
    records.records_to_append(TextPlan("10-11"), held, 5, set())
    records.revert_failed(RangeChange(), OffsetSpan(10, 12), held)
    assert records.records_to_append(TextPlan("10-11"), held, 5, set()).is_awaited


def test_failed_append_of_ranges_leaves_them_to_the_text() -> None:
    records, held = TopicRecords(), ranges((10, 12), (30, 32))
    stored = records.store_all(held, set(), is_foreign=False)
    records.revert_failed(stored, None, held)
    assert planned(records, held, RangeChange(), ROOM) == TextPlan("10-11,30-31")


def test_record_of_a_deleted_topic_stays_until_its_text_is_overwritten() -> None:
    records, held = TopicRecords(), ranges((10, 12), (30, 32))
    records.store_all(held, set(), is_foreign=False)
    assert records.drop_for_other_topic() == RangeChange((), ((10, 12),))
    assert (records.binding, records.is_bound) == ((30, 32), False)
    assert records.store_all(ranges(), set(), is_foreign=True) == RangeChange()
    after = records.records_to_append(TextPlan("5-5"), ranges((5, 6)), 0, set())
    assert (after.change.removed, after.binding) == (((30, 32),), (5, 6))


def test_all_records_are_deleted_with_those_that_may_be_there() -> None:
    records, held = TopicRecords(), ranges((10, 12))
    records.store_all(held, set(), is_foreign=False)
    unsure = {OffsetSpan(1, 2)}
    assert records.delete_all(unsure) == RangeChange((), ((1, 2), (10, 12)))
    assert (records.exist, unsure) == (False, set())


def test_records_below_the_committed_offset_go_and_the_last_is_written_with_it() -> None:
    records, held = TopicRecords(), ranges((10, 12), (30, 32), (50, 52))
    records.store_all(held, set(), is_foreign=False)
    held.drop_below(12)
    after = records.records_to_append(TextPlan(), held, 12, set())
    assert after.change == RangeChange(((50, 52),), ((10, 12),))
    assert not after.is_awaited


def test_text_and_topic_together_are_compared_with_the_ranges() -> None:
    records, held = TopicRecords(), ranges((10, 12), (30, 32))
    records.store_all(ranges((10, 12)), set(), is_foreign=False)
    assert not records.lacks(held, [(30, 32)])
    assert records.lacks(held, [(30, 31)])


def test_text_of_many_ranges_is_not_written_to_see_that_it_is_too_long() -> None:
    many = OffsetRanges((2 * n, 2 * n + 1) for n in range(1000))
    assert fitting(many, 3998) is None
    assert fitting(ranges(), -1) == ""
    assert fitting(ranges((10, 12)), 5) == "10-11"
    assert fitting(ranges((10, 12)), 4) is None
