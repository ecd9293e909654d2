"""Promises and tasks: the waiting of handlers, driven by plain calls."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from proxy.loop.promise import Promise, Task, all_of, on_its_own, settled


class Ended:
    """Collects what a task called back with."""

    def __init__(self) -> None:
        self.tasks: list[Task[object]] = []

    def __call__(self, task: Task[object]) -> None:
        self.tasks.append(task)


def test_a_handler_runs_to_its_first_wait_and_goes_on_inside_the_call_that_settles_it() -> None:
    promise: Promise[int] = Promise()
    steps: list[str] = []

    async def handler() -> int:
        steps.append("before")
        value = await promise
        steps.append("after")
        return value + 1

    ended = Ended()
    Task(handler(), ended).start()
    assert steps == ["before"]
    promise.set(41)
    assert steps == ["before", "after"]
    assert ended.tasks[0].value == 42


def test_a_settled_promise_does_not_make_the_handler_wait() -> None:
    async def handler() -> int:
        return await settled(7)

    ended = Ended()
    Task(handler(), ended).start()
    assert ended.tasks[0].value == 7


def test_a_failed_promise_raises_at_the_await_and_ends_in_task_error() -> None:
    promise: Promise[int] = Promise()

    async def handler() -> int:
        return await promise

    ended = Ended()
    Task(handler(), ended).start()
    promise.fail(ValueError("broken"))
    assert isinstance(ended.tasks[0].error, ValueError)


def test_a_later_settlement_changes_nothing() -> None:
    promise: Promise[int] = Promise()
    promise.set(1)
    promise.set(2)
    promise.fail(ValueError("late"))
    assert promise.result() == 1


def test_a_cancelled_handler_runs_its_finally_and_never_calls_back() -> None:
    promise: Promise[int] = Promise()
    cleaned: list[bool] = []

    async def handler() -> int:
        try:
            return await promise
        finally:
            cleaned.append(True)

    ended = Ended()
    task = Task(handler(), ended)
    task.start()
    task.cancel()
    promise.set(1)
    assert cleaned == [True]
    assert ended.tasks == []


def test_a_handler_that_brings_its_own_end_about_is_ended_at_its_next_await() -> None:
    promise: Promise[int] = Promise()
    cleaned: list[bool] = []

    async def handler() -> int:
        try:
            task.cancel()
            return await promise
        finally:
            cleaned.append(True)

    ended = Ended()
    task = Task(handler(), ended)
    task.start()
    assert cleaned == [True]
    promise.set(1)
    assert ended.tasks == []


def test_all_of_gives_everything_in_order_once_the_last_has_ended():
    first: Promise[int] = Promise()
    second: Promise[int] = Promise()

    async def wait(promise: Promise[int]) -> int:
        return await promise

    task: Task[list[int]] = Task(all_of([wait(first), wait(second), wait(settled(3))]), lambda _: None)
    task.start()
    second.set(2)
    assert not task.finished
    first.set(1)
    assert task.value == [1, 2, 3]


def test_all_of_ends_the_others_with_its_waiter_and_tells_the_first_error():
    ended: list[str] = []

    async def wait(promise: Promise[int]) -> int:
        try:
            return await promise
        finally:
            ended.append("ended")

    never: Promise[int] = Promise()
    task: Task[list[int]] = Task(all_of([wait(never)]), lambda _: None)
    task.start()
    task.cancel()
    assert ended == ["ended"]
    failed: Promise[int] = Promise()
    failed.fail(ValueError("no"))
    task = Task(all_of([wait(failed), wait(settled(1))]), lambda _: None)
    task.start()
    assert isinstance(task.error, ValueError)


def test_what_runs_on_its_own_ends_whoever_waits() -> None:
    """A handler that waits for it may be cancelled; its error comes to whoever looks."""
    promise: Promise[int] = Promise()

    async def work() -> int:
        return await promise + 1

    outcome = on_its_own(work())

    async def handler() -> int:
        return await outcome

    task = Task(handler(), Ended())
    task.start()
    task.cancel()
    promise.set(1)
    assert outcome.result() == 2
    failing: Promise[int] = Promise()
    failing.fail(ValueError("no"))

    async def fails() -> int:
        return await failing

    with pytest.raises(ValueError, match="no"):
        on_its_own(fails()).result()


class Frame:
    """Something large that a handler touches; weakly referenced to see whether it is gone."""


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("ends", ["with a value", "cancelled", "cancelled by itself"])
def test_what_a_handler_held_is_gone_with_its_end_without_a_garbage_collector(ends: str) -> None:
    """Frames of megabytes would wait for it otherwise: 30 of them were held in a busy group. (An error keeps its frames
    by its traceback.)"""
    promise: Promise[None] = Promise()
    tasks: list[Task[Frame]] = []

    async def handler(frame: Frame) -> Frame:
        await promise
        if ends == "cancelled by itself":
            tasks[0].cancel()
            await Promise()
        return frame

    def start() -> weakref.ref[Frame]:
        frame = Frame()
        tasks.append(Task(handler(frame), lambda task: tasks.remove(task)))
        tasks[0].start()
        return weakref.ref(frame)

    held = start()
    assert held() is not None
    if ends == "cancelled":
        tasks.pop().cancel()
    else:
        promise.set(None)
    tasks.clear()
    assert held() is None


@pytest.mark.usefixtures("no_collector")
def test_what_several_handlers_at_once_held_is_gone_with_their_end_too() -> None:
    promise: Promise[None] = Promise()
    held: list[weakref.ref[Frame]] = []

    async def one() -> Frame:
        frame = Frame()
        held.append(weakref.ref(frame))
        await promise
        return frame

    async def several() -> int:
        return len(await all_of([one(), one(), on_its_own_of(one())]))

    async def on_its_own_of(coroutine: Coroutine[Promise[Any], None, Frame]) -> Frame:
        return await on_its_own(coroutine)

    ended: list[int | None] = []
    Task(several(), lambda task: ended.append(task.value)).start()
    promise.set(None)
    assert ended == [3]
    assert [frame() for frame in held] == [None] * 3
