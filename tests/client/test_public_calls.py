"""Every call of both consumers, by name: each may be cancelled at any of its waits; misuse raises before any I/O."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.polled_records import ConsumerRecord
from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.client.share_records import ShareRecord
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import cluster
from tests.client.share_cluster import share_cluster
from tests.client.test_cancellation import CancelledAt
from tests.consumer.share_world import ShareKafka
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
RECORD = ConsumerRecord("a", 0, None, b"", (), 0, 0, 0)
STRANGER = ShareRecord("a", 0, None, None, (), 0, 7, 0, 1, 99)

AWAITED: Mapping[str, Callable[[Consumer], Awaitable[Any]]] = {
    "poll": lambda reader: reader.poll(5),
    "__anext__": lambda reader: reader.__anext__(),
    "position": lambda reader: reader.position(A0),
    "commit": lambda reader: reader.commit(),
    "committed": lambda reader: reader.committed([A0]),
    "beginning_offsets": lambda reader: reader.beginning_offsets([A0]),
    "end_offsets": lambda reader: reader.end_offsets([A0], processed=True),
    "offsets_for_times": lambda reader: reader.offsets_for_times({A0: 0}),
    "seek_to_beginning": lambda reader: reader.seek_to_beginning(),
    "list_topics": lambda reader: reader.list_topics(),
    "partitions_for": lambda reader: reader.partitions_for("a"),
}
SHARE_AWAITED: Mapping[str, Callable[[ShareConsumer], Awaitable[Any]]] = {
    "poll": lambda consumer: consumer.poll(5),
    "__anext__": lambda consumer: consumer.__anext__(),
    "commit": lambda consumer: consumer.commit(),
    "list_topics": lambda consumer: consumer.list_topics(),
    "partitions_for": lambda consumer: consumer.partitions_for("a"),
}
ELSEWHERE = {"work", "unsubscribe", "close", "seek_to_end"}
"""Their effects are other ones: test_cancellation.py and below; seek_to_end is seek_to_beginning at the other end."""
SHARE_ELSEWHERE = {"work", "renew", "unsubscribe", "close"}
"""test_share_consumer.py, and below."""

Misuse = tuple[Callable[[Any], Any], type[Exception], str]
MISUSE: Mapping[str, list[Misuse]] = {
    "subscribe": [
        (lambda reader: reader.subscribe(), ValueError, "topics or to a pattern"),
        (lambda reader: reader.subscribe("a"), ValueError, "write a list of names"),
        (lambda reader: reader.subscribe(["a"], pattern="b"), ValueError, "topics or to a pattern"),
        (lambda reader: reader.subscribe(pattern="("), ValueError, "no regular expression"),
    ],
    "assign": [
        (lambda reader: reader.assign([("", 0)]), ValueError, "a topic has a name"),
        (lambda reader: reader.assign(["a"]), ValueError, "is no partition"),
    ],
    "delay_revoke": [(lambda reader: reader.delay_revoke([A0]), ValueError, "not to be revoked: a-0")],
    "poll": [
        (lambda reader: reader.poll(-1), ValueError, "timeout_s -1"),
        (lambda reader: reader.poll(float("nan")), ValueError, "timeout_s nan"),
        (lambda reader: reader.poll(max_records=0), ValueError, "max_records 0"),
    ],
    "seek": [
        (lambda reader: reader.seek(A1, 0), ValueError, "a-1 is not assigned: a-0"),
        (lambda reader: reader.seek(A0, -1), ValueError, "negative"),
    ],
    "seek_to_beginning": [(lambda reader: reader.seek_to_beginning([A1]), ValueError, "a-1 is not assigned")],
    "seek_to_end": [(lambda reader: reader.seek_to_end(["a"]), ValueError, "is no partition")],
    "lag": [(lambda reader: reader.lag(A1), ValueError, "a-1 is not assigned")],
    "high_watermark": [(lambda reader: reader.high_watermark(A1), ValueError, "a-1 is not assigned")],
    "partitions_for": [(lambda reader: reader.partitions_for(""), ValueError, "a topic has a name")],
    "pause": [(lambda reader: reader.pause([("b", 0)]), ValueError, "b-0 is not assigned")],
    "resume": [(lambda reader: reader.resume([A0, A1]), ValueError, "a-1 is not assigned")],
    "position": [(lambda reader: reader.position(A1), ValueError, "not assigned")],
    "commit": [
        (lambda reader: reader.commit({A0: -1}), ValueError, "offset -1 of a-0 is negative"),
        (lambda reader: reader.commit({"a": 1}), ValueError, "is no partition"),
    ],
    "done": [(lambda reader: reader.done(RECORD), ConfigurationError, "individual_commits=True")],
    "work": [(lambda reader: reader.work(RECORD), ConfigurationError, "individual_commits=True")],
    "committed": [(lambda reader: reader.committed([("a", -1)]), ValueError, "count from 0")],
    "beginning_offsets": [(lambda reader: reader.beginning_offsets(["a"]), ValueError, "is no partition")],
    "end_offsets": [(lambda reader: reader.end_offsets([("a", "0")]), ValueError, "is no partition")],
    "offsets_for_times": [(lambda reader: reader.offsets_for_times({A0: -5}), ValueError, "timestamp -5 of a-0")],
}
"""Misuse in a group."""
NEEDS_A_GROUP: Mapping[str, Callable[[Consumer], Any]] = {
    "subscribe": lambda reader: reader.subscribe(["a"]),
    "commit": lambda reader: reader.commit({A0: 1}),
    "committed": lambda reader: reader.committed([A0]),
    "group_metadata": lambda reader: reader.group_metadata(),
}
SHARE_MISUSE: Mapping[str, list[Misuse]] = {
    "subscribe": [
        (lambda consumer: consumer.subscribe([]), ValueError, "at least one topic"),
        (lambda consumer: consumer.subscribe("a"), ValueError, "write a list of names"),
    ],
    "poll": [
        (lambda consumer: consumer.poll(), ConfigurationError, "call subscribe"),
        (lambda consumer: consumer.poll(-1), ValueError, "0 or more"),
    ],
    "acknowledge": [
        (lambda consumer: consumer.acknowledge(STRANGER), ValueError, "is not held"),
        (lambda consumer: consumer.acknowledge(STRANGER, AcknowledgeType.GAP), ValueError, "one of ACCEPT"),
    ],
    "release": [
        (lambda consumer: consumer.release(STRANGER), ValueError, "is not held"),
        (lambda consumer: consumer.release(STRANGER, 901), ValueError, "0 to 900 seconds"),
    ],
    "partitions_for": [(lambda consumer: consumer.partitions_for(""), ValueError, "a topic has a name")],
    "renew": [(lambda consumer: consumer.renew(STRANGER), ValueError, "is not held")],
    "work": [(lambda consumer: consumer.work(STRANGER), ValueError, "is not held")],
}
"""Misuse in the explicit mode, without a subscription."""


# The tables name every call


def calls_of(kind: type) -> dict[str, Any]:
    """Return the public methods by name."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    return {name: method for name, method in methods if name == "__anext__" or not name.startswith("_")}


