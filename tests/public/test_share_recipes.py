"""The recipes of share groups do what they say, taken out of the page that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from kafka_share_proxy import share_recipes
from kafka_share_proxy.conformance.target.controlled import ControlledTarget

from tests.support.documents import docstring_function
from tests.support.target_client import NODES, served

LOCK_S = 15
"""Shortest duration of a lock that a broker allows by default."""
Clock = trio.testing.MockClock
recipe = partial(docstring_function, share_recipes)


@asynccontextmanager
async def working(
    name: str, work: Callable[[Any], Any], records: int, **options: Any
) -> AsyncIterator[ControlledTarget]:
    """Run a recipe inside the block, as a member of a group with records."""
    configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_S * 1000)}
    async with served() as server, trio.open_nursery() as nursery:
        await server.do("topics", name="a")
        await server.do("groups/configs", group="g", configs=configs)
        await server.do("topics/a/records", values=[f"{number}" for number in range(records)])
        options |= {"group": "g", "topics": ["a"], "connect": server.connect}
        nursery.start_soon(lambda: recipe(name)(server.bootstrap, work, **options))
        with trio.fail_after(1000):
            yield server
        nursery.cancel_scope.cancel()


async def test_a_share_worker_whose_job_outlasts_the_lock(
    autojump_clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs of up to nine locks; one fails the first time, one loses its lock: each record is done, the others once."""
    attempts: Counter[int] = Counter()
    done: Counter[int] = Counter()
    running: set[int] = set()
    most: list[int] = []

    async def work(record: Any) -> None:
        attempts[record.offset] += 1
        running.add(record.offset)
        most.append(len(running))
        try:
            await trio.sleep(record.offset * LOCK_S / 2)
        finally:
            running.remove(record.offset)
        if record.offset == 5 and attempts[5] == 1:
            raise ZeroDivisionError
        done[record.offset] += 1
        assert record.delivery_count == attempts[record.offset]

    async with working("share_worker", work, 20, limit=8) as server:
        while sum(done.values()) < 20:  # noqa: ASYNC110 - of a program that notifies no caller
            await trio.sleep(1)
        assert done == Counter(range(20))
        assert max(most) == 8
        assert attempts == Counter([*range(20), 5])
        await server.do("topics/a/records", values=["20"])
        await trio.sleep(1)
        for node in NODES:
            server.cut_connections(node)
        await trio.sleep(20 * LOCK_S)
        assert (attempts[20], done[20]) == (2, 1)
    assert "a-0 at 5 is released: ZeroDivisionError()" in capsys.readouterr().out


async def test_a_worker_that_delays_the_next_attempt(
    autojump_clock: Clock, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Two records fail at first: each is delivered again, and the brokers' lack of a delay is logged once."""
    attempts: Counter[int] = Counter()

    async def work(record: Any) -> None:
        attempts[record.offset] += 1
        if record.offset in (3, 7) and attempts[record.offset] == 1:
            raise ZeroDivisionError

    async with working("patient_worker", work, 10):
        while sum(attempts.values()) < 12:  # noqa: ASYNC110 - of a program that notifies no caller
            await trio.sleep(1)
    assert attempts == Counter([*range(10), 3, 7])
    assert capsys.readouterr().out.count("waits 1.0 s") == 2
    assert sum("has no effect" in each.message for each in caplog.records) == 1
