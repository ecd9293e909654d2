"""Every call sees the effects of earlier calls of the same task, also where nothing was awaited in between.

Each row of the tables is named `earlier call -> later call`. Every public name of a consumer is in a row or is waived.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.network_task import ConsumerClosed, WokenUp
from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import cluster
from tests.client.share_cluster import share_cluster
from tests.consumer.share_world import ShareKafka
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
Row = Callable[[Consumer, FakeKafka], Awaitable[None]]
ShareRow = Callable[[ShareConsumer, ShareKafka], Awaitable[None]]

RECORDS = 20
READ = 10
"""Records of each partition that were polled when a row begins."""
REPETITIONS = 5
"""Trio runs tasks in a random order: a stale read does not show each time."""


# Consumer


async def subscribe_assignment(c: Consumer, _: FakeKafka) -> None:
    c.subscribe(["a"])
    assert c.assignment == frozenset(), "what was assigned without a group is given up"


async def subscribe_commit(c: Consumer, kafka: FakeKafka) -> None:
    c.subscribe(["a"])
    await c.commit()
    assert kafka.committed == {}


async def assign_assignment(c: Consumer, _: FakeKafka) -> None:
    c.assign([A1])
    assert c.assignment == {A1}


async def assign_paused(c: Consumer, _: FakeKafka) -> None:
    c.pause([A0])
    c.assign([A0])
    assert c.paused == frozenset()


async def assign_position(c: Consumer, _: FakeKafka) -> None:
    c.assign([A0])
    assert await c.position(A0) == 0, "found anew"


async def assign_seek_position(c: Consumer, _: FakeKafka) -> None:
    c.assign([A0])
    c.seek(A0, 4)
    assert await c.position(A0) == 4


async def assign_commit(c: Consumer, kafka: FakeKafka) -> None:
    c.assign([A1])
    await c.commit()
    assert kafka.committed == {}


async def assign_poll(c: Consumer, _: FakeKafka) -> None:
    c.assign([A1])
    assert {record.partition for record in (await c.poll(1)).records} == {1}


async def assign_next(c: Consumer, _: FakeKafka) -> None:
    first = await anext(c)
    c.assign([A0 if first.partition else A1])
    assert (await anext(c)).partition != first.partition


async def unsubscribe_assignment(c: Consumer, _: FakeKafka) -> None:
    await c.unsubscribe()
    assert (c.assignment, c.paused, c.to_be_revoked) == (frozenset(), frozenset(), frozenset())


async def unsubscribe_poll(c: Consumer, _: FakeKafka) -> None:
    await c.unsubscribe()
    assert len((await c.poll(0)).records) == 0


async def seek_position(c: Consumer, _: FakeKafka) -> None:
    c.seek(A0, 3)
    assert await c.position(A0) == 3


async def seek_commit(c: Consumer, kafka: FakeKafka) -> None:
    c.seek(A0, 3)
    await c.commit()
    assert kafka.committed == {A0: 3, A1: READ}


async def seek_twice_commit(c: Consumer, kafka: FakeKafka) -> None:
    c.seek(A0, 3)
    c.seek(A0, 5)
    await c.commit()
    assert kafka.committed[A0] == 5


async def seek_commit_committed(c: Consumer, _: FakeKafka) -> None:
    c.seek(A0, 3)
    await c.commit()
    assert await c.committed([A0]) == {A0: OffsetAndMetadata(3)}


async def seek_poll(c: Consumer, _: FakeKafka) -> None:
    c.seek(A0, 3)
    c.pause([A1])
    assert (await c.poll(1, max_records=1)).records[0].offset == 3


async def seek_next(c: Consumer, _: FakeKafka) -> None:
    first = await anext(c)
    where = TopicPartition("a", first.partition)
    c.pause([A0 if where == A1 else A1])
    c.seek(where, 3)
    assert (await anext(c)).offset == 3


async def seek_pause_resume_position(c: Consumer, _: FakeKafka) -> None:
    c.pause([A0])
    c.seek(A0, 3)
    c.resume([A0])
    assert (c.paused, await c.position(A0)) == (frozenset(), 3)


async def pause_paused(c: Consumer, _: FakeKafka) -> None:
    c.pause([A0])
    assert c.paused == {A0}


async def resume_paused(c: Consumer, _: FakeKafka) -> None:
    c.pause([A0, A1])
    c.resume([A0])
    assert c.paused == {A1}


async def pause_poll(c: Consumer, _: FakeKafka) -> None:
    c.pause([A0])
    assert {record.partition for record in (await c.poll(1)).records} == {1}


async def pause_poll_of_what_a_loop_left(c: Consumer, _: FakeKafka) -> None:
    first = await anext(c)
    c.pause([TopicPartition("a", first.partition)])
    polled = [record for _ in range(3) for record in (await c.poll(1)).records]
    assert {record.partition for record in polled} == {1 - first.partition}
    c.resume([TopicPartition("a", first.partition)])
    again = [record for _ in range(3) for record in (await c.poll(1)).records]
    assert [record.offset for record in again] == list(range(READ + 1, RECORDS)), "nothing is lost"


async def pause_next(c: Consumer, _: FakeKafka) -> None:
    """The present piece of the loop is handed out to its end (client/README.md rule 29); here there is none."""
    c.pause([A0])
    assert {(await anext(c)).partition for _ in range(RECORDS - READ)} == {1}


async def resume_poll(c: Consumer, _: FakeKafka) -> None:
    c.pause([A0, A1])
    assert len((await c.poll(0)).records) == 0
    c.resume([A0])
    assert {record.partition for record in (await c.poll(1)).records} == {0}


async def poll_position(c: Consumer, _: FakeKafka) -> None:
    c.pause([A1])
    count = len((await c.poll(1, max_records=3)).records)
    assert (count, await c.position(A0)) == (3, READ + 3)


async def poll_offsets_processed(c: Consumer, _: FakeKafka) -> None:
    c.pause([A1])
    await c.poll(1, max_records=3)
    assert await c.end_offsets([A0], processed=True) == {A0: READ + 3}
    assert await c.beginning_offsets([A0], processed=True) == {A0: 0}


async def next_position(c: Consumer, _: FakeKafka) -> None:
    first = await anext(c)
    assert await c.position(TopicPartition("a", first.partition)) == READ + 1


async def next_commit(c: Consumer, kafka: FakeKafka) -> None:
    first = await anext(c)
    await c.commit()
    assert kafka.committed[TopicPartition("a", first.partition)] == READ + 1


async def commit_committed(c: Consumer, _: FakeKafka) -> None:
    await c.commit({A0: 7})
    assert await c.committed([A0]) == {A0: OffsetAndMetadata(7)}


async def wakeup_poll(c: Consumer, _: FakeKafka) -> None:
    c.wakeup()
    with pytest.raises(WokenUp):
        await c.poll()


async def close_poll(c: Consumer, _: FakeKafka) -> None:
    await c.close()
    assert c.assignment == frozenset()
    assert len((await c.poll(0)).records) == 0


async def seek_to_beginning_position(c: Consumer, _: FakeKafka) -> None:
    await c.seek_to_beginning([A0])
    assert await c.position(A0) == 0


async def seek_to_end_commit(c: Consumer, kafka: FakeKafka) -> None:
    await c.seek_to_end()
    await c.commit()
    assert kafka.committed == {A0: RECORDS, A1: RECORDS}


async def seek_lag(c: Consumer, _: FakeKafka) -> None:
    c.seek(A0, 3)
    assert c.lag(A0) == (c.high_watermark(A0) or 0) - 3


async def subscribe_subscription(c: Consumer, _: FakeKafka) -> None:
    c.subscribe(["b"])
    assert c.subscription() == {"b"}
    c.assign([A0])
    assert c.subscription() == frozenset()


CONSUMER_ROWS: list[Row] = [
    seek_to_beginning_position, seek_to_end_commit, seek_lag, subscribe_subscription,
    subscribe_assignment, subscribe_commit, assign_assignment, assign_paused, assign_position, assign_seek_position,
    assign_commit, assign_poll, assign_next, unsubscribe_assignment, unsubscribe_poll, seek_position, seek_commit,
    seek_twice_commit, seek_commit_committed, seek_poll, seek_next, seek_pause_resume_position, pause_paused,
    resume_paused, pause_poll, pause_poll_of_what_a_loop_left, pause_next, resume_poll, poll_position,
    poll_offsets_processed, next_position, next_commit, commit_committed, wakeup_poll, close_poll,
]  # fmt: skip


@pytest.mark.parametrize("row", CONSUMER_ROWS, ids=lambda row: row.__name__.replace("_", "-"))
async def test_every_call_of_a_consumer_sees_earlier_calls(row: Row, autojump_clock: Clock) -> None:
    for _ in range(REPETITIONS):
        kafka = FakeKafka(a=2)
        for each in (A0, A1):
            kafka.produce(each, READ)
            kafka.produce(each, RECORDS - READ)
        earliest: dict[str, Any] = {"auto_offset_reset": "earliest", "partitions": [A0, A1]}
        async with cluster(kafka) as brokers, brokers.consumer(group="g", **earliest) as consumer:
            for partition, other in ((A0, A1), (A1, A0)):
                consumer.pause([other])
                consumer.resume([partition])
                while await consumer.position(partition) < READ:
                    await consumer.poll(1, max_records=READ - await consumer.position(partition))
            consumer.resume([A0, A1])
            await row(consumer, kafka)


async def test_done_and_work_are_seen_by_commit(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 3)
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "partitions": [A0], "individual_commits": True}
    async with cluster(kafka) as brokers, brokers.consumer(group="g", **options) as consumer:
        one, two, three = (await consumer.poll(1)).records
        consumer.done(two)
        async with consumer.work(one):
            pass
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (2, "ic/1;")
        consumer.done(three)
        await consumer.commit()
        assert kafka.committed[A0] == 3


async def test_subscribe_to_a_group_is_seen_by_seek_and_delay_revoke(autojump_clock: Clock) -> None:
    """A partition that is not assigned yet is refused, although it was assigned before."""
    async with cluster(FakeKafka(a=2)) as brokers, brokers.consumer(group="g", partitions=[A0]) as consumer:
        consumer.subscribe(["a"])
        with pytest.raises(ValueError, match="is not assigned"):
            consumer.seek(A0, 1)
        with pytest.raises(ValueError, match="to be revoked"):
            consumer.delay_revoke([A0])


# Share consumer


async def s_unsubscribe_assignment(s: ShareConsumer, _: ShareKafka) -> None:
    await s.unsubscribe()
    assert (s.assignment, s.state().held) == (frozenset(), 0)


async def s_unsubscribe_poll(s: ShareConsumer, _: ShareKafka) -> None:
    await s.unsubscribe()
    with pytest.raises(ConfigurationError, match="subscription"):
        await s.poll(0)


async def s_unsubscribe_subscribe_poll(s: ShareConsumer, _: ShareKafka) -> None:
    """Records that the loop did not get are released and delivered again."""
    first = await anext(s)
    assert s.acknowledge(first)
    await s.unsubscribe()
    s.subscribe(["a"])
    again = await s.poll()
    assert {record.delivery_count for record in again if record.offset < RECORDS} == {2}
    assert all(map(s.acknowledge, again)), "their locks are held"


async def s_unsubscribe_acknowledge(s: ShareConsumer, _: ShareKafka) -> None:
    (record, *_rest) = await s.poll()
    await s.unsubscribe()
    assert s.acknowledge(record) is False


async def s_subscribe_poll(s: ShareConsumer, _: ShareKafka) -> None:
    s.subscribe(["a"])
    assert len(await s.poll()) == RECORDS


async def s_acknowledge_commit(s: ShareConsumer, kafka: ShareKafka) -> None:
    for record in await s.poll():
        s.acknowledge(record)
    assert await s.commit() == {A0: None}
    assert (kafka.share.share(A0).settled, s.state().held) == (set(range(RECORDS)), 0)


async def s_commit_nowait_commit(s: ShareConsumer, kafka: ShareKafka) -> None:
    for record in await s.poll():
        s.acknowledge(record)
    s.commit_nowait()
    assert await s.commit() == {A0: None}
    assert kafka.share.share(A0).settled == set(range(RECORDS))


async def s_work_commit(s: ShareConsumer, kafka: ShareKafka) -> None:
    (record, *_rest) = await s.poll()
    async with s.work(record):
        pass
    await s.commit()
    assert kafka.share.share(A0).settled == {record.offset}


async def s_work_acknowledge(s: ShareConsumer, _: ShareKafka) -> None:
    (record, *_rest) = await s.poll()
    async with s.work(record):
        pass
    await s.commit()
    with pytest.raises(ValueError, match="is not held"):
        s.acknowledge(record)


async def s_release_acknowledge(s: ShareConsumer, _: ShareKafka) -> None:
    (record, *_rest) = await s.poll()
    assert s.release(record)
    await s.commit()
    with pytest.raises(ValueError, match="is not held"):
        s.acknowledge(record)


async def s_renew_work(s: ShareConsumer, kafka: ShareKafka) -> None:
    (record, *_rest) = await s.poll()
    await s.renew(record)
    async with s.work(record):
        pass
    await s.commit()
    assert kafka.share.share(A0).settled == {record.offset}


async def s_poll_lock_timeout(s: ShareConsumer, _: ShareKafka) -> None:
    await s.poll()
    assert s.acquisition_lock_timeout_ms == 30_000


async def s_wakeup_poll(s: ShareConsumer, _: ShareKafka) -> None:
    s.wakeup()
    with pytest.raises(WokenUp):
        await s.poll()


async def s_close_poll(s: ShareConsumer, _: ShareKafka) -> None:
    await s.close()
    with pytest.raises((ConfigurationError, ConsumerClosed)):
        await s.poll()


async def s_unsubscribe_subscription(s: ShareConsumer, _: ShareKafka) -> None:
    assert s.subscription() == {"a"}
    await s.unsubscribe()
    assert s.subscription() == frozenset()


SHARE_ROWS: list[ShareRow] = [
    s_unsubscribe_subscription,
    s_unsubscribe_assignment, s_unsubscribe_poll, s_unsubscribe_subscribe_poll, s_unsubscribe_acknowledge,
    s_subscribe_poll, s_acknowledge_commit, s_commit_nowait_commit, s_work_commit, s_work_acknowledge, s_renew_work,
    s_release_acknowledge,
    s_poll_lock_timeout, s_wakeup_poll, s_close_poll,
]  # fmt: skip


@pytest.mark.parametrize("row", SHARE_ROWS, ids=lambda row: row.__name__.replace("_", "-")[2:])
async def test_every_call_of_a_share_consumer_sees_earlier_calls(row: ShareRow, autojump_clock: Clock) -> None:
    for _ in range(REPETITIONS):
        kafka = ShareKafka(a=1)
        kafka.produce(A0, RECORDS)
        async with share_cluster(kafka) as brokers, brokers.consumer() as consumer:
            await row(consumer, kafka)


WAIVED: dict[type[object], dict[str, str]] = {
    Consumer: {
        "lost": "tests of delayed revokes, by poll",
        "offsets_for_times": "no call of a consumer changes what brokers respond",
        "child_consumer_is_alive": "test_two_flows.py",
        "catching_up": "test_two_flows.py",
        "group_metadata": "test_group_metadata.py",
        "state": "counts and states of the network side",
    },
    ShareConsumer: {"on_result": "of the network side"},
}


@pytest.mark.parametrize("kind", [Consumer, ShareConsumer])
def test_every_public_call_is_in_a_row_or_waived(kind: type[object]) -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    public = {name for name in vars(kind) if not name.startswith("_")}
    missing = {name for name in public - WAIVED[kind].keys() if f".{name}" not in source}
    assert missing == set(), "add a row, or say why there is none"
    assert WAIVED[kind].keys() <= public
