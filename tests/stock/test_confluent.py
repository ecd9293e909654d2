"""confluent-kafka (librdkafka) through the proxy: producers, both group protocols, transactions, admin, sharing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import LIMIT_S, Raw, until
from tests.support.worlds import BEFORE_LOCK_S

pytestmark = pytest.mark.broker

PARTITIONS = 4
QUIET = {"log_level": 2}
Fresh = Callable[[str], str]


def produce(front: Front, topic: str, values: Sequence[str], **settings: Any) -> None:
    """Produce round robin over the partitions; every record must be reported as delivered."""
    reports: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": front.bootstrap, "linger.ms": 5, **QUIET, **settings})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=lambda e, _: reports.append(e))
    assert producer.flush(LIMIT_S) == 0
    assert reports == [None] * len(values)


def create(front: Front, topic: str, partitions: int = PARTITIONS) -> None:
    with Raw(front.bootstrap) as raw:
        raw.create_topic(topic, partitions)


@contextmanager
def consuming(front: Front, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": front.bootstrap, "group.id": group, "auto.offset.reset": "earliest", **QUIET, **settings}
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int, limit_s: float = LIMIT_S) -> list[str]:
    """Return the values of this many records, and fail when more arrive soon after."""
    got: list[str] = []
    end = time.monotonic() + limit_s
    while len(got) < count:
        assert time.monotonic() < end, f"{len(got)} of {count} records came"
        got += [value(message) for message in consumer.consume(count, 0.2)]
    return got


def value(message: Message) -> str:
    assert message.error() is None, message.error()
    data = message.value()
    assert data is not None
    return data.decode()


@pytest.mark.parametrize("settings", [
    {"acks": "all", "enable.idempotence": True}, {"acks": 0}, {"acks": 1},
    *({"compression.type": name} for name in ("gzip", "snappy", "lz4", "zstd")),
], ids=lambda settings: "-".join(f"{name}={setting}" for name, setting in settings.items()))  # fmt: skip
def test_every_kind_of_produce(front_39: Front, fresh: Fresh, settings: dict[str, Any]) -> None:
    """Records of every acks mode and compression arrive once, and are read by a classic group."""
    topic = fresh("topic")
    create(front_39, topic)
    values = [f"value {number} " + "x" * 200 for number in range(400)]
    produce(front_39, topic, values, **settings)
    with consuming(front_39, fresh("group"), topic) as consumer:
        assert sorted(read(consumer, len(values))) == sorted(values)


def _protocols() -> list[Any]:
    """librdkafka speaks ConsumerGroupHeartbeat v1, Kafka 3.9 only has v0."""
    return [("3.9.1", "classic"), ("4.3.0", "classic"), ("4.3.0", "consumer")]


@pytest.mark.parametrize(("front", "protocol"), _protocols(), indirect=["front"])
def test_group_rebalances(front: Front, fresh: Fresh, protocol: str) -> None:
    """A second member takes half of the partitions, gives them back when it leaves, and offsets are kept."""
    topic, group = fresh("topic"), fresh("group")
    create(front, topic)
    settings: dict[str, Any] = {"group.protocol": protocol}
    if protocol == "classic":
        settings |= {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
    produce(front, topic, [f"{number}" for number in range(40)])
    with consuming(front, group, topic, **settings) as first:
        assert len(read(first, 40)) == 40
        with consuming(front, group, topic, **settings) as second:
            _balanced(first, second)
        _balanced(first)
        produce(front, topic, ["later"])
        assert read(first, 1) == ["later"]
        first.commit(asynchronous=False)
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        assert sum(place.offset for place in first.committed(places, 10)) == 41


def _balanced(*consumers: Consumer) -> None:
    """Poll until the partitions are spread evenly."""

    def even() -> bool:
        for consumer in consumers:
            message = consumer.poll(0.05)
            assert message is None or message.error() is None
        return all(len(consumer.assignment()) == PARTITIONS // len(consumers) for consumer in consumers)

    until(even, "an even assignment")


def test_transactions(front: Front, fresh: Fresh) -> None:
    """Committed records and offsets are seen, aborted ones are not."""
    topic, group = fresh("topic"), fresh("group")
    create(front, topic)
    producer = Producer({"bootstrap.servers": front.bootstrap, "transactional.id": fresh("id"), **QUIET})
    producer.init_transactions(LIMIT_S)
    with consuming(front, group, topic, **{"enable.auto.commit": False}) as consumer:
        metadata = consumer.consumer_group_metadata()
        for outcome in ("aborted", "committed"):
            producer.begin_transaction()
            producer.produce(topic, outcome, partition=0)
            offset = TopicPartition(topic, 0, 7 if outcome == "committed" else 3)
            producer.send_offsets_to_transaction([offset], metadata, 30)
            if outcome == "aborted":
                producer.flush(LIMIT_S)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        assert until(lambda: consumer.committed([TopicPartition(topic, 0)], 10)[0].offset > 0, "the offset")
        assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == 7
    with consuming(front, fresh("group"), topic, **{"isolation.level": "read_committed"}) as consumer:
        assert read(consumer, 1) == ["committed"]
    with consuming(front, fresh("group"), topic, **{"isolation.level": "read_uncommitted"}) as consumer:
        assert read(consumer, 2) == ["aborted", "committed"]


def test_fenced_transactional_producer(front_39: Front, fresh: Fresh) -> None:
    """A second producer of the same transactional id fences the first."""
    topic, name = fresh("topic"), fresh("id")
    create(front_39, topic)
    first, second = (
        Producer({"bootstrap.servers": front_39.bootstrap, "transactional.id": name, **QUIET}) for _ in range(2)
    )
    first.init_transactions(LIMIT_S)
    first.begin_transaction()
    first.produce(topic, "late")
    second.init_transactions(LIMIT_S)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(30)
    assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)


def test_admin(front: Front, fresh: Fresh) -> None:
    """Admin requests work, and every address in their responses is the proxy's."""
    topic, group = fresh("topic"), fresh("group")
    admin = AdminClient({"bootstrap.servers": front.bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(LIMIT_S)
    cluster = admin.describe_cluster(request_timeout=LIMIT_S).result(LIMIT_S)
    ports = {node.port for node in cluster.nodes} | {cluster.controller.port}
    assert ports == {front.first_port + node.id for node in cluster.nodes}
    produce(front, topic, ["value"])
    with consuming(front, group, topic) as consumer:
        read(consumer, 1)
        consumer.commit(asynchronous=False)
        described = admin.describe_consumer_groups([group], request_timeout=LIMIT_S)[group].result(LIMIT_S)
        assert (len(described.members), described.coordinator.port) == (1, front.first_port + described.coordinator.id)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    config = admin.describe_configs([resource])[resource].result(LIMIT_S)
    assert config["cleanup.policy"].value == "delete"
    listed = admin.list_consumer_groups(request_timeout=LIMIT_S).result(LIMIT_S)
    assert group in {each.group_id for each in listed.valid}
    place = TopicPartition(topic, 0, 0)
    moved = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [place])])[group].result(LIMIT_S)
    assert moved.topic_partitions[0].error is None
    deleted = admin.delete_records([TopicPartition(topic, 0, 1)])
    assert [each.result(LIMIT_S).low_watermark for each in deleted.values()] == [1]
    admin.delete_consumer_groups([group])[group].result(LIMIT_S)
    admin.delete_topics([topic])[topic].result(LIMIT_S)


