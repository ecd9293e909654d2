"""Calls that people expect of a consumer, on real brokers: topics, subscription, begin and end, lag."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.consumer.events import BrokerRefused
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.errors import ErrorCode

from tests.client.test_real_brokers import EARLIEST, Fresh, create, produce, read
from tests.support.brokers import NEW, OLD

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


@pytest.fixture(params=[OLD, NEW])
def kafka(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue("kafka_39" if request.param == OLD else "kafka_43")
    return cluster


async def test_topics_and_their_partitions_are_listed(kafka: Cluster, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    create(kafka, topic, 3)
    async with (
        open_consumer(kafka.bootstrap) as alone,
        open_share_consumer(kafka.bootstrap, group=group, topics=[topic]) as sharing,
    ):
        for consumer in (alone, sharing):
            listed = await consumer.partitions_for(topic)
            assert [(each.topic, each.partition) for each in listed] == [(topic, number) for number in range(3)]
            assert all(each.leader in each.replicas and each.in_sync_replicas for each in listed)
            assert (await consumer.list_topics())[topic] == listed
            with pytest.raises(BrokerRefused) as caught:
                await consumer.partitions_for(fresh("absent"))
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(ValueError, match="has a name"):
                await consumer.partitions_for("")
        assert sharing.subscription() == {topic}
        await sharing.unsubscribe()
        assert sharing.subscription() == frozenset()


async def test_the_subscription_names_topics_also_of_a_pattern(kafka: Cluster, fresh: Fresh) -> None:
    topic = fresh("topic")
    create(kafka, topic)
    async with open_consumer(kafka.bootstrap, group=fresh("group"), topics=[topic]) as consumer:
        assert consumer.subscription() == {topic}
        consumer.subscribe(pattern=f"{topic}|nothing-else")
        with trio.fail_after(30):
            while consumer.subscription() != {topic}:
                await consumer.poll(0.1)
        await consumer.unsubscribe()
        assert consumer.subscription() == frozenset()
        consumer.assign([(topic, 0)])
        assert consumer.subscription() == frozenset()


async def test_begin_end_and_lag(kafka: Cluster, fresh: Fresh) -> None:
    (partition,) = create(kafka, fresh("topic"))
    produce(kafka, partition, range(10))
    async with open_consumer(kafka.bootstrap, partitions=[partition], **EARLIEST) as consumer:
        assert (consumer.lag(partition), consumer.high_watermark(partition)) == (None, None)
        await read(consumer, 10)
        assert (consumer.lag(partition), consumer.high_watermark(partition)) == (0, 10)
        await consumer.seek_to_beginning()
        assert await consumer.position(partition) == 0
        assert consumer.lag(partition) == 10
        result = await consumer.poll(20, max_records=4)
        assert [each.offset for each in result.records] == [0, 1, 2, 3]
        assert consumer.lag(partition) == 6
        await consumer.seek_to_end([partition])
        assert await consumer.position(partition) == 10
        assert consumer.lag(partition) == 0
        produce(kafka, partition, range(2))
        assert len(await read(consumer, 2)) == 2
        assert consumer.high_watermark(partition) == 12
        with pytest.raises(ValueError, match="is not assigned"):
            await consumer.seek_to_end([("another", 0)])
        with pytest.raises(ValueError, match="is not assigned"):
            consumer.lag(("another", 0))
