"""`async for` over a consumer: what is handed out, what is not any longer, and where positions and commits stand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from kafka_share_proxy.client import iterated_records
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.interceptors import ConsumerInterceptor
from kafka_share_proxy.client.polled_records import ConsumerRecord
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
EARLIEST = {"auto_offset_reset": "earliest"}


async def take_records(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Return the next records of a loop that stops after them."""
    got: list[tuple[int, int]] = []
    with trio.fail_after(60):
        async for record in consumer:
            got.append((record.partition, record.offset))
            if len(got) == count:
                break
    return got


async def first_of(consumer: Consumer, count: int) -> tuple[TopicPartition, TopicPartition]:
    """Take this many records of one partition. Returns: that, and the other one."""
    got = await take_records(consumer, count)
    number = got[0][0]
    assert got == [(number, offset) for offset in range(count)]
    return TopicPartition("a", number), TopicPartition("a", 1 - number)


def with_records(*counts: int) -> FakeKafka:
    kafka = FakeKafka(a=len(counts))
    for number, count in enumerate(counts):
        kafka.produce(TopicPartition("a", number), count)
    return kafka


async def test_a_commit_in_the_loop_goes_up_to_the_record_that_was_handed_out(autojump_clock: Clock) -> None:
    kafka = with_records(5, 5)
    async with cluster(kafka) as brokers, brokers.consumer(group="g", partitions=[A0, A1], **EARLIEST) as reader:
        first, other = await first_of(reader, 2)
        assert await reader.position(first) == 2
        await reader.commit()
        assert kafka.committed[first] == 2
        assert kafka.committed.get(other, 0) == 0
        await take_records(reader, 8)
        await reader.commit()
        assert kafka.committed == {A0: 5, A1: 5}


async def test_an_automatic_commit_at_the_end_leaves_what_was_not_handed_out(autojump_clock: Clock) -> None:
    kafka = with_records(5)
    options = {"group": "g", "topics": ["a"], "auto_commit_interval_s": 5, **EARLIEST}
    async with cluster(kafka) as brokers:
        async with brokers.consumer(**options) as reader:
            assert await take_records(reader, 3) == [(0, 0), (0, 1), (0, 2)]
        assert kafka.committed == {A0: 3}


async def test_a_record_of_a_lost_partition_is_not_returned(autojump_clock: Clock) -> None:
    kafka = with_records(4, 4)
    async with cluster(kafka) as brokers, brokers.consumer(group="g", topics=["a"], **EARLIEST) as reader:
        await first_of(reader, 1)
        kafka.group.remove(next(iter(kafka.group.members)), trio.current_time(), "test")
        with trio.fail_after(60):
            while A0 in reader.assignment:  # noqa: ASYNC110 - of the network task
                await trio.sleep(0.1)
        # It joins again with the same partitions and nothing committed: everything is delivered again, from the start.
        assert sorted(await take_records(reader, 8)) == [(number, offset) for number in (0, 1) for offset in range(4)]


async def test_a_seek_in_the_loop_continues_there(autojump_clock: Clock) -> None:
    async with (
        cluster(with_records(6, 6)) as brokers,
        brokers.consumer(partitions=[A0, A1], **EARLIEST) as reader,
    ):
        first, other = await first_of(reader, 2)
        reader.seek(first, 5)
        got = await take_records(reader, 7)
        assert sorted(got) == sorted([(first.partition, 5), *((other.partition, offset) for offset in range(6))])


async def test_a_poll_after_the_loop_returns_the_remaining_records(autojump_clock: Clock) -> None:
    async with (
        cluster(with_records(5, 5)) as brokers,
        brokers.consumer(partitions=[A0, A1], **EARLIEST) as reader,
    ):
        first, other = await first_of(reader, 2)
        polled = (await reader.poll(1, max_records=2)).records
        assert [(each.partition, each.offset) for each in polled] == [(first.partition, 2), (first.partition, 3)]
        assert polled.next_offsets() == {first: OffsetAndMetadata(4, leader_epoch=5)}
        assert await reader.position(first) == 4
        rest = [each for _ in range(2) for each in (await reader.poll(1)).records]
        assert [(each.partition, each.offset) for each in rest] == [
            (first.partition, 4), *((other.partition, offset) for offset in range(5))
        ]  # fmt: skip
        assert (await reader.position(A0), await reader.position(A1)) == (5, 5)


async def test_a_long_batch_is_returned_in_pieces_and_counts_only_returned_records(autojump_clock: Clock) -> None:
    kafka = with_records(700)
    async with cluster(kafka) as brokers, brokers.consumer(group="g", partitions=[A0], **EARLIEST) as reader:
        assert await take_records(reader, 300) == [(0, offset) for offset in range(300)]
        await reader.commit()
        assert kafka.committed == {A0: 300}
        assert await take_records(reader, 400) == [(0, offset) for offset in range(300, 700)]


class EveryOther(ConsumerInterceptor):
    """Leaves out odd offsets."""

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        return [each for each in records if each.offset % 2 == 0]


async def test_the_position_in_a_loop_passes_records_that_interceptors_leave_out(autojump_clock: Clock) -> None:
    kafka = with_records(6, 6)
    options = {"group": "g", "partitions": [A0, A1], "interceptors": [EveryOther()], **EARLIEST}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        got = await take_records(reader, 2)
        first = TopicPartition("a", got[0][0])
        await reader.commit()
        assert kafka.committed[first] in (3, 4)
        got += await take_records(reader, 4)
        assert sorted(got) == [(number, offset) for number in (0, 1) for offset in (0, 2, 4)]
        with trio.move_on_after(1):
            await reader.__anext__()
        await reader.commit()
        assert kafka.committed == {A0: 6, A1: 6}


@pytest.mark.parametrize("is_fallback", [False, True])
async def test_loops_calls_and_polls_take_from_the_same_records(
    is_fallback: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    """With the extension and without it."""
    if is_fallback:
        monkeypatch.setattr(iterated_records, "EXTENSION", None)
    kafka = with_records(12)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], **EARLIEST) as reader:
        assert await take_records(reader, 2) == [(0, 0), (0, 1)]
        assert (await anext(reader)).offset == 2
        assert (await anext(aiter(reader))).offset == 3
        polled = (await reader.poll(0, max_records=2)).records
        assert [record.offset for record in polled] == [4, 5]
        loop = aiter(reader)
        assert (await anext(loop)).offset == 6
        waiting = anext(loop)
        reader.seek(A0, 1)
        assert (await waiting).offset == 1
        assert await take_records(reader, 10) == [(0, offset) for offset in range(2, 12)]