@contextmanager
def sharing(front: Front, group: str, topic: str, mode: str = "implicit", **settings: Any) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": front.bootstrap, "group.id": group, "share.acknowledgement.mode": mode, **QUIET,
            **settings,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def from_the_start(front: Front, group: str, **settings: str) -> None:
    with Raw(front.bootstrap) as raw:
        quick = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
        raw.configure_group(group, quick | settings)


def test_share_consumers_divide_the_work(front: Front, fresh: Fresh) -> None:
    """Three share consumers get every record, each exactly one of them; nothing arrives again."""
    topic, group = fresh("topic"), fresh("group")
    create(front, topic)
    from_the_start(front, group)
    values = [f"{number}" for number in range(600)]
    got: list[str] = []
    with ExitStack() as stack:
        members = [stack.enter_context(sharing(front, group, topic, **{"max.poll.records": 20})) for _ in range(3)]
        for batch in range(0, 600, 100):
            produce(front, topic, values[batch : batch + 100])

        def all_read() -> bool:
            for member in members:
                got.extend(value(message) for message in member.poll(0.1))
            return len(got) >= len(values)

        until(all_read, "all records")
        for member in members:
            got += [value(message) for message in member.poll(0.5)]
    assert sorted(got) == sorted(values)


def test_share_consumer_acknowledges(front: Front, fresh: Fresh) -> None:
    """Accepted and rejected records are settled, a released one is delivered again as the second delivery."""
    topic, group = fresh("topic"), fresh("group")
    create(front, topic, 1)
    from_the_start(front, group)
    produce_to_one(front, topic, ["accept", "release", "reject"])
    kinds = {
        "accept": AcknowledgeType.ACCEPT,
        "release": AcknowledgeType.RELEASE,
        "reject": AcknowledgeType.REJECT,
    }
    deliveries: list[tuple[str, int | None]] = []
    with sharing(front, group, topic, "explicit") as consumer:
        for count, kind in ((3, None), (4, AcknowledgeType.ACCEPT)):
            while_missing(consumer, deliveries, count, lambda text, kind=kind: kind or kinds[text])
            assert all(error is None for error in consumer.commit_sync(LIMIT_S).values())
        assert len(consumer.poll(1)) == 0
    assert sorted(deliveries) == [("accept", 1), ("reject", 1), ("release", 1), ("release", 2)]


