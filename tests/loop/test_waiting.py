"""Waits with a deadline leave neither timers nor callbacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.waiting import SlicedWork, end_of_iteration, first_until, settled_within, wait_until

from tests.support.awaited import is_awaited
from tests.support.manual_timers import ManualTimers


class Owner:
    """Owner whose callbacks the reactor calls."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._reactor.call_on_behalf_of(self, callback)

    def failed(self, error: Exception) -> None:
        raise error


@pytest.fixture
def timers() -> ManualTimers:
    return ManualTimers()


def started(coroutine):
    task = Task(coroutine, lambda task: None)
    task.start()
    return task


def test_wait_ends_at_the_deadline(timers):
    task = started(wait_until(timers, 1003.0))
    timers.advance(2.9)
    assert not task.finished
    timers.advance(0.2)
    assert task.finished


def test_wait_ends_with_the_first_settled_promise(timers):
    slow, quick = Promise(), Promise()
    task = started(first_until(timers, 1003.0, slow, quick))
    assert is_awaited(slow)
    quick.set(1)
    assert task.finished
    assert not slow.done
    assert not is_awaited(slow)
    assert timers.planned == 0


def test_settled_promise_ends_the_wait_immediately(timers):
    settled = Promise()
    settled.set(1)
    assert started(first_until(timers, 1003.0, Promise(), settled)).finished
    assert timers.planned == 0


def test_failed_promise_ends_the_wait_without_an_exception(timers):
    failing = Promise()
    task = started(first_until(timers, 1003.0, failing))
    failing.fail(ValueError("lost"))
    assert task.finished
    assert task.error is None


def test_end_of_an_iteration_comes_after_the_calls_that_were_requested_before():
    reactor, order = Reactor(), []
    owner = Owner(reactor)

    async def handler():
        reactor.call_on_behalf_of(owner, lambda: order.append("requested before"))
        await end_of_iteration()
        order.append("handler")

    try:
        task = Task(handler(), lambda task: None, owner)
        task.start()
        assert order == []
        reactor.iterate(0.0)
        assert order == ["requested before", "handler"]
        assert task.finished
    finally:
        reactor.shut()


def test_cancelled_wait_leaves_no_timer(timers):
    promise = Promise()
    task = started(first_until(timers, 1003.0, promise))
    assert timers.planned == 1
    task.cancel()
    assert timers.planned == 0
    promise.set(1)


def test_settled_within_returns_whether_the_promise_was_settled_in_time(timers):
    promise = Promise()
    task = started(settled_within(timers, 2.0, promise))
    timers.advance(2.1)
    assert task.value is False
    task = started(settled_within(timers, 2.0, promise))
    promise.set(1)
    assert task.value is True
    assert started(settled_within(timers, 2.0, promise)).value is True
    assert timers.planned == 0


def test_of_all_slices_one_runs_in_each_iteration():
    """A request that continues queues again, after the others."""
    rung: list[Callable[[], None]] = []

    class Timers(ManualTimers):
        def call_at(self, deadline, callback):
            rung.append(callback)
            return super().call_at(deadline, callback)

    slices, timers, order = SlicedWork(), Timers(), list[str]()

    async def work(name: str) -> None:
        for _ in range(2):
            await slices.next(timers)
            order.append(name)

    for name in "ab":
        Task(work(name), lambda _: None).start()
    for iteration in range(4):
        assert len(rung) == iteration + 1
        rung[iteration]()
        assert len(order) == iteration + 1
    assert order == ["a", "b", "a", "b"]
    assert len(rung) == 4
