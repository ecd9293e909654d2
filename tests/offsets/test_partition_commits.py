"""The merge algebra of individual commits: the illustrated cases by name, and any case against a set of offsets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_share_proxy.offsets.commit_text import parse_commit_text
from kafka_share_proxy.offsets.partition_commits import CommitOutcome, after_individual_commit, after_plain_commit
from kafka_share_proxy.offsets.ranges import OffsetRanges


def ranges(text: str) -> OffsetRanges:
    """Parse inclusive ranges as proposal and requirements write them: "45-47,50-50"."""
    return parse_commit_text(f"ic/1;{text}").ranges


def shown(outcome: CommitOutcome) -> tuple[int | None, str, str]:
    """Mark, puts, tombstones."""
    return outcome.offset, ",".join(map(str, outcome.change.put)), ",".join(map(str, outcome.change.removed))


def individual(committed: int | None, stored: str, done: str, offset: int | None = None) -> tuple[int | None, str, str]:
    """Return what an individual commit does; `done` is inclusive."""
    return shown(after_individual_commit(committed, ranges(stored), offset, ranges(done)))


def plain(committed: int | None, stored: str, offset: int) -> tuple[int | None, str, str]:
    return shown(after_plain_commit(committed, ranges(stored), offset))


def test_a004_1_a_range_between_two_is_put_with_them_and_two_records_go() -> None:
    assert individual(43, "45-47,50-50", "48-49") == (43, "45-50", "45-47,50-50")


def test_a004_2_a_range_at_the_committed_offset_moves_it_over_the_stored_one() -> None:
    """The stable offset of the proposal, the last one done, is 47 then; the stored 50-50 stays."""
    assert individual(43, "45-47,50-50", "43-44") == (48, "", "45-47")


def test_a004_3_the_committed_offset_moves_over_merged_ranges() -> None:
    assert individual(43, "45-50", "43-44") == (51, "", "45-50")


def test_a004_4_what_a_client_processed_of_a_fetch_closes_all_gaps() -> None:
    assert individual(41, "43-45,48-49", "41-42,46-47,50-50") == (51, "", "43-45,48-49")


def test_a004_5_the_same_range_again_writes_nothing() -> None:
    first = after_individual_commit(41, stored := OffsetRanges(), None, ranges("46-47"))
    assert (shown(first), bool(first.change)) == ((41, "46-47", ""), True)
    stored.apply(first.change)
    again = after_individual_commit(41, stored, None, ranges("46-47"))
    assert (shown(again), bool(again.change)) == ((41, "", ""), False)


def test_a004_6_a_range_below_the_committed_offset_is_done_already() -> None:
    assert individual(41, "", "30-35") == (41, "", "")


def test_a004_7_a_range_across_the_committed_offset_counts_from_there() -> None:
    assert individual(43, "45-47", "40-44") == (48, "", "45-47")


def test_a004_8_a_plain_commit_forward_takes_along_what_it_touches() -> None:
    assert plain(43, "45-47,50-50", 50) == (51, "", "45-47,50-50")


def test_a004_9_a_plain_commit_backward_drops_all_ranges() -> None:
    assert plain(48, "50-52", 41) == (41, "", "50-52")


def test_a004_10_a_client_commits_the_marker_with_the_record_after_it() -> None:
    """Offset 45 is a transaction marker: by the gap rule the client commits 43-46 (tests/offsets/test_ledger.py)."""
    assert individual(43, "", "43-46") == (47, "", "")


def test_a_plain_commit_of_the_committed_offset_changes_nothing() -> None:
    assert plain(43, "45-47", 43) == (43, "", "")


def test_an_individual_commit_moves_the_committed_offset_forward_and_never_back() -> None:
    assert individual(43, "50-52", "60-61", offset=45) == (45, "60-61", "")
    assert individual(43, "50-52", "60-61", offset=50) == (53, "60-61", "50-52")
    assert individual(43, "50-52", "60-61", offset=10) == (43, "60-61", "")
    assert individual(43, "45-47", "", offset=46) == (48, "", "45-47")


def test_where_nothing_is_committed_ranges_are_kept_without_a_committed_offset() -> None:
    assert individual(None, "", "0-5") == (None, "0-5", "")
    assert individual(None, "3-5", "7-7", offset=0) == (0, "7-7", "")
    assert plain(None, "3-5", 4) == (6, "", "3-5")


def test_offsets_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="-1 cannot be committed: offsets begin at 0"):
        after_individual_commit(43, OffsetRanges(), -1, [(50, 51)])
    with pytest.raises(ValueError, match="-1 cannot be committed"):
        after_plain_commit(43, OffsetRanges(), -1)
    with pytest.raises(ValueError, match=r"\[51, 50\) is no range"):
        after_individual_commit(43, OffsetRanges(), None, [(51, 50)])


# Against a set of offsets

LIMIT = 40
SPANS = st.tuples(st.integers(0, LIMIT), st.integers(1, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
COMMITS = st.tuples(st.none() | st.integers(0, LIMIT), st.lists(SPANS, max_size=6))


def offsets(spans: Sequence[tuple[int, int]] | OffsetRanges) -> set[int]:
    return {offset for start, end in spans for offset in range(start, end)}


class Store:
    """One record for each range, as the compacted topic has them, and the committed offset."""

    def __init__(self, committed: int | None) -> None:
        self.committed = committed
        self.ranges = OffsetRanges()
        self.records: set[tuple[int, int]] = set()

    def take(self, outcome: CommitOutcome) -> None:
        for lost in outcome.change.removed:
            self.records.remove(lost)
        for put in outcome.change.put:
            assert put not in self.records, "a record is put that is there already"
            self.records.add(put)
        self.ranges.apply(outcome.change)
        self.committed = outcome.offset
        assert sorted(self.records) == list(self.ranges)
        assert self.committed is None or all(start > self.committed for start, _ in self.records)

    def done(self) -> set[int]:
        return offsets(self.ranges) | set(range(self.committed or 0))


@settings(deadline=None)
@given(st.none() | st.integers(0, LIMIT), st.lists(COMMITS, max_size=8))
def test_individual_commits_do_what_a_set_of_offsets_does(committed: int | None, commits: list) -> None:
    store, model, has_committed = Store(committed), set(range(committed or 0)), committed is not None
    for offset, spans in commits:
        store.take(after_individual_commit(store.committed, store.ranges, offset, spans))
        has_committed = has_committed or offset is not None
        model |= set(range(offset or 0)) | offsets(spans)
        assert store.done() == model
        assert store.committed == (next(n for n in range(9 * LIMIT) if n not in model) if has_committed else None)


@settings(deadline=None)
@given(st.integers(0, LIMIT), st.lists(SPANS, max_size=9), st.integers(0, LIMIT + 9))
def test_plain_commits_do_what_a_set_of_offsets_does(committed: int, spans: list, offset: int) -> None:
    store = Store(committed)
    store.take(after_individual_commit(committed, store.ranges, None, spans))
    before, committed = store.done(), store.committed or 0
    store.take(after_plain_commit(committed, store.ranges, offset))
    model = set(range(offset)) | (before if offset >= committed else set())
    assert store.done() == model


@settings(deadline=None)
@given(st.integers(0, LIMIT), st.lists(COMMITS, max_size=8), st.randoms(use_true_random=False))
def test_a004_18_the_order_of_individual_commits_does_not_matter(committed: int, commits: list, dice) -> None:  # type: ignore[no-untyped-def]
    """Members that commit overlapping ranges concurrently end at the union, in any order."""
    stores = []
    for _ in range(2):
        stores.append(store := Store(committed))
        for offset, spans in commits:
            store.take(after_individual_commit(store.committed, store.ranges, offset, spans))
        dice.shuffle(commits)
    assert stores[0].committed == stores[1].committed
    assert stores[0].records == stores[1].records


@settings(deadline=None)
@given(st.integers(0, LIMIT), st.lists(SPANS, max_size=6), COMMITS)
def test_deciding_changes_nothing_and_a_repetition_writes_nothing(committed: int, stored: list, commit: tuple) -> None:
    store = Store(committed)
    store.take(after_individual_commit(committed, store.ranges, None, stored))
    before = list(store.ranges)
    outcome = after_individual_commit(store.committed, store.ranges, *commit)
    assert list(store.ranges) == before
    store.take(outcome)
    again = after_individual_commit(store.committed, store.ranges, *commit)
    assert (again.offset, bool(again.change)) == (store.committed, False)
