"""The window as sorted runs of offsets, and deadlines of acquisition locks (sharegroups/README.md rule 35)."""

from __future__ import annotations

import random
from math import inf

import pytest
from kafka_share_proxy.sharegroups.model.offset_runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    UNREAD,
    ExplodedBatch,
    LockIndex,
    OffsetRun,
    Window,
)


def window(*runs: tuple[int, int, int, int]) -> Window:
    """A window of (first, last, state, count) runs."""
    new_window = Window(runs[0][0] if runs else 0)
    for first, last, state, count in runs:
        new_window.insert(OffsetRun(new_window, first, last, state, count))
        new_window.end_offset = max(new_window.end_offset, last)
    return new_window


def spans(checked_window: Window) -> list[tuple[int, int]]:
    assert checked_window.firsts == [run.first for run in checked_window.runs]
    return [(run.first, run.last) for run in checked_window.runs]


class TestFinding:
    @pytest.mark.parametrize(("offset", "index"), [(0, 0), (5, 0), (9, 0), (10, 1), (19, 1), (20, 1), (24, 1), (25, 2)])
    def test_the_first_run_that_ends_at_or_after_an_offset(self, offset: int, index: int) -> None:
        assert window((5, 9, 1, 1), (20, 24, 1, 1)).index_from(offset) == index

    def test_the_run_that_begins_at_an_offset(self) -> None:
        share_window = window((5, 9, 1, 1), (20, 24, 1, 1))
        assert share_window.run_at(20) is share_window.runs[1]
        assert share_window.run_at(6) is None
        assert share_window.run_at(25) is None

    def test_runs_between_two_offsets(self) -> None:
        share_window = window((5, 9, 1, 1), (20, 24, 1, 1), (25, 29, 1, 1))
        assert [run.first for run in share_window.between(9, 20)] == [5, 20]
        assert [run.first for run in share_window.between(10, 19)] == []

    def test_a_run_may_be_put_in_between(self) -> None:
        share_window = window((20, 24, 1, 1), (5, 9, 1, 1), (10, 12, 1, 1))
        assert spans(share_window) == [(5, 9), (10, 12), (20, 24)]

    def test_the_first_free_offset_is_found_again_after_it_moved(self) -> None:
        share_window = window((0, 4, ACQUIRED, 1), (5, 9, AVAILABLE, 1), (10, 14, UNREAD, 0), (15, 19, ACQUIRED, 1))
        assert share_window.next_fetch_offset() == 5
        share_window.runs[1].state = ACQUIRED
        assert share_window.next_fetch_offset() == 10
        share_window.runs[2].state = ACQUIRED
        assert share_window.next_fetch_offset() == 20
        share_window.free(share_window.runs[0], AVAILABLE)
        assert share_window.next_fetch_offset() == 0


