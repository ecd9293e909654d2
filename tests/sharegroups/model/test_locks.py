"""Deadlines of acquisition locks (sharegroups/README.md rule 35)."""

from __future__ import annotations

import random
from math import inf

from kafka_share_proxy.sharegroups.model import locks
from kafka_share_proxy.sharegroups.model.locks import LockIndex
from kafka_share_proxy.sharegroups.model.offset_runs import OffsetRun


def run(offset: int = 0, partition: object = "p") -> OffsetRun:
    return OffsetRun(partition, offset, offset, 1, 1)


def firsts(expired: dict[object, list[locks.Lockable]]) -> list[int]:
    return sorted(one.first for runs in expired.values() for one in runs if isinstance(one, OffsetRun))


def test_a_lock_ends_at_its_deadline_and_only_once() -> None:
    index, held = LockIndex(), run()
    assert index.add(held, 30.0, 5.0) == 35.0
    assert locks.deadline(held) == 35.0
    assert index.next_deadline() == 35.0
    assert index.expired(34.9) == {}
    assert index.expired(35.0) == {"p": [held]}
    assert held.lock is None
    assert index.expired(99.0) == {}
    assert index.next_deadline() == inf


def test_a_lock_given_back_does_not_end() -> None:
    index, held = LockIndex(), run()
    index.add(held, 30.0, 0.0)
    locks.cancel(held)
    locks.cancel(held)
    assert len(index) == 0
    assert locks.deadline(held) == -inf
    assert index.expired(30.0) == {}
    assert index.next_deadline() == inf, "looked for anew when the old time had come"


def test_a_renewal_puts_the_lock_behind_the_others() -> None:
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
    locks.split(whole, parts)
    assert [locks.deadline(part) for part in parts] == [30.0] * 3
    locks.cancel(parts[0])
    index.renew(parts[1], 30.0, 10.0)
    assert firsts(index.expired(30.0)) == [2]
    assert firsts(index.expired(31.0)) == [9]
    assert firsts(index.expired(40.0)) == [1]


def test_a_part_may_be_split_again() -> None:
    index, whole = LockIndex(), run(0)
    index.add(whole, 30.0, 0.0)
    left, right = run(0), run(5)
    locks.split(whole, [left, right])
    parts = [run(5), run(6)]
    locks.split(right, parts)
    assert right.lock is None
    locks.cancel(left)
    locks.cancel(parts[0])
    assert len(index) == 1
    locks.cancel(parts[1])
    assert len(index) == 0, "the place in the queue goes with the last part"


def test_splitting_what_is_not_locked_does_nothing() -> None:
    parts = [run(0), run(1)]
    locks.split(run(0), parts)
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
            locks.cancel(one)
            del live[one]
        elif live and action < 0.85:
            one = choose.choice(list(live))
            live[one] = index.renew(one, choose.choice((2.0, 5.0)), now)
        assert index.next_deadline() <= min(live.values(), default=inf)
        due = {one for one, deadline in live.items() if deadline <= now}
        found = {one for runs in index.expired(now).values() for one in runs}
        assert found == due
        for one in due:
            del live[one]
        assert len(index) == len(live)
