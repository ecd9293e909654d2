"""The ledger of one partition: the gap rule, records done in any order, and what is committed and read back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_share_proxy.offsets.commit_text import UnknownCommitTextVersion
from kafka_share_proxy.offsets.ledger import BROKER_METADATA_MAX, OffsetLedger
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan


def delivered(ledger: OffsetLedger, *offsets: int) -> list[int]:
    """Return those that are to be processed."""
    return [offset for offset in offsets if ledger.delivered(offset)]


def finished(ledger: OffsetLedger, *offsets: int) -> None:
    for offset in offsets:
        ledger.done(offset)


def state(ledger: OffsetLedger) -> tuple[int | None, str]:
    return ledger.offset, ledger.text()


def test_records_that_are_done_in_any_order_make_ranges_above_the_committed_offset() -> None:
    ledger = OffsetLedger(41)
    assert delivered(ledger, 41, 42, 43, 44, 45, 46) == [41, 42, 43, 44, 45, 46]
    finished(ledger, 45, 43)
    assert state(ledger) == (41, "ic/1;43-43,45-45")
    finished(ledger, 44)
    assert (state(ledger), ledger.outstanding) == ((41, "ic/1;43-45"), 3)
    finished(ledger, 42, 41)
    assert state(ledger) == (46, "ic/1;")
    assert ledger.snapshot() == (46, ())


def test_a004_10_a_marker_is_done_with_the_record_after_it() -> None:
    """43, 44 and 46 are delivered; 45 is a transaction marker."""
    ledger = OffsetLedger(43)
    delivered(ledger, 43, 44, 46)
    finished(ledger, 46)
    assert state(ledger) == (43, "ic/1;45-46")
    finished(ledger, 43, 44)
    assert state(ledger) == (47, "ic/1;")


def test_a_trailing_stretch_that_is_never_delivered_is_done_immediately() -> None:
    ledger = OffsetLedger(40)
    delivered(ledger, 40, 41)
    ledger.position_moved(45)
    assert state(ledger) == (40, "ic/1;42-44")
    finished(ledger, 41, 40)
    assert state(ledger) == (45, "ic/1;")
    ledger.position_moved(50)
    assert (state(ledger), ledger.position) == ((50, "ic/1;"), 50)
    ledger.position_moved(50)
    assert state(ledger) == (50, "ic/1;")


def test_a004_11_after_a_restart_only_what_is_not_done_is_to_be_processed() -> None:
    ledger = OffsetLedger.from_committed(41, "ic/1;43-45,48-49")
    assert delivered(ledger, *range(41, 51)) == [41, 42, 46, 47, 50]
    assert [offset for offset in range(38, 52) if not ledger.is_done(offset)] == [41, 42, 46, 47, 50, 51]
    finished(ledger, 50, 47, 46, 42, 41)
    assert state(ledger) == (51, "ic/1;")


def test_done_ranges_are_skipped_after_a_restart() -> None:
    ledger = OffsetLedger.from_committed(41, "ic/1;43-45,48-49")
    assert ledger.next_to_fetch == 41
    delivered(ledger, 41, 42)
    assert (ledger.position, ledger.next_to_fetch) == (43, 46)
    assert delivered(ledger, 46, 47) == [46, 47]
    assert ledger.next_to_fetch == 50
    finished(ledger, 41, 42, 46, 47)
    assert state(ledger) == (50, "ic/1;")


def test_a_gap_before_a_record_that_was_done_before_belongs_to_it() -> None:
    """Compaction took 42 and 44 away after the restart."""
    ledger = OffsetLedger.from_committed(41, "ic/1;45-46")
    assert delivered(ledger, 41, 43, 46, 47) == [41, 43, 47]
    finished(ledger, 43)
    assert state(ledger) == (41, "ic/1;42-46")
    finished(ledger, 41)
    assert state(ledger) == (47, "ic/1;")


@pytest.mark.parametrize("offset", [None, -1, -1001])
def test_without_a_committed_offset_the_ledger_begins_at_the_first_record(offset: int | None) -> None:
    ledger = OffsetLedger.from_committed(offset, None)
    assert (state(ledger), ledger.position, ledger.next_to_fetch) == ((None, "ic/1;"), None, None)
    delivered(ledger, 7, 9)
    finished(ledger, 9)
    assert state(ledger) == (7, "ic/1;8-9")
    later = OffsetLedger()
    later.position_moved(5)
    delivered(later, 7)
    assert state(later) == (5, "ic/1;")


def test_records_lost_to_retention_do_not_hold_the_committed_offset_back() -> None:
    """The log begins at 100 by now, and the consumer was reset to there."""
    ledger = OffsetLedger.from_committed(41, "ic/1;43-45,98-103")
    assert delivered(ledger, *range(100, 106)) == [104, 105]
    assert state(ledger) == (104, "ic/1;")


def test_other_content_of_the_text_is_kept() -> None:
    ledger = OffsetLedger.from_committed(41, "ic/1;43-45;pr=41-43;u=batch 7")
    assert (ledger.catch_up, ledger.user_text) == (((41, 43),), "batch 7")
    assert ledger.text() == "ic/1;43-45;pr=41-43;u=batch 7"
    ledger.catch_up, ledger.user_text = (), None
    assert ledger.text() == "ic/1;43-45"
    assert OffsetLedger.from_committed(41, "batch 7").text() == "ic/1;;u=batch 7"
    assert OffsetLedger.from_committed(41, "").text() == "ic/1;"
    with pytest.raises(UnknownCommitTextVersion):
        OffsetLedger.from_committed(41, "ic/2;43-45")


def test_misuse_names_the_offset_and_changes_nothing() -> None:
    ledger = OffsetLedger(41, [(43, 46)], outstanding_max=2)
    delivered(ledger, 41, 42)
    finished(ledger, 42)
    before = ledger.snapshot(), ledger.position, ledger.outstanding
    for misuse, says in (
        (lambda: ledger.delivered(42), "offset 42 was delivered after the position reached 43"),
        (lambda: ledger.delivered(-1), "offset -1 was delivered after"),
        (lambda: ledger.position_moved(42), "offset 42 is before the position 43"),
        (lambda: ledger.done(42), "offset 42 is done already"),
        (lambda: ledger.done(44), "offset 44 is done already"),
        (lambda: ledger.done(46), "offset 46 was not delivered"),
        (lambda: OffsetLedger(-1), "offset -1 is negative"),
        (lambda: OffsetLedger().delivered(-1), "offset -1"),
        (lambda: OffsetLedger().position_moved(-1), "offset -1 is before the position 0"),
        (lambda: OffsetLedger(1, [(4, 2)]), r"\[4, 2\) is no range"),
    ):
        with pytest.raises(ValueError, match=says):
            misuse()
    assert (ledger.snapshot(), ledger.position, ledger.outstanding) == before


def test_outstanding_records_are_bounded() -> None:
    ledger = OffsetLedger(0, [(1, 2)], outstanding_max=2)
    assert delivered(ledger, 0, 1, 2) == [0, 2]
    assert ledger.full
    with pytest.raises(ValueError, match="offset 3 is one too many: 2 records are delivered and not done; pause"):
        ledger.delivered(3)
    ledger.done(2)
    assert not ledger.full
    assert delivered(ledger, 3) == [3]


def test_a_text_that_must_be_short_keeps_the_widest_ranges() -> None:
    ledger = OffsetLedger.from_committed(5, "ic/1;10-10,20-29,40-45,50-50;u=mine")
    whole = "ic/1;10-10,20-29,40-45,50-50;u=mine"
    assert ledger.text(len(whole)) == ledger.text() == whole
    assert ledger.text(len(whole) - 1) == "ic/1;10-10,20-29,40-45;u=mine"
    assert ledger.text(len("ic/1;20-29;u=mine")) == "ic/1;20-29;u=mine"
    assert ledger.text(len("ic/1;;u=mine")) == "ic/1;;u=mine"
    with pytest.raises(ValueError, match="1 characters more than the 11"):
        ledger.text(11)


# Two flows: the newest records immediately, and the backlog (KIP-333)


def test_a002_1_after_a_crash_the_main_flow_continues_at_the_end_and_another_has_the_rest() -> None:
    """Committed is 70, the log ends at 120; the mark waits for the second flow."""
    ledger = OffsetLedger(70)
    assert ledger.jump(120) == ((70, 120),)
    rest = ledger.flow(OffsetSpan(70, 120))
    assert (ledger.next_to_fetch, rest.next_to_fetch) == (120, 70)
    assert delivered(ledger, 120, 121) == [120, 121]
    assert [offset for offset in range(70, 120) if rest.delivered(offset)] == [*range(70, 120)]
    finished(ledger, 120, 121, *range(70, 95))
    assert (state(ledger), rest.finished, rest.next_to_fetch) == ((95, "ic/1;120-121"), True, None)
    finished(ledger, *range(95, 120))
    assert state(ledger) == (122, "ic/1;")


def test_a002_4_after_the_second_crash_what_both_flows_committed_is_not_delivered_again() -> None:
    """The second flow had committed 90, the main one 128; the log ends at 150 by now."""
    ledger = OffsetLedger.from_committed(90, "ic/1;120-127")
    left = ledger.jump(150)
    assert left == ((90, 120), (128, 150))
    rest = [ledger.flow(span) for span in left]
    assert [flow.next_to_fetch for flow in rest] == [90, 128]
    assert delivered(ledger, 150) == [150]
    assert [offset for offset in range(90, 120) if rest[0].delivered(offset)] == [*range(90, 120)]
    finished(ledger, *range(90, 120), 150)
    assert state(ledger) == (128, "ic/1;150-150")


def test_a002_5_done_belongs_to_the_flow_that_has_the_offset() -> None:
    ledger = OffsetLedger.from_committed(96, "ic/1;120-130")
    (left,) = ledger.jump(131)[:1]
    rest = ledger.flow(left)
    rest.delivered(96)
    delivered(ledger, 131)
    finished(ledger, 96)
    assert state(ledger) == (97, "ic/1;120-130")
    finished(ledger, 131)
    assert state(ledger) == (97, "ic/1;120-131")


def test_a_flow_ends_when_its_position_does() -> None:
    """The last offsets are a marker and what compaction took away: they are never delivered."""
    ledger = OffsetLedger(70)
    rest = ledger.flow(ledger.jump(80)[0])
    assert rest.delivered(76)
    assert not rest.finished
    rest.position_moved(95)
    assert (rest.finished, rest.position, ledger.position) == (True, 80, 80)
    finished(ledger, 76)
    assert state(ledger) == (80, "ic/1;")


def test_a_flow_refuses_offsets_of_the_other() -> None:
    ledger = OffsetLedger(70)
    with pytest.raises(ValueError, match="70-79 is not after the position 70: jump first"):
        ledger.flow(OffsetSpan(70, 80))
    first, second = (ledger.flow(span) for span in ledger.jump(80) * 2)
    first.delivered(70)
    for misuse, says in (
        (lambda: first.delivered(80), "offset 80 is after the end of this flow, 80: the main flow has it"),
        (lambda: second.delivered(70), "offset 70 was delivered already, by another flow"),
        (lambda: ledger.jump(79), "offset 79 cannot be jumped to from position 80"),
        (lambda: OffsetLedger().jump(5), "offset 5 cannot be jumped to from position None"),
    ):
        with pytest.raises(ValueError, match=says):
            misuse()
    assert (state(ledger), ledger.outstanding) == ((70, "ic/1;"), 1)


# Any order


OFFSETS = 60


@settings(deadline=None)
@given(st.data())
def test_any_order_of_work_with_restarts_processes_each_record_once(data: st.DataObject) -> None:
    """Some offsets are never delivered; after a restart exactly the unfinished ones are delivered again."""
    lost = data.draw(st.sets(st.integers(0, OFFSETS - 1)))
    records = [offset for offset in range(OFFSETS) if offset not in lost]
    ledger, outstanding, processed, at = OffsetLedger(0), [], [], 0
    for _ in range(data.draw(st.integers(0, 100))):
        step = data.draw(st.sampled_from(["deliver", "deliver", "done", "done", "restart"]))
        if step == "deliver" and at < len(records):
            if ledger.delivered(records[at]):
                outstanding.append(records[at])
            at += 1
        elif step == "done" and outstanding:
            processed.append(outstanding.pop(data.draw(st.integers(0, len(outstanding) - 1))))
            ledger.done(processed[-1])
        elif step == "restart":
            ledger = OffsetLedger.from_committed(ledger.offset, ledger.text())
            outstanding, at = [], sum(offset < (ledger.offset or 0) for offset in records)
        assert ledger.outstanding == len(outstanding)
        assert all(ledger.is_done(offset) == (offset in processed) for offset in records)
    for offset in records[at:]:
        outstanding += [offset] if ledger.delivered(offset) else []
    ledger.position_moved(OFFSETS)
    for offset in outstanding:
        ledger.done(offset)
    assert sorted(processed + outstanding) == records
    assert ledger.snapshot() == (OFFSETS, ())


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=300), st.integers(5, BROKER_METADATA_MAX))
def test_a_short_text_says_nothing_that_is_not_done(widths: list[int], characters_max: int) -> None:
    spans, at = [], 10
    for width in widths:
        spans.append((at, at + width))
        at += width + 1
    ledger = OffsetLedger(5, spans)
    text = ledger.text(characters_max)
    assert len(text) <= characters_max
    again = OffsetLedger.from_committed(5, text)
    assert set(again.snapshot().ranges) <= set(OffsetRanges(spans))
