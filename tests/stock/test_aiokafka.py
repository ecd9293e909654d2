"""aiokafka through the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import Raw

pytestmark = pytest.mark.broker

PARTITIONS = 4
LIMIT_S = 120
Fresh = Callable[[str], str]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, LIMIT_S)

    asyncio.run(bounded())


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when it holds; `run` bounds the wait."""
    while not await condition():  # noqa: ASYNC110 - the client has no notification
        await asyncio.sleep(0.05)


async def create(front: Front, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=front.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        await eventually(lambda: listed(admin, topic))
    finally:
        await admin.close()
    with Raw(front.bootstrap) as raw:
        raw.wait_for_leaders(topic, PARTITIONS)


async def listed(admin: AIOKafkaAdminClient, topic: str, expected: bool = True) -> bool:
    return (topic in await admin.list_topics()) is expected


async def held(*members: tuple[AIOKafkaConsumer, int]) -> bool:
    return all(len(consumer.assignment()) == count for consumer, count in members)


async def committed(consumer: AIOKafkaConsumer, place: TopicPartition) -> bool:
    return await consumer.committed(place) is not None


async def read(consumer: AIOKafkaConsumer, count: int) -> list[str]:
    return [(await consumer.getone()).value.decode() for _ in range(count)]


def test_produce_and_consume(front: Front, fresh: Fresh) -> None:
    """Records arrive once, with any acks and compression."""
    run(_produce_and_consume(front, fresh("topic"), fresh("group")))


async def _produce_and_consume(front: Front, topic: str, group: str) -> None:
    await create(front, topic)
    expected: list[str] = []
    for settings in ({"acks": "all", "enable_idempotence": True}, {"acks": 0}, {"compression_type": "lz4"}):
        async with AIOKafkaProducer(bootstrap_servers=front.bootstrap, **settings) as producer:
            for number in range(50):
                expected.append(f"{settings} {number}")
                await producer.send(topic, expected[-1].encode())
            await producer.flush()
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=front.bootstrap, group_id=group, auto_offset_reset="earliest")
    async with consumer:
        assert sorted(await read(consumer, len(expected))) == sorted(expected)


def test_group_rebalances(front: Front, fresh: Fresh) -> None:
    """Two members share the partitions; when one leaves, the other has them all."""
    run(_group_rebalances(front, fresh("topic"), fresh("group")))


async def _group_rebalances(front: Front, topic: str, group: str) -> None:
    await create(front, topic)
    settings = {"bootstrap_servers": front.bootstrap, "group_id": group, "heartbeat_interval_ms": 300}
    async with AIOKafkaConsumer(topic, **settings) as first:
        async with AIOKafkaConsumer(topic, **settings) as second:
            await eventually(lambda: held((first, 2), (second, 2)))
        await eventually(lambda: held((first, PARTITIONS)))


def test_transactions(front: Front, fresh: Fresh) -> None:
    """Committed records and offsets are seen, aborted ones are not."""
    run(_transactions(front, fresh("topic"), fresh("group"), fresh("id")))


async def _transactions(front: Front, topic: str, group: str, transactional_id: str) -> None:
    await create(front, topic)
    place = TopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=front.bootstrap, transactional_id=transactional_id) as producer:
        for outcome, offset in (("aborted", 1), ("committed", 2)):  # both in the log: one beyond its end is reset
            await producer.begin_transaction()
            await producer.send_and_wait(topic, outcome.encode(), partition=0)
            await producer.send_offsets_to_transaction({place: offset}, group)
            if outcome == "aborted":
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=front.bootstrap, group_id=group, isolation_level="read_committed", enable_auto_commit=False
    )
    async with consumer:
        consumer.assign([place])
        await eventually(lambda: committed(consumer, place))
        assert await consumer.committed(place) == 2
        await consumer.seek_to_beginning(place)
        assert await read(consumer, 1) == ["committed"]


def test_admin(front: Front, fresh: Fresh) -> None:
    """Admin requests work, and every address in their responses is the proxy's."""
    run(_admin(front, fresh("topic"), fresh("group")))


async def _admin(front: Front, topic: str, group: str) -> None:
    await create(front, topic)
    admin = AIOKafkaAdminClient(bootstrap_servers=front.bootstrap)
    await admin.start()
    try:
        async with AIOKafkaConsumer(topic, bootstrap_servers=front.bootstrap, group_id=group) as consumer:
            await eventually(lambda: held((consumer, PARTITIONS)))
            cluster = await admin.describe_cluster()
            assert {(each["node_id"], each["port"]) for each in cluster["brokers"]} == {(1, front.first_port + 1)}
            assert group in {each[0] for each in await admin.list_consumer_groups()}
        await admin.delete_topics([topic])
        await eventually(lambda: listed(admin, topic, expected=False))
    finally:
        await admin.close()
