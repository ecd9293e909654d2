"""A consumer for the duration of a block: its results, and its end."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.client.network_task import ConsumerClosed
from kafka_share_proxy.consumer.core import ConsumerCore
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.application import RecordingListener, until
from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0 = TopicPartition("a", 0)
Clock = trio.testing.MockClock


async def test_the_listener_is_called_at_the_end_before_the_group_is_left(autojump_clock: Clock) -> None:
    """A000-10"""
    kafka = FakeKafka(a=1)
    listener = RecordingListener()
    async with cluster(kafka) as brokers:
        async with brokers.consumer(group="g", topics=["a"], listener=listener) as reader:
            await until(reader, lambda: reader.assignment == {A0})
            listener.pause_s = 1
        assert listener.received[-1] == ("revoked", frozenset({A0}))
        assert "LeaveGroup" in brokers.requests


async def test_an_exception_of_the_listener_at_the_end_is_raised_and_the_group_is_left(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    listener = RecordingListener()

    async def block() -> None:
        async with brokers.consumer(group="g", topics=["a"], listener=listener) as reader:
            await until(reader, lambda: reader.assignment == {A0})
            listener.error = RuntimeError("last words")

    async with cluster(kafka) as brokers:
        with pytest.raises(RuntimeError, match="last words"):
            await block()
        assert "LeaveGroup" in brokers.requests


async def test_commits_in_flight_are_finished_before_the_group_is_left(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    async with cluster(kafka) as brokers:
        async with brokers.consumer(group="g", topics=["a"]) as reader:
            await until(reader, lambda: reader.assignment == {A0})
            with trio.move_on_after(0):
                await reader.commit({A0: 3})
        assert kafka.committed == {A0: 3}
        order = [name for name in brokers.requests if name in ("OffsetCommit", "LeaveGroup")]
        assert order == ["OffsetCommit", "LeaveGroup"]


async def test_automatic_commits_contain_what_was_returned_before_the_last_poll(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 10)
    options = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest", "auto_commit_interval_s": 1.0}
    async with cluster(kafka) as brokers:
        async with brokers.consumer(max_poll_records=4, **options) as reader:
            got = 0
            while got < 8:
                got += len((await reader.poll(1)).records)
        assert kafka.committed == {A0: 8}


async def test_a_consumer_is_opened_once(autojump_clock: Clock) -> None:
    async with cluster(FakeKafka(a=1)) as brokers:
        opened = brokers.consumer()
        async with opened as reader:
            await reader.poll(0)
        with pytest.raises(RuntimeError, match="opened before"):
            await opened.__aenter__()


async def test_a_fault_of_the_network_side_ends_the_block(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of ours is not waited for."""
    async with cluster(FakeKafka(a=1)) as brokers:
        with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
            async with brokers.consumer(partitions=[A0]) as reader:
                await reader.poll(0)
                monkeypatch.setattr(ConsumerCore, "poll", lambda core, now: 1 // 0)
                with pytest.raises(ConsumerClosed):
                    await reader.poll(60)
