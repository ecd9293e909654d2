"""Stock clients at a proxy that is read-only (forwarding/README.md rule 45)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, until

pytestmark = pytest.mark.broker

LIMIT_S = 30.0


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap, {"apis": {"read_only": True}})


def test_a_consumer_reads_and_commits(front: Front, kafka: Cluster, fresh: Callable[[str], str]) -> None:
    topic, group = fresh("topic"), fresh("group")
    with Raw(kafka.bootstrap) as raw:
        raw.produce(raw.create_topic(topic), 3)
    names = {"bootstrap.servers": front.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(names | {"enable.auto.commit": False})
    consumer.subscribe([topic])
    messages_read = [until(lambda: consumer.poll(0.2), "a record", LIMIT_S) for _ in range(3)]
    assert [each.error() for each in messages_read] == [None] * 3
    assert [each.offset for each in consumer.commit(asynchronous=False)] == [3]
    consumer.close()


def test_librdkafka_gets_authorization_errors_for_creating_topics_and_producing(
    front: Front, kafka: Cluster, fresh: Callable[[str], str]
) -> None:
    (created,) = AdminClient({"bootstrap.servers": front.bootstrap}).create_topics([NewTopic(fresh("new"), 1)]).values()
    with pytest.raises(KafkaException):
        created.result(LIMIT_S)
    topic, failed = fresh("topic"), list[KafkaError]()
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(topic)
    producer = Producer({"bootstrap.servers": front.bootstrap, "message.timeout.ms": 5_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _message: failed.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert [error.code() for error in failed] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_a_client_that_ignores_api_versions_gets_the_error_and_keeps_its_connection(
    front: Front, kafka: Cluster, fresh: Callable[[str], str]
) -> None:
    topic = fresh("topic")
    with Raw(kafka.bootstrap) as direct:
        direct.create_topic(topic)
    with Raw(front.bootstrap) as raw:
        deleted = raw.send_request("DeleteTopics", 5, topic_names=[topic], timeout_ms=1_000)
        assert [(each.name, each.error_code) for each in deleted.responses] == [
            (topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        ]
        described = raw.send_request("Metadata", 12, topics=[messages.MetadataRequest.MetadataRequestTopic(name=topic)])
        assert [each.error_code for each in described.topics] == [0]