def produce_to_one(front: Front, topic: str, values: Sequence[str]) -> None:
    with Raw(front.bootstrap) as raw:
        existing = raw.topic(topic)
        assert existing is not None
        raw.produce(existing, [text.encode() for text in values])


def while_missing(
    consumer: ShareConsumer,
    deliveries: list[tuple[str, int | None]],
    count: int,
    kind: Callable[[str], AcknowledgeType],
    limit_s: float = LIMIT_S,
) -> None:
    """Poll and acknowledge until this many deliveries were seen."""
    end = time.monotonic() + limit_s
    while len(deliveries) < count:
        assert time.monotonic() < end, deliveries
        for message in consumer.poll(0.5):
            deliveries.append((value(message), message.delivery_count()))
            consumer.acknowledge(message, kind(value(message)))


def test_share_consumer_closed_without_acknowledging(front: Front, fresh: Fresh) -> None:
    """Records held by a closing consumer are delivered to another immediately, as the second delivery."""
    topic, group = fresh("topic"), fresh("group")
    create(front, topic, 1)
    from_the_start(front, group)
    produce_to_one(front, topic, ["one", "two"])
    with sharing(front, group, topic, "explicit") as first:
        held: list[str] = []
        until(lambda: held.extend(value(message) for message in first.poll(0.5)) or len(held) == 2, "both records")
    deliveries: list[tuple[str, int | None]] = []
    with sharing(front, group, topic, "explicit") as second:
        while_missing(second, deliveries, 2, lambda _: AcknowledgeType.ACCEPT, BEFORE_LOCK_S)
        second.commit_sync(LIMIT_S)
    assert sorted(deliveries) == [("one", 2), ("two", 2)]


@pytest.mark.parametrize(("isolation", "expected"), [
    ("read_committed", ["committed"]), ("read_uncommitted", ["aborted", "committed"]),
])  # fmt: skip
def test_share_consumer_and_transactions(front: Front, fresh: Fresh, isolation: str, expected: list[str]) -> None:
    """A group that reads committed records never sees aborted ones, and no group sees markers."""
    topic, group = fresh("topic"), fresh("group")
    create(front, topic, 1)
    from_the_start(front, group, **{"share.isolation.level": isolation})
    producer = Producer({"bootstrap.servers": front.bootstrap, "transactional.id": fresh("id"), **QUIET})
    producer.init_transactions(LIMIT_S)
    for outcome in ("aborted", "committed"):
        producer.begin_transaction()
        producer.produce(topic, outcome)
        producer.flush(LIMIT_S)
        (producer.abort_transaction if outcome == "aborted" else producer.commit_transaction)(LIMIT_S)
    got: list[str] = []
    with sharing(front, group, topic) as consumer:
        until(lambda: got.extend(value(m) for m in consumer.poll(0.3)) or len(got) >= len(expected), "the records")
        got += [value(message) for message in consumer.poll(1)]
    assert got == expected
