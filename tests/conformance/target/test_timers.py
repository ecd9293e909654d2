"""Deadlines of a cluster by its clock."""

from __future__ import annotations

import trio
import trio.testing
from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.timers import ClusterTimers, Signal, wait_for_change


async def test_due_callbacks_run_in_order_and_cancelled_ones_never() -> None:
    clock = Clock(0)
    clock.stop()
    timers = ClusterTimers(clock)
    called: list[str] = []
    timers.call_at(2.0, lambda: called.append("second"))
    timers.call_at(1.0, lambda: called.append("first"))
    timers.call_at(1.5, lambda: called.append("never")).cancel()
    clock.advance(3)
    timers.run_due()
    assert called == ["first", "second"]


async def test_a_wait_ends_with_the_signal_or_at_the_deadline() -> None:
    clock = Clock(0)
    clock.stop()
    timers, signal, ended = ClusterTimers(clock), Signal(), []

    async def wait(name: str, deadline: float) -> None:
        await wait_for_change([signal], timers, deadline)
        ended.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        nursery.start_soon(wait, "late", 1.0)
        await trio.testing.wait_all_tasks_blocked()
        clock.advance(1.0)
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["late"]
        nursery.start_soon(wait, "notified", 9.0)
        await trio.testing.wait_all_tasks_blocked()
        signal.notify()
        await trio.testing.wait_all_tasks_blocked()
        assert ended == ["late", "notified"]
        nursery.cancel_scope.cancel()
