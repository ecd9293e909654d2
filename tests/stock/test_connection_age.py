"""Stock clients at work while the proxy closes their connections by age."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.brokers import OLD, Running

pytestmark = pytest.mark.broker

AGE_S = 1.0
RECORDS = 400
PAUSE_S = 0.01
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


def test_librdkafka_loses_and_repeats_nothing_while_its_connections_end_by_age(
    running: Running, kafka: Cluster, fresh: Callable[[str], str]
) -> None:
    front = running.front(kafka.bootstrap, {"limits": {"connection_age_s": AGE_S}, "log_level": "debug"})
    topic = fresh("aged")
    failed: list[KafkaError] = []
    names = {"bootstrap.servers": front.bootstrap}
    sender = Producer(names | {"enable.idempotence": True})
    reader = Consumer(names | {"group.id": fresh("group"), "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    for number in range(RECORDS):
        sender.produce(topic, str(number), on_delivery=lambda error, _message: error and failed.append(error))
        sender.poll(0)
        time.sleep(PAUSE_S)
    assert sender.flush(LIMIT_S) == 0
    values: list[int] = []
    end = time.monotonic() + LIMIT_S
    while len(values) < RECORDS and time.monotonic() < end:
        message = reader.poll(1.0)
        if message is None or ((error := message.error()) is not None and error.retriable()):
            continue
        assert message.error() is None
        values.append(int(message.value()))
    reader.close()
    assert failed == []
    assert values == list(range(RECORDS))
    assert front.log.read_text().count("limits.connection_age_s") >= 3
