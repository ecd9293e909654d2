"""A clock that counts the time for which the machine was suspended."""

from __future__ import annotations

import time

import trio
from kafka_share_proxy.loop.boot_clock import SUSPENDED_MIN_S, SuspensionClock, boot_time, time_suspended


async def test_the_clock_is_trios_until_the_machine_is_suspended(autojump_clock: trio.testing.MockClock) -> None:
    suspended = [1000.0]
    clock = SuspensionClock(lambda: suspended[0])
    await trio.sleep(5)
    assert clock.now() == trio.current_time() == clock.in_trio_time(clock.now())
    suspended[0] += SUSPENDED_MIN_S / 2
    assert clock.now() == trio.current_time(), "the two clocks are not read in the same instant"
    suspended[0] += 60
    deadline = clock.now() + 3
    assert 60 <= clock.now() - trio.current_time() < 60 + SUSPENDED_MIN_S
    assert clock.in_trio_time(deadline) == trio.current_time() + 3
    suspended[0] -= 60
    assert clock.now() - trio.current_time() >= 60, "the clock never goes back"


def test_the_clocks_of_this_machine_agree_while_it_runs() -> None:
    before = time_suspended()
    began = boot_time()
    time.sleep(0.01)
    assert boot_time() - began >= 0.01
    assert abs(time_suspended() - before) < 5
