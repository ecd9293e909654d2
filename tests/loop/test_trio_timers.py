"""Alarms of handlers on Trio's clock."""

from __future__ import annotations

from typing import Any

import trio
from kafka_share_proxy.loop.trio_timers import TrioTimers


async def test_an_alarm_rings_once_at_its_time(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Not before."""
    timers, rung = TrioTimers(nursery), list[float]()
    timers.call_at(timers.now() + 5, lambda: rung.append(timers.now()))
    began = timers.now()
    await trio.sleep(4.9)
    assert rung == []
    await trio.sleep(10)
    assert rung == [began + 5]


async def test_a_cancelled_alarm_never_rings(nursery: trio.Nursery, autojump_clock: Any) -> None:
    """Before or after it began to wait; cancelling it again is harmless."""
    timers, rung = TrioTimers(nursery), list[int]()
    for wait in (0.0, 1.0):
        alarm = timers.call_at(timers.now() + 5, lambda: rung.append(1))
        await trio.sleep(wait)
        alarm.cancel()
        alarm.cancel()
    await trio.sleep(10)
    assert rung == []


async def test_wall_time_is_milliseconds(nursery: trio.Nursery) -> None:
    """Since 1970."""
    assert TrioTimers(nursery).wall_ms() > 1_600_000_000_000