class TestJoiningTogether:
    @pytest.mark.parametrize("seed", range(30))
    def test_runs_joined_together_are_those_joined_one_by_one(self, seed: int) -> None:
        """Some of many runs have just been settled, close together or far apart."""
        chance, exploded_batch = random.Random(seed), ExplodedBatch(0, 10_000)
        bounds, offset = [], 0
        for _ in range(chance.randrange(1, 80)):
            size = chance.randrange(1, 4)
            state = chance.choice((ACKNOWLEDGED, ACKNOWLEDGED, ARCHIVED, AVAILABLE, ACQUIRED))
            bounds.append((offset, offset + size - 1, state, chance.choice((1, 1, 2))))
            offset += size + chance.choice((0, 0, 0, 5))
        together, single = window(*bounds), window(*bounds)
        for run in (*together.runs, *single.runs):
            run.exploded_batch = exploded_batch
        density = chance.choice((0.05, 0.5, 0.95))
        for either in (together, single):
            for first, _, _, _ in bounds:
                either.join(first)
        firsts = [run.first for run in together.runs if chance.random() < density]
        for either in (together, single):
            for first in firsts:
                either.free(either.runs[either.index_from(first)], ACKNOWLEDGED)
        together.join_all(firsts)
        for first in firsts:
            single.join(first)
        assert spans(together) == spans(single)

    def test_only_given_runs_and_their_neighbours_are_joined_if_they_are_far_apart(self) -> None:
        share_window = window(*[(offset, offset, ACKNOWLEDGED, 1 + offset // 2 % 2) for offset in range(400)])
        share_window.join_all([0, 100, 200, 300, 399])
        assert len(share_window.runs) == 395

    def test_nothing_is_joined_without_runs(self) -> None:
        share_window = window((0, 4, ACKNOWLEDGED, 1), (5, 9, ACKNOWLEDGED, 1))
        share_window.join_all([])
        assert spans(share_window) == [(0, 4), (5, 9)]


class TestCutting:
    def test_a_cut_keeps_everything_but_the_bounds(self) -> None:
        share_window = window((0, 9, ACQUIRED, 3))
        index = LockIndex()
        whole = share_window.runs[0]
        whole.owner, whole.renewals = "ann", 2
        index.add(whole, 30.0, 0.0)
        share_window.cut(0, [4, 6])
        assert spans(share_window) == [(0, 3), (4, 5), (6, 9)]
        for run in share_window.runs:
            assert (run.state, run.count, run.owner, run.renewals) == (ACQUIRED, 3, "ann", 2)
            assert run.exploded_batch is share_window.runs[0].exploded_batch
            assert run.deadline() == 30.0
        assert share_window.runs[0].exploded_batch is not None
        assert (share_window.runs[0].exploded_batch.first, share_window.runs[0].exploded_batch.last) == (0, 9)

    @pytest.mark.parametrize(
        ("part", "expected"),
        [
            ((0, 9), [(0, 9)]),
            ((0, 3), [(0, 3), (4, 9)]),
            ((4, 9), [(0, 3), (4, 9)]),
            ((4, 5), [(0, 3), (4, 5), (6, 9)]),
        ],
    )
    def test_a_part_is_isolated_with_as_few_cuts_as_possible(
        self, part: tuple[int, int], expected: list[tuple[int, int]]
    ) -> None:
        share_window = window((0, 9, AVAILABLE, 1))
        run = share_window.isolate(*part)
        assert (run.first, run.last) == part
        assert spans(share_window) == expected


class TestJoining:
    def test_settled_neighbours_are_joined_across_deliveries(self) -> None:
        share_window = window((0, 4, ARCHIVED, 1), (5, 9, ARCHIVED, 1), (10, 14, ARCHIVED, 1))
        share_window.join(7)
        assert spans(share_window) == [(0, 14)]

    @pytest.mark.parametrize(
        "other",
        [(5, 9, ACKNOWLEDGED, 1), (5, 9, ARCHIVED, 2), (6, 9, ARCHIVED, 1), (5, 9, AVAILABLE, 1), (5, 9, ACQUIRED, 1)],
    )
    def test_runs_that_differ_stay_apart(self, other: tuple[int, int, int, int]) -> None:
        share_window = window((0, 4, ARCHIVED, 1), other)
        share_window.join(0)
        assert len(share_window.runs) == 2

    def test_free_runs_are_joined_only_inside_one_delivery(self) -> None:
        share_window = window((0, 4, AVAILABLE, 1), (5, 9, AVAILABLE, 1))
        share_window.join(0)
        assert len(share_window.runs) == 2
        share_window.runs[0].exploded_batch = share_window.runs[1].exploded_batch = ExplodedBatch(0, 9)
        share_window.join(5)
        assert spans(share_window) == [(0, 9)]

    def test_held_runs_are_never_joined(self) -> None:
        share_window = window((0, 4, ACQUIRED, 1), (5, 9, ACQUIRED, 1))
        share_window.runs[0].exploded_batch = share_window.runs[1].exploded_batch = ExplodedBatch(0, 9)
        share_window.join(0)
        assert len(share_window.runs) == 2


class TestAdvancing:
    @pytest.mark.parametrize(
        ("runs", "start"),
        [
            ([(0, 4, ACKNOWLEDGED, 1), (5, 9, ARCHIVED, 1), (10, 14, ACQUIRED, 1)], 10),
            ([(0, 4, ACQUIRED, 1), (5, 9, ARCHIVED, 1)], 0),
            ([(0, 4, AVAILABLE, 1)], 0),
            ([(0, 4, ARCHIVED, 1), (5, 9, UNREAD, 0)], 5),
            ([(0, 4, ARCHIVED, 1), (8, 9, ACQUIRED, 1)], 8),
            ([(0, 4, ARCHIVED, 1)], 5),
        ],
    )
    def test_the_start_offset_passes_what_is_settled(self, runs: list[tuple[int, int, int, int]], start: int) -> None:
        share_window = window(*runs)
        share_window.advance()
        assert share_window.start_offset == start
        assert all(run.first >= start for run in share_window.runs)


def run(offset: int = 0, partition: object = "p") -> OffsetRun:
    return OffsetRun(partition, offset, offset, 1, 1)


def firsts(expired: dict[object, list[OffsetRun]]) -> list[int]:
    return sorted(one.first for runs in expired.values() for one in runs)


def test_a_lock_ends_at_its_deadline_and_only_once() -> None:
    index, held = LockIndex(), run()
    assert index.add(held, 30.0, 5.0) == 35.0
    assert held.deadline() == 35.0
    assert index.next_deadline() == 35.0
    assert index.expired(34.9) == {}
    assert index.expired(35.0) == {"p": [held]}
    assert held.lock is None
    assert index.expired(99.0) == {}
    assert index.next_deadline() == inf


def test_a_lock_given_back_does_not_end() -> None:
    index, held = LockIndex(), run()
    index.add(held, 30.0, 0.0)
    held.unlock()
    held.unlock()
    assert len(index) == 0
    assert held.deadline() == -inf
    assert index.expired(30.0) == {}
    assert index.next_deadline() == inf, "looked for anew when the old time had come"


def test_a_renewal_puts_the_lock_after_the_others() -> None:
    index = LockIndex()
    one, two = run(1), run(2)
    index.add(one, 30.0, 0.0)
    index.add(two, 30.0, 1.0)
    assert index.renew(one, 30.0, 2.0) == 32.0
    assert firsts(index.expired(31.0)) == [2]
    assert firsts(index.expired(32.0)) == [1]


def test_durations_do_not_hold_each_other_up() -> None:
    index = LockIndex()
    index.add(run(1), 60.0, 0.0)
    index.add(run(2), 15.0, 10.0)
    assert index.next_deadline() == 25.0
    assert firsts(index.expired(25.0)) == [2]
    assert index.next_deadline() == 60.0


def test_expired_locks_come_by_share_partition() -> None:
    index = LockIndex()
    a, b = run(1, "a"), run(2, "b")
    index.add(a, 30.0, 0.0)
    index.add(b, 30.0, 0.0)
    assert index.expired(30.0) == {"a": [a], "b": [b]}


def test_parts_of_a_split_lock_keep_its_deadline_and_its_place() -> None:
    index = LockIndex()
    whole, later = run(0), run(9)
    index.add(whole, 30.0, 0.0)
    index.add(later, 30.0, 1.0)
    parts = [run(0), run(1), run(2)]
    whole.split_lock(parts)
    assert [part.deadline() for part in parts] == [30.0] * 3
    parts[0].unlock()
    index.renew(parts[1], 30.0, 10.0)
    assert firsts(index.expired(30.0)) == [2]
    assert firsts(index.expired(31.0)) == [9]
    assert firsts(index.expired(40.0)) == [1]


def test_a_part_may_be_split_again() -> None:
    index, whole = LockIndex(), run(0)
    index.add(whole, 30.0, 0.0)
    left, right = run(0), run(5)
    whole.split_lock([left, right])
    parts = [run(5), run(6)]
    right.split_lock(parts)
    assert right.lock is None
    left.unlock()
    parts[0].unlock()
    assert len(index) == 1
    parts[1].unlock()
    assert len(index) == 0, "the place in the queue goes with the last part"


def test_splitting_what_is_not_locked_does_nothing() -> None:
    parts = [run(0), run(1)]
    run(0).split_lock(parts)
    assert [part.lock for part in parts] == [None, None]


def test_next_deadline_is_never_too_late() -> None:
    choose = random.Random(7)
    index = LockIndex()
    live: dict[OffsetRun, float] = {}
    now = 0.0
    for step in range(5000):
        now += choose.random() * 0.2
        action = choose.random()
        if action < 0.5:
            one = run(step)
            live[one] = index.add(one, choose.choice((2.0, 5.0)), now)
        elif live and action < 0.7:
            one = choose.choice(list(live))
            one.unlock()
            del live[one]
        elif live and action < 0.85:
            one = choose.choice(list(live))
            live[one] = index.renew(one, choose.choice((2.0, 5.0)), now)
        assert index.next_deadline() <= min(live.values(), default=inf)
        due = {one for one, deadline in live.items() if deadline <= now}
        expired_runs = {one for runs in index.expired(now).values() for one in runs}
        assert expired_runs == due
        for one in due:
            del live[one]
        assert len(index) == len(live)
