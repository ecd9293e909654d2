"""The recipes of share groups do what they say, taken out of the page that people read."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio
from kafka_share_proxy import share_recipes
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.share_cluster import share_cluster
from tests.consumer.share_world import ShareKafka

A0 = TopicPartition("a", 0)
Clock = trio.testing.MockClock


def recipe(name: str) -> Callable[..., Any]:
    """The function of one block."""
    assert share_recipes.__doc__ is not None
    blocks = re.findall(r"\n\n((?: {4}.*\n|\n)+)", share_recipes.__doc__)
    (code,) = [textwrap.dedent(block) for block in blocks if f"async def {name}(" in block]
    names: dict[str, Any] = {}
    exec(compile(code, f"recipe {name}", "exec"), names)
    found: Callable[..., Any] = names[name]
    return found


async def test_a_share_worker_whose_job_outlasts_the_lock(
    autojump_clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs of up to nine locks; one fails the first time, one loses its lock: each record is done, the others once."""
    kafka = ShareKafka(a=1)
    kafka.share.lock_s = 2.0
    kafka.produce(A0, 20)
    begun: Counter[int] = Counter()
    done: Counter[int] = Counter()
    running: set[int] = set()
    most: list[int] = []

    async def work(record: Any) -> None:
        begun[record.offset] += 1
        running.add(record.offset)
        most.append(len(running))
        try:
            await trio.sleep(record.offset)
        finally:
            running.remove(record.offset)
        if record.offset == 5 and begun[5] == 1:
            raise ZeroDivisionError
        done[record.offset] += 1

    async with share_cluster(kafka) as brokers, trio.open_nursery() as nursery:
        options = {"group": "g", "topics": ["a"], "connect": brokers.brokers.net}
        servers = "kafka:9091,kafka:9092"
        nursery.start_soon(lambda: recipe("share_worker")(servers, work, limit=8, **options))
        with trio.fail_after(300):
            while len(kafka.share.share(A0).settled) < 20:  # noqa: ASYNC110 - of a program that notifies no caller
                await trio.sleep(1)
        assert done == Counter(range(20))
        assert max(most) == 8
        assert begun == Counter([*range(20), 5])
        assert {offset: count for offset, count in kafka.share.shares[A0].counts.items() if count > 1} == {5: 2}
        kafka.produce(A0, 1)
        await trio.sleep(1)
        brokers.cut()
        await trio.sleep(60)
        assert (begun[20], done[20]) == (2, 1)
        nursery.cancel_scope.cancel()
    assert "a-0 at 5 is released: ZeroDivisionError()" in capsys.readouterr().out


async def test_a_worker_that_delays_the_next_attempt(
    autojump_clock: Clock, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Two records fail at first: each is delivered again, and the brokers' lack of a delay is logged once."""
    kafka = ShareKafka(a=1)
    kafka.produce(A0, 10)
    begun: Counter[int] = Counter()

    async def work(record: Any) -> None:
        begun[record.offset] += 1
        if record.offset in (3, 7) and begun[record.offset] == 1:
            raise ZeroDivisionError

    async with share_cluster(kafka) as brokers, trio.open_nursery() as nursery:
        options = {"group": "g", "topics": ["a"], "connect": brokers.brokers.net}
        nursery.start_soon(lambda: recipe("patient_worker")("kafka:9091,kafka:9092", work, **options))
        with trio.fail_after(300):
            while len(kafka.share.share(A0).settled) < 10:  # noqa: ASYNC110 - of a program that notifies no caller
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert begun == Counter([*range(10), 3, 7])
    assert capsys.readouterr().out.count("waits 1.0 s") == 2
    assert sum("has no effect" in each.message for each in caplog.records) == 1