def waiting(kind: type) -> set[str]:
    """Return those that are awaited, or entered with `async with`."""
    return {name for name, method in calls_of(kind).items() if inspect.iscoroutinefunction(inspect.unwrap(method))} | {
        name for name, method in calls_of(kind).items() if inspect.isasyncgenfunction(inspect.unwrap(method))
    }


def with_arguments(kind: type) -> set[str]:
    return {name for name, method in calls_of(kind).items() if len(inspect.signature(method).parameters) > 1}


def test_every_call_that_waits_is_cancelled_somewhere() -> None:
    assert waiting(Consumer) == AWAITED.keys() | ELSEWHERE
    assert waiting(ShareConsumer) == SHARE_AWAITED.keys() | SHARE_ELSEWHERE


def test_every_call_that_takes_something_is_misused() -> None:
    assert with_arguments(Consumer) == MISUSE.keys()
    assert with_arguments(ShareConsumer) - {"on_result"} == SHARE_MISUSE.keys(), "on_result is for the network task"


# Cancellation


@pytest.mark.parametrize("call", AWAITED)
async def test_a_call_that_is_cancelled_at_each_of_its_waits_loses_nothing(call: str, autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    options = {"group": "g", "partitions": [A0], "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        kafka.produce(A0, 2)
        (result,) = await CancelledAt().until_it_ends(lambda: AWAITED[call](reader))
        records = result.records if call == "poll" else [result] if call == "__anext__" else []
        got = [record.offset for record in records]
        kafka.produce(A0, 3)
        with trio.fail_after(60):
            while len(got) < 5:
                got += [record.offset for record in (await reader.poll(1)).records]
        assert got == [0, 1, 2, 3, 4]
        await reader.commit()
        assert await reader.committed([A0]) == {A0: OffsetAndMetadata(5)}


async def test_unsubscribing_that_is_cancelled_at_each_of_its_waits_gives_all_up(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 3)
    options = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        await reader.poll(60)
        await reader.commit()
        await CancelledAt().until_it_ends(reader.unsubscribe)
        assert (reader.assignment, kafka.group.members) == (frozenset(), {})
        reader.subscribe(["a"])
        kafka.produce(A0, 1)
        assert [record.offset for record in (await reader.poll(60)).records] == [3]


@pytest.mark.parametrize("call", SHARE_AWAITED)
async def test_a_share_call_that_is_cancelled_at_each_of_its_waits_loses_nothing(
    call: str, autojump_clock: Clock
) -> None:
    kafka = ShareKafka(a=1)
    kafka.produce(A0, 4)
    got: list[int] = []
    async with share_cluster(kafka) as brokers, brokers.consumer(max_poll_records=2) as consumer:
        if call == "commit":
            for record in await consumer.poll():
                got.append(record.offset)
                consumer.acknowledge(record)
        (result,) = await CancelledAt().until_it_ends(lambda: SHARE_AWAITED[call](consumer))
        polled = result if call == "poll" else [result] if call == "__anext__" else []
        with trio.fail_after(60):
            while polled or len(got) < 4:
                for record in polled:
                    got.append(record.offset)
                    consumer.acknowledge(record)
                polled = [] if len(got) == 4 else await consumer.poll(5)
        await consumer.commit()
        assert sorted(got) == [0, 1, 2, 3]
        assert kafka.share.share(A0).settled == {0, 1, 2, 3}


async def test_closing_a_share_consumer_is_completed_by_the_end_of_the_block(autojump_clock: Clock) -> None:
    kafka = ShareKafka(a=1)
    kafka.produce(A0, 2)
    async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
        (first, _) = await consumer.poll()
        consumer.acknowledge(first)
        await CancelledAt().until_it_ends(consumer.close)
        assert (kafka.share.members, kafka.share.sessions) == ({}, {})
        assert (kafka.share.share(A0).settled, kafka.share.share(A0).locks) == ({0}, {})


# Misuse


async def raised_by(misuse: Callable[[Any], Any], consumer: Any) -> None:
    """Do it, and wait for it or enter it where that is how it is used."""
    result = misuse(consumer)
    if isinstance(result, AbstractAsyncContextManager):
        async with result:
            pytest.fail("the block must not run")
    if inspect.isawaitable(result):
        await result


@pytest.mark.parametrize(("misuse", "error", "words"), [each for calls in MISUSE.values() for each in calls])
async def test_misuse_raises_before_anything_is_sent(
    misuse: Callable[[Consumer], Any], error: type[Exception], words: str, autojump_clock: Clock
) -> None:
    async with cluster(FakeKafka(a=1)) as brokers, brokers.consumer(group="g", partitions=[A0]) as reader:
        with pytest.raises(error, match=words):
            await raised_by(misuse, reader)
        assert brokers.net.dialled == []


@pytest.mark.parametrize("call", NEEDS_A_GROUP)
async def test_calls_that_need_a_group_raise_before_anything_is_sent(call: str, autojump_clock: Clock) -> None:
    async with cluster(FakeKafka(a=1)) as brokers, brokers.consumer(partitions=[A0]) as reader:
        with pytest.raises(ConfigurationError, match=f"{call} needs a group"):
            await raised_by(NEEDS_A_GROUP[call], reader)
        assert brokers.net.dialled == []


@pytest.mark.parametrize(("misuse", "error", "words"), [each for calls in SHARE_MISUSE.values() for each in calls])
async def test_misuse_of_a_share_consumer_raises_before_anything_is_sent(
    misuse: Callable[[ShareConsumer], Any], error: type[Exception], words: str, autojump_clock: Clock
) -> None:
    async with share_cluster(ShareKafka(a=1)) as brokers, brokers.consumer(topics=[]) as consumer:
        with pytest.raises(error, match=words):
            await raised_by(misuse, consumer)
        await trio.sleep(1)
        assert brokers.brokers.requests == []
