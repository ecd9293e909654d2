"""The recipes do what they say, taken out of the page that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import confluent_kafka
import trio
from kafka_share_proxy import recipes
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.conformance.target.controlled import ControlledTarget
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.test_real_brokers import EARLIEST, QUIET, read
from tests.support.conditions import until
from tests.support.documents import docstring_function
from tests.support.target_caller import Caller
from tests.support.target_client import served

Clock = trio.testing.MockClock
recipe = partial(docstring_function, recipes)
OPTIONS: dict[str, Any] = {
    "group": "g",
    "topics": ["a"],
    "auto_offset_reset": "earliest",
    "assignors": ("cooperative-sticky",),
}


@asynccontextmanager
async def cluster(partitions: int = 1) -> AsyncIterator[ControlledTarget]:
    async with served() as server:
        await server.do("topics", name="a", partitions=partitions)
        yield server


async def produce(server: ControlledTarget, count: int, partition: int = 0) -> None:
    await server.do("topics/a/records", values=["v"] * count, partition=partition)


def committed(server: ControlledTarget, partition: int = 0) -> tuple[int, str | None]:
    """Return offset and metadata, offset -1 if nothing is committed."""
    committed_offset = server.cluster.groups.offsets("g").shown(TopicPartition("a", partition))
    return (-1, None) if committed_offset is None else (committed_offset.offset, committed_offset.metadata)


async def test_a_revoke_waits_for_the_pool_and_every_record_is_worked_on_once(autojump_clock: Clock) -> None:
    worked: Counter[tuple[int, int]] = Counter()

    async def run(name: str, server: ControlledTarget) -> None:
        async def work(record: Any) -> None:
            await trio.sleep(0.1)
            worked[int(name == "b"), record.offset] += 1

        options = {"connect": server.connect, "client_id": name, "max_poll_records": 7, **OPTIONS}
        await recipe("worker_pool")(server.bootstrap, work, **options)

    async with cluster(4) as server, trio.open_nursery() as nursery:
        for partition in range(4):
            for _ in range(10):
                await produce(server, 10, partition)
        nursery.start_soon(run, "a", server)
        await until(lambda: worked.total() > 20)
        nursery.start_soon(run, "b", server)
        await until(lambda: worked.total() >= 400)
        await until(lambda: all(committed(server, partition)[0] == 100 for partition in range(4)))
        nursery.cancel_scope.cancel()
    assert worked.total() == 400
    assert {member for member, _ in worked} == {0, 1}


async def test_what_is_done_in_any_order_does_not_come_again(autojump_clock: Clock) -> None:
    done: list[int] = []

    async def work(record: Any) -> None:
        if record.offset == 3 and len(done) < 29:
            await trio.sleep_forever()
        await trio.sleep(1 / (record.offset + 1))
        done.append(record.offset)

    async with cluster() as server:
        await produce(server, 30)
        run = partial(recipe("any_order"), server.bootstrap, work, connect=server.connect, **OPTIONS)
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await until(lambda: len(done) >= 29)
                await trio.sleep(5)
                nursery.cancel_scope.cancel()
            assert committed(server) in ((3, "ic/1;4-29"), (30, ""))
        assert committed(server)[0] == 30
    assert done == [*sorted(set(range(30)) - {3}, reverse=True), 3]


async def test_after_a_crash_the_newest_records_are_returned_first_and_the_others_later(autojump_clock: Clock) -> None:
    newest: list[int] = []
    late: list[int] = []

    async def work(record: Any) -> None:
        newest.append(record.offset)

    async def work_late(record: Any) -> None:
        await trio.sleep(0.1)
        late.append(record.offset)

    async with cluster() as server, trio.open_nursery() as nursery:
        await produce(server, 120)
        coordinator = server.cluster.coordinators.node_of(CoordinatorKind.GROUP, "g")
        assert await Caller(server.cluster, coordinator).commit("g", "a", 70) == 0
        options = {"connect": server.connect, "max_poll_records": 5, **OPTIONS}
        nursery.start_soon(lambda: recipe("newest_first")(server.bootstrap, work, work_late, **options))
        await until(lambda: len(late) > 3)
        await produce(server, 5)
        await until(lambda: len(newest) == 5)
        assert len(late) < 50
        await until(lambda: committed(server)[0] == 125)
        nursery.cancel_scope.cancel()
    assert (newest, late) == (list(range(120, 125)), list(range(70, 120)))


async def test_what_is_made_of_records_and_their_offsets_become_visible_together() -> None:
    source, target = TopicPartition("a", 0), TopicPartition("target", 0)
    async with cluster() as server:
        await server.do("topics", name=target.topic)
        await server.do("topics/a/records", values=[f"{number}" for number in range(50)])
        settings = {"bootstrap.servers": server.bootstrap, "transactional.id": "transaction", **QUIET}
        producer = confluent_kafka.Producer(settings)

        async def work(record: Any) -> bytes:
            await trio.lowlevel.checkpoint()
            return b"<" + record.value + b">"

        run = partial(recipe("transform"), server.bootstrap, producer, target.topic, work)
        reading = {"group": "g", "partitions": [target], "read_committed": True, **EARLIEST}
        async with trio.open_nursery() as nursery, open_consumer(server.bootstrap, **reading) as reader:
            nursery.start_soon(lambda: run(group="g", topics=["a"], **EARLIEST))
            got = await read(reader, 50)
            assert [record.value for record in got] == [b"<%d>" % n for n in range(50)]
            assert await reader.committed([source]) == {source: OffsetAndMetadata(50)}
            nursery.cancel_scope.cancel()
