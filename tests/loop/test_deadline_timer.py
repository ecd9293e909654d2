"""One alarm for all deadlines."""

from __future__ import annotations

from math import inf

from kafka_share_proxy.loop.deadline_timer import DeadlineTimer

from tests.support.manual_timers import ManualTimers


def test_timer_rings_at_the_earliest_deadline_and_then_at_the_next():
    timers, rung, after = ManualTimers(), [], [1010.0, inf]

    def due(now: float) -> float:
        rung.append(now)
        return after.pop(0)

    clock = DeadlineTimer(timers, due)
    for deadline in (1007.0, 1005.0, 1006.0, inf):
        clock.not_later_than(deadline)
    assert timers.planned == 1
    timers.advance(20)
    assert rung == [1005.0, 1010.0]
    assert timers.planned == 0


def test_timer_can_be_set_again_after_it_rang():
    timers, rung = ManualTimers(), []
    clock = DeadlineTimer(timers, lambda now: rung.append(now) or inf)
    clock.not_later_than(1001.0)
    timers.advance(2)
    clock.not_later_than(1005.0)
    timers.advance(5)
    assert rung == [1001.0, 1005.0]
