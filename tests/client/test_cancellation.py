"""Cancelled at any await of the public API: nothing is lost, and nothing repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.application import offsets, until
from tests.client.cluster import ScriptedCluster, cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
STEPS_MAX = 400
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"assignors": ("range",)},
    "cooperative": {"assignors": ("cooperative-sticky",)},
    "consumer": {"group_protocol": "consumer"},
}


class CancelledAt:
    """Cancels at one wait after the other: the first wait of a call, then the second, until the call has no further
    wait.
    """

    def __init__(self) -> None:
        self.step = 0

    async def until_it_ends(self, call: Callable[[], Awaitable[Any]]) -> list[Any]:
        """Repeat the call, cancelled one wait later each time. Return its result once it completes."""
        for self.step in range(STEPS_MAX):
            with trio.CancelScope() as scope:
                left = self.step

                def count_down(*_: Any, scope: trio.CancelScope = scope) -> None:
                    nonlocal left
                    if left == 0:
                        scope.cancel()
                    left -= 1

                with counting(trio.lowlevel.current_task(), count_down):
                    return [await call()]
        raise AssertionError("it never ended")


class counting(trio.abc.Instrument):
    """Calls back before each step of a task."""

    def __init__(self, task: trio.lowlevel.Task, stepped: Callable[[], None]) -> None:
        self._task, self._stepped = task, stepped

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._stepped()

    def __enter__(self) -> None:
        trio.lowlevel.add_instrument(self)

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)


@asynccontextmanager
async def reading(kafka: FakeKafka, **options: Any) -> AsyncIterator[tuple[ScriptedCluster, Consumer]]:
    async with cluster(kafka) as brokers, brokers.consumer(auto_offset_reset="earliest", **options) as reader:
        yield brokers, reader


async def test_a_cancelled_loop_over_records_continues_after_the_last_one(autojump_clock: Clock) -> None:
    """`async for`: each record is returned once, wherever `__anext__` was cancelled."""
    kafka = FakeKafka(a=1)
    async with reading(kafka, partitions=[A0]) as (_, reader):
        got = []
        for number in range(60):
            kafka.produce(A0, 1)
            (record,) = await CancelledAt().until_it_ends(reader.__anext__)
            got.append(record.offset)
            assert record.offset == number
        assert got == list(range(60))


async def test_work_that_is_cancelled_is_not_done(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 3)
    options = {"group": "g", "topics": ["a"], "individual_commits": True}
    async with reading(kafka, **options) as (_, reader):
        first, second, third = (await reader.poll(5)).records
        with trio.move_on_after(1):
            async with reader.work(second):
                await trio.sleep(5)
        for record in (first, third):
            async with reader.work(record):
                await trio.sleep(1)
        await CancelledAt().until_it_ends(reader.commit)
        assert (await reader.committed([A0]))[A0] == OffsetAndMetadata(1, "ic/1;2-2")
        assert reader.done(second)
        await CancelledAt().until_it_ends(reader.commit)
        assert (await reader.committed([A0]))[A0] == OffsetAndMetadata(3, "ic/1;")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_closing_that_is_cancelled_anywhere_is_completed_by_the_end_of_the_block(
    protocol: str, autojump_clock: Clock
) -> None:
    """The member leaves the group, so that another member gets everything immediately."""
    kafka = FakeKafka(group="consumer" if protocol == "consumer" else "classic", a=2)
    kafka.produce(A0, 5)
    options = {"group": "g", "topics": ["a"], **PROTOCOLS[protocol]}
    async with reading(kafka, **options) as (brokers, reader):
        await until(reader, lambda: reader.assignment == {A0, A1})
        await CancelledAt().until_it_ends(reader.close)
        async with brokers.consumer(client_id="b", auto_offset_reset="earliest", **options) as other:
            await until(other, lambda: other.assignment == {A0, A1}, 5)


@pytest.mark.parametrize("after", [0.0, 0.003, 0.006, 0.012, 0.03, 0.1, 0.3])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_block_that_is_cancelled_while_it_opens_or_joins_leaves_no_member(
    protocol: str, after: float, autojump_clock: Clock
) -> None:
    kafka = FakeKafka(group="consumer" if protocol == "consumer" else "classic", a=2)
    options: dict[str, Any] = {"group": "g", "topics": ["a"], **PROTOCOLS[protocol]}
    async with cluster(kafka) as brokers:
        with trio.move_on_after(after) as scope:
            async with brokers.consumer(**options) as reader:
                for _ in range(1000):
                    await reader.poll(10)
        assert scope.cancelled_caught
        async with brokers.consumer(client_id="b", **options) as other:
            await until(other, lambda: other.assignment == {A0, A1}, 5)


class Slow(RebalanceListener):
    """Callbacks that wait, so that they can be cancelled; and what ended."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Partitions]] = []

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        await trio.sleep(0.02)
        self.received.append(("assigned", partitions))

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        await trio.sleep(0.02)
        self.received.append(("revoked", partitions))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_polls_that_are_cancelled_anywhere_during_rebalances_lose_and_repeat_nothing(
    protocol: str, autojump_clock: Clock
) -> None:
    """A member joins and leaves repeatedly; cancelled callbacks run again, and each completes once."""
    kafka = FakeKafka(group="consumer" if protocol == "consumer" else "classic", a=2)
    listener = Slow()
    options: dict[str, Any] = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest", **PROTOCOLS[protocol]}
    got: list[tuple[int, int]] = []
    async with cluster(kafka) as brokers, brokers.consumer(listener=listener, **options) as reader:

        async def cancelled_polls(condition: Callable[[], bool]) -> None:
            for iteration in range(3000):
                if condition():
                    return
                with trio.move_on_after((iteration % 23) / 300):
                    result = await reader.poll(1)
                    got.extend(offsets(result))
                    if result.records:
                        with trio.CancelScope(shield=True):
                            await reader.commit()
            raise AssertionError(reader.state())

        await cancelled_polls(lambda: reader.assignment == {A0, A1})
        for _ in range(4):
            async with brokers.consumer(client_id="b", **options) as other, trio.open_nursery() as nursery:
                nursery.start_soon(until, other, lambda: len(other.assignment) == 1, 120)
                await cancelled_polls(lambda: len(reader.assignment) == 1)
                for place in (A0, A1):
                    kafka.produce(place, 5)
            await cancelled_polls(lambda: reader.assignment == {A0, A1})
            await cancelled_polls(lambda: len(set(got)) >= sum(kafka.ends.values()))
        assert sorted(got) == [(n, offset) for n in (0, 1) for offset in range(20)]
    held: set[TopicPartition] = set()
    for kind, partitions in listener.received:
        assert (partitions <= held) if kind == "revoked" else not (partitions & held)
        held = held - partitions if kind == "revoked" else held | partitions
    assert not held
