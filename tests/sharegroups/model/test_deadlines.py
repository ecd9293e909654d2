"""Deadlines: the earliest of each name counts, and what is outdated does not pile up."""

from __future__ import annotations

import random
from math import inf

from kafka_share_proxy.sharegroups.model.deadlines import SLACK, Deadlines


def test_the_earliest_deadline_of_a_name_counts():
    """A later one changes nothing; what was taken has none until it is given another."""
    deadlines = Deadlines()
    assert (deadlines.next(), deadlines.take(1e9)) == (inf, [])
    deadlines.not_later_than("a", 5.0)
    deadlines.not_later_than("a", 9.0)
    deadlines.not_later_than("b", 3.0)
    deadlines.not_later_than("a", 4.0)
    assert deadlines.next() == 3.0
    assert deadlines.take(4.0) == ["b", "a"]
    assert (deadlines.next(), len(deadlines)) == (inf, 0)
    deadlines.not_later_than("a", 6.0)
    assert deadlines.take(6.0) == ["a"]


def test_forgotten_entries_are_not_visited():
    """Not by its old deadline either, when the name is used again."""
    deadlines = Deadlines()
    deadlines.not_later_than("a", 5.0)
    deadlines.forget("a")
    deadlines.forget("a")
    assert deadlines.next() == inf
    deadlines.not_later_than("a", 7.0)
    assert deadlines.take(6.0) == []
    assert deadlines.take(7.0) == ["a"]


def test_outdated_entries_do_not_pile_up():
    """Ever earlier deadlines of a few names need no more than a few entries."""
    deadlines = Deadlines()
    for deadline in range(10_000, 0, -1):
        deadlines.not_later_than(str(deadline % 7), float(deadline))
    assert len(deadlines._heap) <= 2 * 7 + SLACK + 1
    assert deadlines.take(7.0) == ["1", "2", "3", "4", "5", "6", "0"]


def test_it_agrees_with_looking_at_all_of_them():
    """The same names are due at the same time as in a plain table, in any order of calls."""
    choose = random.Random(7)
    for _ in range(50):
        deadlines, table, now = Deadlines(), dict[str, float](), 0.0
        for _ in range(200):
            name = str(choose.randrange(20))
            move = choose.randrange(4)
            if move < 2:
                deadline = now + choose.randrange(50)
                deadlines.not_later_than(name, deadline)
                table[name] = min(table.get(name, inf), deadline)
            elif move == 2:
                deadlines.forget(name)
                table.pop(name, None)
            else:
                now += choose.randrange(10)
                due = sorted(each for each, deadline in table.items() if deadline <= now)
                assert sorted(deadlines.take(now)) == due
                for each in due:
                    del table[each]
            assert deadlines.next() == min(table.values(), default=inf)
            assert len(deadlines) == len(table)
