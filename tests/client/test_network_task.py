"""The network side: results reach their caller once; data kept for the application is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from kafka_share_proxy.client import network_task
from kafka_share_proxy.client.network_task import ConsumerClosed, NetworkTask, jitter
from kafka_share_proxy.consumer.core import ConsumerCore
from kafka_share_proxy.consumer.events import (
    BackgroundError,
    Commit,
    ConsumerError,
    FetchArrived,
    FetchCommitted,
    ListOffsets,
    Subscribe,
)
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import Address, TopicPartition

from tests.client.cluster import ScriptedCluster, cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock


@asynccontextmanager
async def running(kafka: FakeKafka, group_id: str | None = "g") -> AsyncIterator[tuple[NetworkTask, ScriptedCluster]]:
    async with cluster(kafka) as brokers, trio.open_nursery() as nursery:
        core = ConsumerCore(ConsumerOptions(group_id=group_id), jitter=lambda: 0.0, member_id="m")
        network = NetworkTask(core, [Address("kafka", 9091)], brokers.net.settings)
        nursery.start_soon(network.run)
        yield network, brokers
        nursery.cancel_scope.cancel()


async def test_a_thousand_calls_from_several_tasks_end_once_each_in_order(autojump_clock: Clock) -> None:
    """A001-7 without its broker: the order of commits of a partition on the wire is the order of the calls."""
    kafka = FakeKafka(a=2)
    results: list[tuple[str, object]] = []
    async with running(kafka) as (network, _):

        async def work(partition: TopicPartition) -> None:
            requested = frozenset({partition})
            for number in range(250):
                offsets = {partition: OffsetAndMetadata(number)}
                results.append(("commit", await network.call(partial(Commit, offsets=offsets))))
                committed = await network.call(partial(FetchCommitted, partitions=requested))
                results.append(("committed", committed == offsets))

        async with trio.open_nursery() as nursery:
            for each in (A0, A1):
                nursery.start_soon(work, each)
    assert len(results) == 1000
    assert {result for name, result in results if name == "commit"} == {None}
    assert {result for name, result in results if name == "committed"} == {True}
    for each in (A0, A1):
        assert [offset for _, partition, offset in kafka.commits if partition == each] == list(range(250))


async def test_a_cancelled_call_is_carried_out_and_not_reported(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    async with running(kafka) as (network, _):
        with trio.move_on_after(0):
            await network.call(lambda call_id: Commit(call_id, {A0: OffsetAndMetadata(5)}))
        await trio.sleep(1)
        assert kafka.committed == {A0: 5}
        assert network.core.commits.is_idle


async def test_calls_end_with_the_task(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.leaderless = {A0}
    async with cluster(kafka) as brokers, trio.open_nursery() as outer:
        core = ConsumerCore(ConsumerOptions(), jitter=lambda: 0.0, member_id="m")
        network = NetworkTask(core, [Address("kafka", 9091)], brokers.net.settings)
        errors: list[Exception] = []

        async def send_request() -> None:
            try:
                await network.call(lambda call_id: ListOffsets(call_id, {A0: -1}))
            except ConsumerClosed as error:
                errors.append(error)

        async def wait() -> None:
            try:
                await network.wait_until(lambda: False)
            except ConsumerClosed as error:
                errors.append(error)

        outer.start_soon(send_request)
        outer.start_soon(wait)
        with trio.move_on_after(5):
            await network.run()
        await trio.sleep(1)
        assert len(errors) == 2
        with pytest.raises(ConsumerClosed):
            network.send_event(Subscribe(frozenset({"a"})))
        with pytest.raises(ConsumerClosed):
            await network.next_event()
        outer.cancel_scope.cancel()


async def test_calls_and_events_are_bounded(autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_task, "CALLS_MAX", 3)
    async with running(FakeKafka(a=1)) as (network, _):
        for _ in range(3):
            network.send_event(Subscribe(frozenset({"a"})))
        with pytest.raises(ConsumerError, match="3 calls wait already"):
            network.send_event(Subscribe(frozenset({"a"})))
        await trio.sleep(1)
        network.send_event(Subscribe(frozenset({"a"})))


async def test_untaken_errors_are_bounded_and_arrivals_are_reported_once(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_task, "ERRORS_MAX", 2)
    async with running(FakeKafka(a=1)) as (network, _):
        errors = [BackgroundError(error=ConsumerError(str(number))) for number in range(5)]
        network._report_application([*errors, *[FetchArrived(partitions=frozenset({A0}))] * 5])
        assert [await network.next_event() for _ in range(3)] == [*errors[:2], FetchArrived(partitions=frozenset({A0}))]
        network.on_error_reported()
        network.report_next_arrival()
        network._report_application([errors[4], FetchArrived(partitions=frozenset({A0}))])
        assert [await network.next_event() for _ in range(2)] == [errors[4], FetchArrived(partitions=frozenset({A0}))]
        with trio.move_on_after(1) as nothing:
            await network.next_event()
        assert nothing.cancelled_caught


async def test_misuse_that_only_the_network_task_notices_is_an_error_of_its_call(autojump_clock: Clock) -> None:
    async with running(FakeKafka(a=1), group_id=None) as (network, _):
        with pytest.raises(ConsumerError, match=r"needs a group\.id"):
            await network.call(lambda call_id: Commit(call_id, {A0: OffsetAndMetadata(1)}))
        network.send_event(Subscribe(frozenset({"a"})))
        event = await network.next_event()
        assert isinstance(event, BackgroundError)


async def test_a_deadline_in_the_past_does_not_make_the_network_task_spin(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(FakeKafka(a=1)) as (network, _):
        polls = 0
        poll = network.core.poll

        def late(now: float) -> list[object]:
            nonlocal polls
            polls += 1
            poll(now)
            network.core.next_deadline = now - 5
            return []

        monkeypatch.setattr(network.core, "poll", late)
        network.wake()
        await trio.sleep(1)
        assert polls <= 1002


def test_jitter_is_drawn_from_both_sides() -> None:
    drawn = [jitter() for _ in range(1000)]
    assert -1 <= min(drawn) < -0.5
    assert 0.5 < max(drawn) < 1
