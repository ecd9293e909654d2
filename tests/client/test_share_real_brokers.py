"""The share consumer with a broker of 4.3.0, and through the proxy in front of 3.9.1, which has no share groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka import AcknowledgeType as StockType
from confluent_kafka import ShareConsumer as StockShareConsumer
from kafka_share_proxy.client.notes import ConsumerNote
from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.client.share_notes import RECORDS_ACKNOWLEDGED, RECORDS_RENEWED
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.client.share_records import ShareRecord
from kafka_share_proxy.consumer.events import BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult, LockLostError
from kafka_share_proxy.consumer.share.share_membership import ShareMemberState
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.errors import ErrorCode

from tests.client.test_real_brokers import QUIET, Dialler
from tests.support.raw import Raw

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240), pytest.mark.xdist_group("quick")]

Fresh = Callable[[str], str]
LIMIT_S = 40
LOCK_S = 2.0
RELEASE, REJECT, RENEW = AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW
EXPLICIT = {"acknowledgement_mode": "explicit"}


@pytest.fixture(params=["3.9.1", "4.3.0"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Servers with share groups whose locks may last a second."""
    front = request.getfixturevalue({"3.9.1": "proxy_39_quick", "4.3.0": "kafka_43_quick"}[request.param])
    return str(front.bootstrap)


class World:
    """A topic and a group that reads it from the start."""

    def __init__(self, bootstrap: str, fresh: Fresh, partitions: int = 1, **settings: str) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, fresh("topic"), fresh("group")
        self._numbers = itertools.count()
        with Raw(bootstrap) as raw:
            raw.create_topic(self.topic, partitions)
        self.configure(**{"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"} | settings)

    def configure(self, **settings: str) -> None:
        with Raw(self.bootstrap) as raw:
            raw.configure_group(self.group, settings)

    def produce(self, count: int, partition: int = 0, **settings: Any) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 50, **QUIET, **settings})
        for _ in range(count):
            producer.produce(self.topic, b"%d" % next(self._numbers), partition=partition)
        assert producer.flush(30) == 0

    def consumer(self, **options: Any) -> Any:
        return open_share_consumer(self.bootstrap, group=self.group, topics=[self.topic], **options)


def short_lock(seconds: float = LOCK_S) -> dict[str, str]:
    return {"share.record.lock.duration.ms": str(round(seconds * 1000))}


