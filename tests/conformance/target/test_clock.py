"""A clock that stands still until it is advanced."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from kafka_share_proxy.conformance.target.clock import Clock


async def test_a_stopped_clock_wakes_those_that_are_due() -> None:
    clock, ended = Clock(1000), []
    clock.stop()

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        ended.append(seconds)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep, 1.0)
        nursery.start_soon(sleep, 2.0)
        await trio.testing.wait_all_tasks_blocked()
        clock.advance(1.0)
        await trio.testing.wait_all_tasks_blocked()
        assert ended == [1.0]
        nursery.cancel_scope.cancel()
    assert clock.wall_ms() >= 2000
    assert not clock.runs


async def test_time_never_decreases() -> None:
    with pytest.raises(ValueError, match="cannot be advanced"):
        Clock(0).advance(-1)
