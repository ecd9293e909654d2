"""Keys and values as objects: made when records are handed out, and errors that name the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.deserializers import Deserializers, RecordDeserializationError
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.polled_records import ConsumerRecord
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.test_real_brokers import EARLIEST, create

Fresh = Callable[[str], str]
QUIET = {"log_level": 2}
VALUES = [b'{"n": 0}', b'{"n": 1}', b"not json", b'{"n": 3}', None, b'{"n": 5}']
GOOD = [(0, {"n": 0}), (1, {"n": 1}), (3, {"n": 3}), (4, None), (5, {"n": 5})]


def record(key: Any, value: Any) -> ConsumerRecord:
    return ConsumerRecord("t", 1, key, value, (), 0, 7, 0)


def test_null_stays_null_and_an_error_names_the_record_and_the_part() -> None:
    deserializers = Deserializers(bytes.decode, json.loads)
    assert deserializers
    assert not Deserializers()
    deserialized, error = deserializers.deserialized([record(b"k", b"[1]"), record(None, None), record(b"\xff", b"{}")])
    assert [(each.key, each.value) for each in deserialized] == [("k", [1]), (None, None)]
    assert error is not None
    assert (error.partition, error.offset, error.part) == (TopicPartition("t", 1), 7, "key")
    assert isinstance(error.__cause__, UnicodeDecodeError)
    assert str(error).startswith("t-1 at offset 7: the key cannot be deserialized: UnicodeDecodeError(")


def test_a_deserializer_is_a_function() -> None:
    wrong: Any = "json"
    with pytest.raises(ConfigurationError, match="value_deserializer='json': a function is needed"):
        open_consumer("a:1", value_deserializer=wrong)


def produce(kafka: Cluster, partition: TopicPartition) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for value in VALUES:
        producer.produce(partition.topic, value, key=b"k", partition=partition.partition)
    assert producer.flush(30) == 0


def start_at_earliest(bootstrap: str, group: str) -> None:
    """Have a share group read a log from its begin."""
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})  # kept until the results are there
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)


async def by_poll(consumer: Consumer) -> list[tuple[int, Any]]:
    return [(each.offset, each.value) for each in (await consumer.poll(20, max_records=4)).records]


async def by_loop(consumer: Consumer) -> list[tuple[int, Any]]:
    received = await anext(consumer)
    return [(received.offset, received.value)]


@pytest.mark.broker
@pytest.mark.timeout(120)
@pytest.mark.parametrize("individual", [False, True])
@pytest.mark.parametrize("read", [by_poll, by_loop])
async def test_an_error_is_raised_again_until_the_application_seeks_past_it(
    kafka_43: Cluster, fresh: Fresh, read: Callable[[Consumer], Any], individual: bool
) -> None:
    (partition,) = create(kafka_43, fresh("topic"))
    produce(kafka_43, partition)
    options: dict[str, Any] = {"group": fresh("group"), "topics": [partition.topic], **EARLIEST}
    async with open_consumer(
        kafka_43.bootstrap, value_deserializer=json.loads, individual_commits=individual, **options
    ) as consumer:
        got: list[tuple[int, Any]] = []
        with trio.fail_after(60):
            while len(got) < 2:
                got += await read(consumer)
            assert got == GOOD[:2]
            for _ in range(2):
                with pytest.raises(RecordDeserializationError) as caught:
                    await read(consumer)
                assert (caught.value.partition, caught.value.offset) == (partition, 2)
                assert await consumer.position(partition) == 2
            consumer.seek(partition, caught.value.offset + 1)
            while len(got) < len(GOOD):
                got += await read(consumer)
        assert got == GOOD
        assert await consumer.position(partition) >= len(VALUES) - 1


@pytest.mark.broker
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
async def test_a_share_consumer_releases_what_cannot_be_deserialized_and_returns_the_others(
    kafka_43_quick: Cluster, fresh: Fresh, mode: Any
) -> None:
    topic, group = fresh("topic"), fresh("group")
    (partition,) = create(kafka_43_quick, topic)
    start_at_earliest(kafka_43_quick.bootstrap, group)
    produce(kafka_43_quick, partition)
    results: list[Any] = []
    async with open_share_consumer(
        kafka_43_quick.bootstrap,
        group=group,
        topics=[topic],
        value_deserializer=json.loads,
        on_acknowledged=results.append,
        acknowledgement_mode=mode,
    ) as consumer:
        got: dict[int, Any] = {}
        errors: list[RecordDeserializationError] = []
        with trio.fail_after(60):
            while len(got) < len(GOOD) or not errors:
                try:
                    for each in await consumer.poll(5):
                        got[each.offset] = each.value
                        if mode == "explicit":
                            consumer.acknowledge(each)
                except RecordDeserializationError as error:
                    errors.append(error)
            await consumer.commit()
        assert sorted(got.items()) == GOOD
        assert {(each.partition, each.offset) for each in errors} == {(partition, 2)}
        reported = [kind for result in results for offset, kind in result.types.items() if offset == 2]
        assert set(reported) == {AcknowledgeType.RELEASE}
