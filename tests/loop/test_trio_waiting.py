"""A Trio task waits for a promise."""

from __future__ import annotations

import trio
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.trio_waiting import until_settled

from tests.support.awaited import is_awaited


async def test_a_task_continues_when_the_promise_is_settled_or_failed(autojump_clock: object) -> None:
    for settle in (lambda promise: promise.set(1), lambda promise: promise.fail(ValueError("lost"))):
        promise: Promise[int] = Promise()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_settled, promise)
            await trio.testing.wait_all_tasks_blocked()
            settle(promise)
        await until_settled(promise)


async def test_a_cancelled_wait_leaves_no_callback(autojump_clock: object) -> None:
    promise: Promise[None] = Promise()
    with trio.move_on_after(1):
        await until_settled(promise)
    assert not is_awaited(promise)
