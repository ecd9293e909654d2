"""The window as sorted runs of offsets."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.model import locks
from kafka_share_proxy.sharegroups.model.locks import LockIndex
from kafka_share_proxy.sharegroups.model.offset_runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    UNREAD,
    OffsetRun,
    Unit,
    Window,
)


def window(*runs: tuple[int, int, int, int]) -> Window:
    """A window of (first, last, state, count) runs."""
    made = Window(runs[0][0] if runs else 0)
    for first, last, state, count in runs:
        made.insert(OffsetRun(made, first, last, state, count))
        made.end_offset = max(made.end_offset, last)
    return made


def spans(made: Window) -> list[tuple[int, int]]:
    assert made.firsts == [run.first for run in made.runs]
    return [(run.first, run.last) for run in made.runs]


class TestFinding:
    @pytest.mark.parametrize(("offset", "index"), [(0, 0), (5, 0), (9, 0), (10, 1), (19, 1), (20, 1), (24, 1), (25, 2)])
    def test_the_first_run_that_ends_at_or_after_an_offset(self, offset: int, index: int) -> None:
        assert window((5, 9, 1, 1), (20, 24, 1, 1)).index_from(offset) == index

    def test_the_run_that_begins_at_an_offset(self) -> None:
        made = window((5, 9, 1, 1), (20, 24, 1, 1))
        assert made.at(20) is made.runs[1]
        assert made.at(6) is None
        assert made.at(25) is None

    def test_runs_between_two_offsets(self) -> None:
        made = window((5, 9, 1, 1), (20, 24, 1, 1), (25, 29, 1, 1))
        assert [run.first for run in made.between(9, 20)] == [5, 20]
        assert [run.first for run in made.between(10, 19)] == []

    def test_a_run_may_be_put_in_between(self) -> None:
        made = window((20, 24, 1, 1), (5, 9, 1, 1), (10, 12, 1, 1))
        assert spans(made) == [(5, 9), (10, 12), (20, 24)]

    def test_the_first_free_offset_is_found_again_after_it_moved(self) -> None:
        made = window((0, 4, ACQUIRED, 1), (5, 9, AVAILABLE, 1), (10, 14, UNREAD, 0), (15, 19, ACQUIRED, 1))
        assert made.next_free() == 5
        made.runs[1].state = ACQUIRED
        assert made.next_free() == 10
        made.runs[2].state = ACQUIRED
        assert made.next_free() == 20
        made.free(made.runs[0], AVAILABLE)
        assert made.next_free() == 0


class TestCutting:
    def test_a_cut_keeps_everything_but_the_bounds(self) -> None:
        made = window((0, 9, ACQUIRED, 3))
        index = LockIndex()
        whole = made.runs[0]
        whole.owner, whole.renewals = "ann", 2
        index.add(whole, 30.0, 0.0)
        made.cut(0, [4, 6])
        assert spans(made) == [(0, 3), (4, 5), (6, 9)]
        for run in made.runs:
            assert (run.state, run.count, run.owner, run.renewals) == (ACQUIRED, 3, "ann", 2)
            assert run.unit is made.runs[0].unit
            assert locks.deadline(run) == 30.0
        assert made.runs[0].unit is not None
        assert (made.runs[0].unit.first, made.runs[0].unit.last) == (0, 9)

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
        made = window((0, 9, AVAILABLE, 1))
        run = made.isolate(*part)
        assert (run.first, run.last) == part
        assert spans(made) == expected


class TestJoining:
    def test_settled_neighbours_are_joined_whatever_they_belonged_to(self) -> None:
        made = window((0, 4, ARCHIVED, 1), (5, 9, ARCHIVED, 1), (10, 14, ARCHIVED, 1))
        made.join(7)
        assert spans(made) == [(0, 14)]

    @pytest.mark.parametrize(
        "other",
        [(5, 9, ACKNOWLEDGED, 1), (5, 9, ARCHIVED, 2), (6, 9, ARCHIVED, 1), (5, 9, AVAILABLE, 1), (5, 9, ACQUIRED, 1)],
    )
    def test_runs_that_differ_stay_apart(self, other: tuple[int, int, int, int]) -> None:
        made = window((0, 4, ARCHIVED, 1), other)
        made.join(0)
        assert len(made.runs) == 2

    def test_free_runs_are_joined_only_inside_one_delivery(self) -> None:
        made = window((0, 4, AVAILABLE, 1), (5, 9, AVAILABLE, 1))
        made.join(0)
        assert len(made.runs) == 2
        made.runs[0].unit = made.runs[1].unit = Unit(0, 9)
        made.join(5)
        assert spans(made) == [(0, 9)]

    def test_held_runs_are_never_joined(self) -> None:
        made = window((0, 4, ACQUIRED, 1), (5, 9, ACQUIRED, 1))
        made.runs[0].unit = made.runs[1].unit = Unit(0, 9)
        made.join(0)
        assert len(made.runs) == 2


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
        made = window(*runs)
        made.advance()
        assert made.start_offset == start
        assert all(run.first >= start for run in made.runs)
