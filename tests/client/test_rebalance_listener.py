"""Callbacks of a rebalance listener, against scripted brokers in memory and a clock that jumps."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.application import RecordingListener, read, until
from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock


@pytest.mark.parametrize("same_poll", [False, True])
async def test_a_listener_gets_every_event_and_may_be_slow(same_poll: bool, autojump_clock: Clock) -> None:
    """A000-9 and A001-5: the callback sleeps for three session timeouts, and the member stays."""
    kafka = FakeKafka(a=2)
    listener = RecordingListener(pause_s=30)
    both = {
        "group": "g",
        "topics": ["a"],
        "assignors": ("cooperative-sticky",),
        "session_timeout_s": 10.0,
        "auto_offset_reset": "earliest",
    }
    opened = {**both, "listener": listener, "revoke_in_same_poll": same_poll}
    async with cluster(kafka) as brokers, brokers.consumer(**opened) as first:
        await until(first, lambda: first.assignment == {A0, A1}, 300)
        async with brokers.consumer(client_id="b", **both) as second, trio.open_nursery() as nursery:
            nursery.start_soon(until, second, lambda: len(second.assignment) == 1, 300)
            await until(first, lambda: len(first.assignment) == 1 and len(second.assignment) == 1, 300)
        (retained_partition,) = first.assignment
    lost = frozenset({A0, A1}) - {retained_partition}
    assert listener.received[0] == ("assigned", frozenset({A0, A1}))
    assert ("revoked", lost) in listener.received
    assert all(event != "lost" for event, _ in listener.received)
    assert sum(1 for event, partitions in listener.received if (event, partitions) == ("revoked", lost)) == 1


async def test_a_callback_that_raises_ends_the_poll_and_not_the_rebalance(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    listener = RecordingListener()
    listener.error = RuntimeError("callback")
    options = {"group": "g", "topics": ["a"], "listener": listener, "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        with pytest.raises(RuntimeError, match="callback"):
            await reader.poll(60)
        listener.error = None
        assert await read(reader, 1) == [(0, 0)]


async def test_a_callback_that_is_cancelled_runs_again_in_the_next_poll(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    listener = RecordingListener(pause_s=10)
    options = {"group": "g", "topics": ["a"], "listener": listener, "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        with trio.move_on_after(8):
            await reader.poll()
        assert listener.received == []
        assert await read(reader, 1) == [(0, 0)]
        assert listener.received == [("assigned", frozenset({A0}))]
