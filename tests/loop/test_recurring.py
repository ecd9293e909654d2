"""Periodic checks: all entries in rotation, and suspected ones again."""

from __future__ import annotations

import pytest
from kafka_share_proxy.loop.recurring import RoundRobin, check_every

from tests.support.manual_timers import ManualTimers


def test_all_held_entries_are_checked_in_order() -> None:
    rotation = RoundRobin("")
    assert [rotation.next({"c", "a", "b"}, 2) for _ in range(3)] == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert rotation.next({"a"}, 2) == ["a"]
    assert rotation.next((), 2) == []


def test_suspected_entries_are_checked_again_while_they_are_held() -> None:
    rotation = RoundRobin(b"")
    rotation.suspected = frozenset({b"c", b"gone"})
    assert rotation.next([b"a", b"b", b"c"], 1) == [b"a", b"c"]


def test_a_check_follows_each_period_even_after_an_exception() -> None:
    timers, looks = ManualTimers(), list[float]()
    started_at = timers.now()

    async def check() -> None:
        looks.append(timers.now())
        if len(looks) == 1:
            raise RuntimeError("once")

    check_every(timers, 10, check)
    with pytest.raises(RuntimeError):
        timers.advance(10)
    timers.advance(10)
    timers.advance(9)
    assert looks == [started_at + 10, started_at + 20]
