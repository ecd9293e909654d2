"""commit() stores what is done or says what it left out: at brokers, and through the proxy (issue 25.22)."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import Any

import pytest
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.notes import COMMITTED, ConsumerNote
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.polled_records import ConsumerRecord
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.offsets.ledger import BROKER_METADATA_MAX
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.test_real_brokers import EARLIEST, Fresh, create, produce, read

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

RECORDS = 5000
DONE = 3548
MANY = 7400
"""Records of which every other one is done: their ranges take more than a string of Kafka's protocol."""
MERGED = 2000
"""Offset to which all records are done in the end."""
INDIVIDUAL: dict[str, Any] = {"individual_commits": True, **EARLIEST}


def finish(consumer: Consumer, records: Iterable[ConsumerRecord]) -> None:
    for each in records:
        assert consumer.done(each)


@pytest.fixture
def partition(kafka_39: Cluster, fresh: Fresh) -> TopicPartition:
    return create(kafka_39, fresh("topic"))[0]


def random_done(count: int) -> frozenset[int]:
    return frozenset(random.Random(22).sample(range(1, count), DONE))


async def test_through_the_proxy_every_done_record_is_stored(
    proxy_39: Front, partition: TopicPartition, kafka_39: Cluster, fresh: Fresh
) -> None:
    """498 of 3,548 were left out, and delivered again, because the text was trimmed to 4,096 characters."""
    produce(kafka_39, partition, range(RECORDS))
    group, done = fresh("group"), random_done(RECORDS)
    options = {"group": group, "partitions": [partition], **INDIVIDUAL}
    async with open_consumer(proxy_39.bootstrap, **options) as first:
        finish(first, (each for each in await read(first, RECORDS) if each.offset in done))
        assert await first.commit() == {}
        (committed,) = (await first.committed([partition])).values()
        assert committed is not None
        assert len(committed.metadata) > BROKER_METADATA_MAX
    async with open_consumer(proxy_39.bootstrap, **options) as second:
        assert {each.offset for each in await read(second, RECORDS - DONE)} == {*range(RECORDS)} - done


async def test_through_the_proxy_ranges_of_several_commits_add_up(
    proxy_39: Front, partition: TopicPartition, kafka_39: Cluster, fresh: Fresh
) -> None:
    """A response shows 32,767 bytes of ranges: that the others are stored shows once the first ones are merged."""
    produce(kafka_39, partition, range(MANY))
    options = {"group": fresh("group"), "partitions": [partition], **INDIVIDUAL}
    odd = {*range(1, MANY, 2)}
    async with open_consumer(proxy_39.bootstrap, **options) as first:
        finish(first, (each for each in await read(first, MANY) if each.offset in odd))
        assert await first.commit() == {}
    async with open_consumer(proxy_39.bootstrap, **options) as second:
        finish(second, await read(second, MERGED // 2))
        assert await second.commit() == {}
    async with open_consumer(proxy_39.bootstrap, **options) as third:
        undone = {*range(MERGED, MANY)} - odd
        assert {each.offset for each in await read(third, len(undone))} == undone


async def test_a_broker_takes_the_widest_ranges_and_commit_returns_and_logs_the_others(
    kafka_39: Cluster, partition: TopicPartition, fresh: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    produce(kafka_39, partition, range(RECORDS))
    done, notes = random_done(RECORDS), list[ConsumerNote]()
    options = {"group": fresh("group"), "partitions": [partition], **INDIVIDUAL}
    async with open_consumer(kafka_39.bootstrap, observe=notes.append, **options) as first:
        records = await read(first, RECORDS)
        finish(first, (each for each in records if each.offset in done))
        with caplog.at_level(logging.WARNING, "kafka_share_proxy"):
            left_out = await first.commit()
        assert set(left_out) == {partition}
        again = {offset for span in left_out[partition] for offset in range(span.start, span.end)}
        assert 0 < len(again) < DONE
        assert again < done
        assert f"{len(again)} done offsets in {len(left_out[partition])} ranges" in caplog.text
        assert [note.facts["left_out"] for note in notes if note.event == COMMITTED] == [len(again)]
        assert await first.commit() == left_out, "it is tried again, and said again"
    async with open_consumer(kafka_39.bootstrap, **options) as second:
        undone = ({*range(RECORDS)} - done) | again
        delivered = await read(second, len(undone))
        assert {each.offset for each in delivered} == undone
        finish(second, delivered)
        assert await second.commit() == {}
        assert await second.committed([partition]) == {partition: OffsetAndMetadata(RECORDS, "ic/1;")}
