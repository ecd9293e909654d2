"""Callbacks and the ends of polls, where they are cancelled or raise."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.consumer.groups.states import RebalanceState
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.application import RecordingListener, read, until
from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
COOPERATIVE: dict[str, Any] = {
    "group": "g",
    "topics": ["a"],
    "assignors": ("cooperative-sticky",),
    "auto_offset_reset": "earliest",
}


class WithTasks(RebalanceListener):
    """Listener that works in separate tasks, so that a cancellation leaves it in a group."""

    def __init__(self) -> None:
        self.start_count = self.ended = 0

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.start_count += 1
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(trio.sleep, 5)
        self.ended += 1


async def test_a_callback_with_tasks_that_is_cancelled_runs_again(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    listener = WithTasks()
    async with cluster(kafka) as brokers, brokers.consumer(listener=listener, **COOPERATIVE) as reader:
        with trio.move_on_after(3):
            await reader.poll()
        assert (listener.start_count, listener.ended) == (1, 0)
        assert reader.state().rebalance is RebalanceState.ASSIGNING_PARTITIONS
        assert await read(reader, 1) == [(0, 0)]
        assert (listener.start_count, listener.ended) == (2, 1)


@pytest.mark.parametrize("fails", ["is cancelled", "raises"])
async def test_a_revoke_whose_callback_fails_is_completed_once(fails: str, autojump_clock: Clock) -> None:
    """A cancelled callback is called again; one that raised is not."""
    kafka = FakeKafka(a=2)
    listener = RecordingListener()
    async with cluster(kafka) as brokers, brokers.consumer(listener=listener, **COOPERATIVE) as first:
        await until(first, lambda: first.assignment == {A0, A1})
        async with brokers.consumer(client_id="b", **COOPERATIVE) as second, trio.open_nursery() as nursery:
            nursery.start_soon(until, second, lambda: len(second.assignment) == 1)
            going: Partitions = frozenset()
            while not going:
                going = (await first.poll(1)).to_be_revoked
            if fails == "raises":
                listener.error = KeyError("callback")
                with pytest.raises(KeyError):
                    await first.poll(1)
                listener.error = None
            else:
                listener.pause_s = 10
                with trio.move_on_after(3):
                    await first.poll()
                assert ("revoked", going) not in listener.received
                listener.pause_s = 0
            await until(first, lambda: len(first.assignment) == 1 and len(second.assignment) == 1)
            assert listener.received.count(("revoked", going)) == 1


async def test_a_delay_holds_through_polls_that_are_cancelled(autojump_clock: Clock) -> None:
    """A poll that was cancelled is not one more poll: what was delayed before it is delayed still."""
    kafka = FakeKafka(a=2)
    async with cluster(kafka) as brokers, brokers.consumer(**COOPERATIVE) as first:
        await until(first, lambda: first.assignment == {A0, A1})
        async with brokers.consumer(client_id="b", **COOPERATIVE) as second, trio.open_nursery() as nursery:
            nursery.start_soon(until, second, lambda: len(second.assignment) == 1)
            going: Partitions = frozenset()
            while not going:
                going = (await first.poll(1)).to_be_revoked
            first.delay_revoke(going)
            for hundredths in range(1, 30):
                with trio.move_on_after(hundredths / 100):
                    await first.poll()
                assert first.to_be_revoked == going
                assert first.assignment == {A0, A1}
            await until(first, lambda: len(first.assignment) == 1 and len(second.assignment) == 1)


async def test_a_callback_that_never_ends_costs_the_membership(autojump_clock: Clock) -> None:
    """max.poll.interval counts while a callback runs, and not while poll waits: other members get the partitions."""
    kafka = FakeKafka(a=1)
    listener = RecordingListener(pause_s=1000)
    options = {**COOPERATIVE, "max_poll_interval_s": 20.0}
    async with cluster(kafka) as brokers, brokers.consumer(listener=listener, **options) as reader:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.poll)
            await trio.sleep(15)
            assert len(kafka.group.members) == 1
            await trio.sleep(15)
            assert kafka.group.members == {}
            nursery.cancel_scope.cancel()
        listener.pause_s = 5
        await until(reader, lambda: reader.assignment == {A0} and reader.state().rebalance is RebalanceState.STABLE)
        assert (await reader.poll(100)).lost == frozenset()
        assert len(kafka.group.members) == 1


async def test_r001_8_subscribing_to_nothing_unsubscribes_by_the_next_poll(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    listener = RecordingListener()
    async with cluster(kafka) as brokers, brokers.consumer(listener=listener, **COOPERATIVE) as reader:
        await read(reader, 1)
        kafka.produce(A0, 1)
        await trio.sleep(1)
        reader.subscribe([])
        reader.subscribe(["a"])  # changed its mind
        assert len((await reader.poll(1)).records) == 1
        kafka.produce(A0, 1)
        await trio.sleep(1)
        reader.subscribe([])
        assert len((await reader.poll(1)).records) == 0, "what was fetched is dropped"
        assert listener.received == [("assigned", frozenset({A0})), ("revoked", frozenset({A0}))]
        assert (reader.assignment, kafka.group.members) == (frozenset(), {})
        reader.subscribe(["a"])
        await until(reader, lambda: reader.assignment == {A0})


async def test_r001_8_a_loop_that_subscribes_to_nothing_leaves_no_record_to_the_next_poll(
    autojump_clock: Clock,
) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 3)
    async with cluster(kafka) as brokers, brokers.consumer(**COOPERATIVE) as reader:
        async for record in reader:
            assert record.offset == 0
            reader.subscribe([])
            break
        assert len((await reader.poll(1)).records) == 0
        assert len((await reader.poll(1)).records) == 0
        assert kafka.group.members == {}


async def test_unsubscribing_calls_the_listener_and_ends_delays(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    listener = RecordingListener(pause_s=2)
    async with cluster(kafka) as brokers, brokers.consumer(listener=listener, **COOPERATIVE) as reader:
        await read(reader, 1)
        with trio.move_on_after(1):
            await reader.unsubscribe()
        assert reader.assignment == {A0}, "cancelled within its callback: nothing has happened"
        await reader.unsubscribe()
        assert listener.received == [("assigned", frozenset({A0})), ("revoked", frozenset({A0}))]
        assert (reader.assignment, kafka.group.members) == (frozenset(), {})
        reader.subscribe(["a"])
        await until(reader, lambda: reader.assignment == {A0})
