"""Ranges of keys on real brokers: the same records with the proxy, which filters, and without it."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.fetch.fetch_requests import FetchedChunk
from kafka_share_proxy.consumer.fetch.key_filter import KeyFilter, slots_of
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.test_real_brokers import EARLIEST, QUIET, Dialler, Fresh, create, produce

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

RECORDS = 2000
"""Number of records. The view is created when it is first named."""


@pytest.fixture(scope="module")
def viewed(running: Any, kafka_39: Cluster) -> Front:
    front: Front = running.front(
        kafka_39.bootstrap, {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
    )
    return front


@pytest.fixture(params=["with the proxy", "without it"])
def bootstrap(request: pytest.FixtureRequest, kafka_39: Cluster) -> str:
    if request.param == "without it":
        return kafka_39.bootstrap
    front: Front = request.getfixturevalue("viewed")
    return front.bootstrap


async def read(consumer: Consumer, partition: TopicPartition) -> list[int]:
    """Read to the end of the log."""
    got: list[int] = []
    end = (await consumer.end_offsets([partition]))[partition]
    with trio.fail_after(60):
        while await consumer.position(partition) < end:
            got += [record.offset for record in (await consumer.poll(1)).records]
    return got


def expected(first: int, last: int) -> list[int]:
    return [n for n in range(RECORDS) if first <= murmur2(b"k%d" % n) <= last]


async def test_a_range_gets_its_keys_and_reaches_the_end(kafka_39: Cluster, bootstrap: str, fresh: Fresh) -> None:
    (partition,) = create(kafka_39, fresh("topic"))
    produce(kafka_39, partition, range(RECORDS), **{"compression.type": "lz4"})
    half = 1 << 31
    for first, last in ((0, half - 1), (half, 2 * half - 1)):
        options = {"partitions": [partition], "key_filter": KeyFilter(((first, last),)), **EARLIEST}
        async with open_consumer(bootstrap, **options) as consumer:
            assert await read(consumer, partition) == expected(first, last)
    keys = KeyFilter(keys=(b"k7", b"k1999"))
    async with open_consumer(bootstrap, partitions=[partition], key_filter=keys, **EARLIEST) as consumer:
        assert await read(consumer, partition) == [7, 1999]


async def test_the_proxy_filters_and_a_broker_does_not(kafka_39: Cluster, viewed: Front, fresh: Fresh) -> None:
    (partition,) = create(kafka_39, fresh("topic"))
    produce(kafka_39, partition, range(RECORDS))
    chunks: dict[str, list[FetchedChunk]] = {}
    for where in (viewed.bootstrap, kafka_39.bootstrap):
        options = {"partitions": [partition], "key_filter": slots_of(8, [3]), **EARLIEST}
        async with open_consumer(where, **options) as consumer:
            take, fetched = consumer._core.fetches.take, chunks.setdefault(where, [])

            def noted(*args: Any, take: Any = take, fetched: list[FetchedChunk] = fetched) -> list[FetchedChunk]:
                fetched_chunks: list[FetchedChunk] = take(*args)
                fetched += fetched_chunks
                return fetched_chunks

            consumer._core.fetches.take = noted  # type: ignore[method-assign]
            await read(consumer, partition)
    assert all(chunk.is_filtered for chunk in chunks[viewed.bootstrap])
    assert not any(chunk.is_filtered for chunk in chunks[kafka_39.bootstrap])
    filtered, whole = (sum(len(chunk.records) for chunk in listed) for listed in chunks.values())
    assert filtered < whole / 4


async def test_slots_are_read_in_one_fetch_and_committed_in_one_request(
    kafka_39: Cluster, viewed: Front, fresh: Fresh
) -> None:
    """Two programs have three and five of eight slots; the group tools see partitions of the view."""
    (partition,) = create(kafka_39, fresh("topic"))
    produce(kafka_39, partition, range(RECORDS))
    group, got = fresh("group"), []
    for slots in ((0, 1, 2), (3, 4, 5, 6, 7)):
        options = {"group": group, "partitions": [partition], "key_filter": slots_of(8, slots), **EARLIEST}
        async with open_consumer(viewed.bootstrap, **options) as consumer:
            mine = await read(consumer, partition)
            assert mine == [n for n in range(RECORDS) if murmur2(b"k%d" % n) * 8 >> 32 in slots]
            got += mine
            await consumer.commit()
            assert await consumer.committed([partition]) == {partition: OffsetAndMetadata(RECORDS)}
    assert sorted(got) == list(range(RECORDS))
    tool = confluent_kafka.Consumer({"bootstrap.servers": kafka_39.bootstrap, "group.id": group, **QUIET})
    view = f"__view.r8.{partition.topic}"
    try:
        listed = tool.committed([confluent_kafka.TopicPartition(view, slot) for slot in range(8)], timeout=30)
        assert [each.offset for each in listed] == [RECORDS] * 8
    finally:
        tool.close()
    produce(kafka_39, partition, range(RECORDS, RECORDS + 100))
    options = {"group": group, "partitions": [partition], "key_filter": slots_of(8, range(8)), **EARLIEST}
    async with open_consumer(viewed.bootstrap, **options) as consumer:
        assert await read(consumer, partition) == list(range(RECORDS, RECORDS + 100))


async def test_views_are_subscribed_to_by_name(kafka_39: Cluster, viewed: Front, fresh: Fresh) -> None:
    """Two members share one partition; each slot is at one of them."""
    (partition,) = create(kafka_39, fresh("topic"))
    produce(kafka_39, partition, range(RECORDS))
    view, dialler = f"__view.r4.{partition.topic}", Dialler()
    options = {"group": fresh("group"), "topics": [view], "assignors": ("cooperative-sticky",), **EARLIEST}
    got: list[bytes] = []

    async def member() -> None:
        async with open_consumer(viewed.bootstrap, connect=dialler, **options) as consumer:
            while len(got) < RECORDS:
                result = await consumer.poll(0.2)
                got.extend(record.value or b"" for record in result.records)
                await consumer.commit()

    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member)
            nursery.start_soon(member)
    assert sorted(map(int, got)) == list(range(RECORDS))
    admin = AdminClient({"bootstrap.servers": viewed.bootstrap, **QUIET})
    assert len(admin.list_topics(view, 30).topics[view].partitions) == 4


async def test_a_partition_of_a_view_that_does_not_exist_yet_is_read_from_an_offset(
    kafka_39: Cluster, viewed: Front, fresh: Fresh
) -> None:
    """Nothing before the Fetch needs the view then, and Metadata has no id to fetch by."""
    (partition,) = create(kafka_39, fresh("topic"))
    produce(kafka_39, partition, range(RECORDS))
    slot = TopicPartition(f"__view.r2.{partition.topic}", 1)
    numbers = [n for n in range(RECORDS) if murmur2(b"k%d" % n) * 2 >> 32 == 1]
    got: list[int] = []
    async with open_consumer(viewed.bootstrap, partitions=[slot]) as consumer:
        consumer.seek(slot, 0)
        with trio.fail_after(60):
            while len(got) < len(numbers):
                got += [record.offset for record in (await consumer.poll(1)).records]
    assert got == numbers


async def test_slots_are_not_subscribed_to() -> None:
    options = {"group": "g", "topics": ["a"], "key_filter": slots_of(4, [1])}
    with pytest.raises(ConfigurationError, match="assign partitions of the topic"):
        async with open_consumer("localhost:1", **options):
            pass
