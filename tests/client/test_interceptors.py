"""Interceptors see what poll returns and what the group accepts, and cannot break the consumer (KIP-42)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio
from kafka_share_proxy.client.interceptors import ConsumerInterceptor, Interceptors
from kafka_share_proxy.client.notes import INTERCEPTOR_FAILED, ConsumerNote
from kafka_share_proxy.client.polled_records import ConsumerRecord
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0 = TopicPartition("a", 0)
Clock = trio.testing.MockClock
OPTIONS: dict[str, Any] = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest"}


class RecordingInterceptor(ConsumerInterceptor):
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.committed: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.closed = 0

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        self.values += [each.value for each in records]
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append(offsets)

    def close(self) -> None:
        self.closed += 1


class EvenOnly(ConsumerInterceptor):
    """Leaves out every other record."""

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        return [each for each in records if each.offset % 2 == 0]


class Broken(ConsumerInterceptor):
    """Fails at everything."""

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        raise RuntimeError("on_consume")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("on_commit")

    def close(self) -> None:
        raise RuntimeError("close")


def kafka_of_ten() -> FakeKafka:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 10)
    return kafka


async def test_interceptors_see_records_in_order_and_what_the_group_accepts(autojump_clock: Clock) -> None:
    before, behind = RecordingInterceptor(), RecordingInterceptor()
    async with (
        cluster(kafka_of_ten()) as brokers,
        brokers.consumer(**OPTIONS, interceptors=[before, EvenOnly(), behind]) as reader,
    ):
        records = (await reader.poll(60)).records
        assert [each.offset for each in records] == [0, 2, 4, 6, 8]
        assert (len(records), records[-1].offset, records[1:2][0].offset) == (5, 8, 2)
        assert [each.offset for each in records.of(A0)] == [0, 2, 4, 6, 8]
        assert records.partitions == {A0}
        assert (len(before.values), len(behind.values)) == (10, 5)
        await reader.commit()
        assert [dict(each)[A0].offset for each in behind.committed] == [10], "what is left out is consumed"
        assert behind.closed == 0
    assert (before.closed, behind.closed) == (1, 1)


async def test_automatic_commits_are_seen(autojump_clock: Clock) -> None:
    interceptor = RecordingInterceptor()
    async with (
        cluster(kafka_of_ten()) as brokers,
        brokers.consumer(**OPTIONS, auto_commit_interval_s=1.0, interceptors=[interceptor]) as reader,
    ):
        await reader.poll(60)
        await trio.sleep(2)
        await reader.poll(1)
        assert [dict(each)[A0].offset for each in interceptor.committed] == [10]


async def test_records_left_out_count_as_done_where_commits_are_individual(autojump_clock: Clock) -> None:
    async with (
        cluster(kafka_of_ten()) as brokers,
        brokers.consumer(**OPTIONS, individual_commits=True, interceptors=[EvenOnly()]) as reader,
    ):
        records = (await reader.poll(60)).records
        for record in records[1:]:
            reader.done(record)
        await reader.commit()
        committed = (await reader.committed([A0]))[A0]
        assert committed is not None
        assert (committed.offset, committed.metadata) == (0, "ic/1;1-9")
        reader.done(records[0])
        await reader.commit()
        committed = (await reader.committed([A0]))[A0]
        assert committed is not None
        assert committed.offset == 10


async def test_an_exception_of_an_interceptor_is_noted_and_not_raised(autojump_clock: Clock) -> None:
    notes: list[ConsumerNote] = []
    async with (
        cluster(kafka_of_ten()) as brokers,
        brokers.consumer(**OPTIONS, interceptors=[Broken()], observe=notes.append) as reader,
    ):
        assert len((await reader.poll(60)).records) == 10
        await reader.commit()
    failed = [each.facts for each in notes if each.event == INTERCEPTOR_FAILED]
    assert [(each["interceptor"], each["method"]) for each in failed] == [
        ("Broken", "on_consume"), ("Broken", "on_commit"), ("Broken", "close"),
    ]  # fmt: skip
    assert failed[0]["error"] == "RuntimeError('on_consume')"


def test_without_interceptors_records_are_not_touched() -> None:
    assert not Interceptors((), lambda _: None)
    assert ConsumerInterceptor().on_consume([]) == []
