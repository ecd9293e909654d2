"""Commits of two flows of a partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.consumer.commits.caught_up_offsets import CaughtUpOffsets
from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata
from kafka_share_proxy.offsets.commit_text import parse_commit_text
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan

MAIN, CHILD = Flow.MAIN, Flow.CHILD


def after_crash() -> CaughtUpOffsets:
    """Return the offsets after a crash: 70 is committed, the log ends at 120."""
    return CaughtUpOffsets(70, OffsetRanges(), (OffsetSpan(70, 120),), 120)


def test_the_lower_offset_is_committed_and_the_main_flow_is_above_it() -> None:
    offsets = after_crash()
    assert offsets.commit(133, MAIN) == OffsetAndMetadata(70, "ic/1;120-132;pr=70-120")
    assert offsets.commit(97, CHILD) == OffsetAndMetadata(97, "ic/1;120-132;pr=97-120")
    assert not offsets.is_finished
    assert offsets.commit(120, CHILD) == OffsetAndMetadata(133)
    assert offsets.is_finished


def test_the_end_of_the_range_is_the_childs_only_when_it_has_come_there() -> None:
    offsets = after_crash()
    assert [offsets.flow_of(offset, 95) for offset in (71, 119, 120, 121)] == [CHILD, CHILD, MAIN, MAIN]
    assert offsets.flow_of(120, 120) is CHILD


def test_a_commit_below_the_committed_offset_is_a_rewind() -> None:
    offsets = after_crash()
    offsets.commit(133, MAIN)
    assert offsets.commit(60, CHILD) == OffsetAndMetadata(60)


def test_each_range_is_done_when_the_child_has_passed_it() -> None:
    offsets = CaughtUpOffsets(95, OffsetRanges([(120, 140)]), (OffsetSpan(95, 120), OffsetSpan(140, 190)), 190)
    assert offsets.commit(120, CHILD) == OffsetAndMetadata(140, "ic/1;;pr=140-190")
    assert offsets.commit(195, MAIN) == OffsetAndMetadata(140, "ic/1;190-194;pr=140-190")
    assert offsets.commit(150, CHILD) == OffsetAndMetadata(150, "ic/1;190-194;pr=150-190")


def test_offsets_after_the_new_position_of_the_main_flow_are_not_done() -> None:
    offsets = CaughtUpOffsets(95, OffsetRanges([(120, 140)]), (OffsetSpan(95, 120), OffsetSpan(140, 190)), 190)
    offsets.commit(200, MAIN)
    offsets.cut(130)
    assert offsets.child_ranges == (OffsetSpan(95, 120),)
    assert offsets.to_commit() == OffsetAndMetadata(95, "ic/1;120-129;pr=95-120")
    offsets.cut(90)
    assert (offsets.child_ranges, offsets.to_commit()) == ((), OffsetAndMetadata(90))


def test_text_of_the_user_is_kept_and_what_is_too_long_is_left_out() -> None:
    offsets = after_crash()
    offsets.user_text = "mine"
    assert offsets.commit(121, MAIN).metadata == "ic/1;120-120;pr=70-120;u=mine"
    behind = tuple(OffsetSpan(n * 10, n * 10 + 5) for n in range(100, 1000))
    done = OffsetRanges([(n * 10 + 5, n * 10 + 10) for n in range(100, 999)])
    many = CaughtUpOffsets(1000, done, behind, 10_000).to_commit()
    assert len(many.metadata) <= 4096
    assert ";pr=" not in many.metadata


@given(st.data())
def test_the_commits_of_both_flows_contain_exactly_the_done_offsets(data: st.DataObject) -> None:
    """Against sets of offsets: any crashes, any progress of both flows between them."""
    done: set[int] = set()
    offset, text, end = 0, "", 0
    for _ in range(data.draw(st.integers(1, 5))):
        end += data.draw(st.integers(0, 20))
        stored = parse_commit_text(text).ranges if text else OffsetRanges()
        behind = tuple(stored.gaps(stored.absorbing(offset)[0], end))
        assert {n for each in behind for n in range(*each)} == set(range(end)) - done
        if not behind:
            continue
        offsets = CaughtUpOffsets(offset, stored, behind, end)
        main, child = end + data.draw(st.integers(0, 9)), data.draw(st.integers(behind[0].start, end))
        offsets.commit(main, MAIN)
        committed = offsets.commit(child, CHILD)
        done |= set(range(end, main)) | {n for each in behind for n in range(*each) if n < child}
        offset, text, end = committed.offset, committed.metadata, main
        reported = set(range(offset)) | {
            n for each in (parse_commit_text(text).ranges if text else ()) for n in range(*each)
        }
        assert reported == done