async def read(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    got: list[ShareRecord] = []
    with trio.move_on_after(LIMIT_S):
        while len(got) < count:
            got += await consumer.poll(1)
    assert len(got) == count, (len(got), consumer.state())
    return got


def places(records: Sequence[ShareRecord]) -> list[tuple[int, int, int]]:
    return [(record.partition, record.offset, record.delivery_count) for record in records]


class Stock:
    """confluent-kafka as another member: version 1, without renewals."""

    def __init__(self, world: World) -> None:
        self.consumer = StockShareConsumer(
            {
                "bootstrap.servers": world.bootstrap, "group.id": world.group,
                "share.acknowledgement.mode": "explicit", **QUIET,
            }
        )  # fmt: skip
        self.consumer.subscribe([world.topic])
        self.got: list[tuple[int, int]] = []
        """Offset and delivery count of what it accepted."""

    def poll_and_commit(self) -> None:
        for message in self.consumer.poll(0.2):
            assert message.error() is None
            self.got.append((message.offset(), message.delivery_count()))
            self.consumer.acknowledge(message, StockType.ACCEPT)
        self.consumer.commit_sync(10)

    async def run(self, turns: int = 400) -> None:
        for _ in range(turns):
            await trio.to_thread.run_sync(self.poll_and_commit)


@contextmanager
def stock_member(world: World) -> Iterator[Stock]:
    stock = Stock(world)
    try:
        yield stock
    finally:
        stock.consumer.close()


# Records


async def test_members_divide_the_work_and_nothing_is_delivered_again(bootstrap: str, fresh: Fresh) -> None:
    world = World(bootstrap, fresh, 3)
    got: list[ShareRecord] = []

    async def work(consumer: ShareConsumer) -> None:
        while len(got) < 900:
            got.extend(await consumer.poll(0.2))
        assert all(error is None for error in (await consumer.commit()).values())

    async with world.consumer() as one, world.consumer() as two, world.consumer() as three:
        with trio.fail_after(LIMIT_S):
            async with trio.open_nursery() as nursery:
                for consumer in (one, two, three):
                    nursery.start_soon(work, consumer)
                for iteration, codec in enumerate(("none", "lz4", "zstd", "gzip", "snappy", "none")):
                    await trio.to_thread.run_sync(
                        lambda n=iteration, c=codec: world.produce(150, n % 3, **{"compression.type": c})
                    )
        assert await one.poll(0.5) == []
    assert sorted(int(record.value or b"") for record in got) == list(range(900))
    assert {record.delivery_count for record in got} == {1}


async def test_only_released_records_are_delivered_again(bootstrap: str, fresh: Fresh) -> None:
    """R003-7: how long locks last is known once something was fetched."""
    world = World(bootstrap, fresh)
    world.produce(3)
    results: list[AcknowledgementResult] = []
    async with world.consumer(**EXPLICIT, on_acknowledged=results.append) as consumer:
        assert consumer.acquisition_lock_timeout_ms is None
        accepted, released, rejected = await read(consumer, 3)
        assert consumer.acquisition_lock_timeout_ms == 30_000
        consumer.acknowledge(accepted)
        consumer.acknowledge(released, RELEASE)
        consumer.acknowledge(rejected, REJECT)
        assert await consumer.commit() == {accepted.origin: None}
        (again,) = await read(consumer, 1)
        assert (again.offset, again.delivery_count) == (1, 2)
        with pytest.raises(ValueError, match="is not held"):
            consumer.acknowledge(accepted)
        consumer.acknowledge(again)
        assert await consumer.poll(1.5) == []
        assert consumer.state().held == 0
    assert [dict(result.types) for result in results] == [{0: 1, 1: 2, 2: 3}, {1: 1}]
    assert [result.error for result in results] == [None, None]


async def test_record_limit_acquires_at_most_what_a_poll_may_return(bootstrap: str, fresh: Fresh) -> None:
    world = World(bootstrap, fresh)
    world.produce(10)
    options = {**EXPLICIT, "acquire_mode": "record_limit", "max_poll_records": 4}
    async with world.consumer(**options) as one, world.consumer(**options) as two:
        assert places(await read(one, 4)) == [(0, n, 1) for n in range(4)]
        assert places(await read(two, 4)) == [(0, n, 1) for n in range(4, 8)]
        assert places(await read(one, 2)) == [(0, 8, 1), (0, 9, 1)]


async def test_records_of_a_closed_consumer_are_delivered_to_others_immediately(bootstrap: str, fresh: Fresh) -> None:
    world = World(bootstrap, fresh)
    world.produce(4)
    async with world.consumer(**EXPLICIT) as first:
        records = await read(first, 4)
        first.acknowledge(records[1])
    async with world.consumer() as second:
        with trio.fail_after(15):  # below the lock's 30 s
            assert places(await read(second, 3)) == [(0, 0, 2), (0, 2, 2), (0, 3, 2)]


# Locks


async def test_a003_1_the_record_of_a_job_longer_than_its_lock_is_not_delivered_to_others(
    bootstrap: str, fresh: Fresh
) -> None:
    """With confluent-kafka as the other member: it never gets the record, and the lock is renewed several times.

    R003-5 and 9: each renewal is reported, with the number so far, and each type.
    """
    world = World(bootstrap, fresh, **short_lock())
    world.produce(1)
    notes: list[ConsumerNote] = []
    with stock_member(world) as stock:
        async with world.consumer(**EXPLICIT, observe=notes.append) as consumer:
            (record,) = await read(consumer, 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stock.run)
                async with consumer.work(record):
                    with trio.move_on_after(2.5 * LOCK_S):
                        await consumer.poll()  # meanwhile others of its tasks wait for more
                assert await consumer.commit() == {record.origin: None}
                await trio.sleep(0.5)
                nursery.cancel_scope.cancel()
        assert stock.got == []
    renewed = [note.facts for note in notes if note.event == RECORDS_RENEWED]
    assert len(renewed) >= 3
    assert [facts["renewals"] for facts in renewed] == list(range(1, len(renewed) + 1))
    kinds = [note.facts["type"] for note in notes if note.event == RECORDS_ACKNOWLEDGED]
    assert kinds == ["renew"] * len(renewed) + ["accept"]


async def test_a003_2_3_4_without_renewal_another_member_gets_it_and_keeps_it(bootstrap: str, fresh: Fresh) -> None:
    world = World(bootstrap, fresh, **short_lock(2.5))
    world.produce(1)
    results: list[AcknowledgementResult] = []
    async with world.consumer(**EXPLICIT, on_acknowledged=results.append) as late, world.consumer(**EXPLICIT) as other:
        (record,) = await read(late, 1)
        (again,) = await read(other, 1)
        assert (again.offset, again.delivery_count) == (record.offset, 2)
        with pytest.raises(LockLostError):
            await late.renew(record)
        await late.poll(0)
        assert isinstance(results[-1].error, BrokerRefused)
        assert results[-1].error.code is ErrorCode.INVALID_RECORD_STATE
        assert late.acknowledge(record) is False
        await other.renew(again)  # its lock is untouched
        other.acknowledge(again)
        assert await other.commit() == {again.origin: None}


async def test_a003_8_the_renewal_returns_a_new_duration(bootstrap: str, fresh: Fresh) -> None:
    """R003-2 and 4"""
    world = World(bootstrap, fresh, **short_lock(3))
    world.produce(1)
    async with world.consumer(**EXPLICIT) as consumer, world.consumer(**EXPLICIT) as other:
        (record,) = await read(consumer, 1)
        assert consumer.acquisition_lock_timeout_ms == 3000
        await trio.to_thread.run_sync(lambda: world.configure(**short_lock(8)))
        await consumer.renew(record)
        assert consumer.acquisition_lock_timeout_ms == 8000
        assert await other.poll(3.5) == []
        consumer.acknowledge(record)
        assert await consumer.commit() == {record.origin: None}


async def test_a003_5_renewed_records_come_again_alone_and_the_others_are_settled(bootstrap: str, fresh: Fresh) -> None:
    """R003-7 and 8: with other types in one request, and in the explicit mode alone."""
    world = World(bootstrap, fresh)
    world.produce(5)
    async with world.consumer(**EXPLICIT) as consumer:
        records = await read(consumer, 5)
        kinds = (AcknowledgeType.ACCEPT, RENEW, RELEASE, REJECT, RENEW)
        for record, kind in zip(records, kinds, strict=True):
            consumer.acknowledge(record, kind)
        again = await consumer.poll(5)
        assert again == [records[1], records[4]]
        (released,) = await read(consumer, 1)
        assert places([released]) == [(0, 2, 2)]
        for record in (*again, released):
            consumer.acknowledge(record)
        assert await consumer.commit() == {released.origin: None}
        assert await consumer.poll(0.5) == []
    async with world.consumer() as implicit:
        with pytest.raises(ConfigurationError, match="explicit"):
            implicit.acknowledge(released, RENEW)


async def test_a_group_that_does_not_renew_ends_the_work(bootstrap: str, fresh: Fresh) -> None:
    world = World(bootstrap, fresh, **short_lock(), **{"share.renew.acknowledge.enable": "false"})
    world.produce(1)
    async with world.consumer(**EXPLICIT) as consumer:
        (record,) = await read(consumer, 1)
        with trio.fail_after(5), pytest.raises(LockLostError):
            async with consumer.work(record):
                await trio.sleep_forever()


# Members and connections


async def test_a_member_together_with_one_of_confluent_kafka(bootstrap: str, fresh: Fresh) -> None:
    """A003-9: it knows version 1, without renewals."""
    world = World(bootstrap, fresh, 2)
    got: list[int] = []
    with stock_member(world) as stock:
        async with world.consumer(max_poll_records=20) as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(stock.run)
            with trio.fail_after(LIMIT_S):
                for iteration in range(25):
                    await trio.to_thread.run_sync(lambda n=iteration: world.produce(20, n % 2))
                    got += [int(record.value or b"") for record in await consumer.poll(0.2)]
                while len(got) + len(stock.got) < 500:
                    got += [int(record.value or b"") for record in await consumer.poll(0.2)]
            await consumer.commit()
            nursery.cancel_scope.cancel()
        assert len(set(got)) == len(got)
        assert len(got) + len(stock.got) == 500
        assert got
        assert stock.got
        assert {count for _, count in stock.got} == {1}


async def test_records_of_a_killed_member_are_delivered_to_another_immediately(bootstrap: str, fresh: Fresh) -> None:
    world = World(bootstrap, fresh)
    world.produce(5)
    dialler = Dialler()
    async with world.consumer(**EXPLICIT, connect=dialler) as killed, world.consumer(**EXPLICIT) as other:
        records = await read(killed, 5)
        killed.acknowledge(records[0])
        await killed.commit()
        ended: list[str] = []

        async def job() -> None:
            try:
                async with killed.work(records[1]):
                    await trio.sleep_forever()
            except LockLostError as error:
                ended.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(job)
            await trio.testing.wait_all_tasks_blocked()
            assert dialler.break_all() >= 1
            with trio.fail_after(15):  # far below the lock's 30 s
                assert places(await read(other, 4)) == [(0, n, 2) for n in range(1, 5)]
            with trio.fail_after(10):
                await killed.poll(0.2)
        assert len(ended) == 1
        assert killed.acknowledge(records[2]) is False


async def test_connections_that_break_lose_no_record(bootstrap: str, fresh: Fresh) -> None:
    """A fetch that waits at a broker of 4.3.0 when its connection ends still acquires: those locks must time out."""
    world = World(bootstrap, fresh, 2, **short_lock(), **{"share.delivery.count.limit": "10"})
    dialler = Dialler()
    done: set[int] = set()

    async def work(consumer: ShareConsumer, record: ShareRecord) -> None:
        try:
            async with consumer.work(record):
                await trio.sleep(0.01)
                done.add(int(record.value or b""))
        except LockLostError:
            pass

    async with world.consumer(**EXPLICIT, connect=dialler) as consumer, trio.open_nursery() as nursery:
        with trio.fail_after(LIMIT_S):
            for iteration in range(8):
                await trio.to_thread.run_sync(lambda n=iteration: world.produce(50, n % 2))
                broken = 0
                while len(done) < iteration * 50 + 50:
                    for record in await consumer.poll(0.3):
                        nursery.start_soon(work, consumer, record)
                    if len(done) > iteration * 50 and not broken:
                        broken = dialler.break_all()
        assert done == set(range(400))
        with trio.fail_after(LIMIT_S):
            while consumer.state().held:
                await consumer.commit()
                for record in await consumer.poll(0.1):  # one whose acceptance went down with its connection
                    nursery.start_soon(work, consumer, record)


async def test_one_address_may_stand_for_all_of_a_proxy(proxy_39_quick: Front, fresh: Fresh) -> None:
    """A tunnel, for example: every connection goes to the bootstrap listener, and the broker that it reaches is
    known.
    """
    world = World(proxy_39_quick.bootstrap, fresh)
    host, _, port = proxy_39_quick.bootstrap.rpartition(":")
    world.produce(5)

    async def through_the_tunnel(_host: str, _port: int) -> trio.abc.Stream:
        return await trio.open_tcp_stream(host, int(port))

    async with world.consumer(**EXPLICIT, connect=through_the_tunnel) as consumer:
        records = await read(consumer, 5)
        for record in records:
            consumer.acknowledge(record)
        assert await consumer.commit() == {records[0].origin: None}


async def test_records_of_a_partition_that_goes_to_another_member_are_acknowledged_before_it_goes(
    proxy_39_quick: Front, fresh: Fresh
) -> None:
    """A second member joins while the first holds records of both partitions: that one keeps both until it has none."""
    world = World(proxy_39_quick.bootstrap, fresh, partitions=2)
    for partition in (0, 1):
        world.produce(1, partition)
    async with world.consumer(**EXPLICIT) as first:
        held = await read(first, 2)
        async with world.consumer(**EXPLICIT) as second:
            with trio.fail_after(LIMIT_S):
                while len(second.assignment) != 1:
                    assert await second.poll(0.1) == []
                assert len(first.assignment) == 2
                for record in held:
                    first.acknowledge(record)
                assert await first.commit() == {record.origin: None for record in held}
                while len(first.assignment) != 1:
                    assert await second.poll(0.1) == []


async def test_a_broker_without_share_groups_says_so(kafka_39: Cluster, fresh: Fresh) -> None:
    async with open_share_consumer(kafka_39.bootstrap, group=fresh("group"), topics=["t"]) as consumer:
        with trio.fail_after(20), pytest.raises(ConsumerError, match="does not serve ShareGroupHeartbeat"):
            await consumer.poll()
        assert consumer.state().member is ShareMemberState.REFUSED
