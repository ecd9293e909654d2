"""kafka-python through the proxy."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.raw import LIMIT_S, Raw, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic
    from kafka.structs import OffsetAndMetadata

pytestmark = [
    pytest.mark.broker,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # A closed client occasionally leaves a connection to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PARTITIONS = 4
Fresh = Callable[[str], str]


@pytest.fixture
def topic(front: Front, fresh: Fresh) -> str:
    name = fresh("topic")
    admin = KafkaAdminClient(bootstrap_servers=front.bootstrap)
    try:
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])
        until(lambda: name in admin.list_topics(), f"topic {name}")
    finally:
        admin.close()
    with Raw(front.bootstrap) as raw:
        raw.wait_for_leaders(name, PARTITIONS)
    return name


def subscribed(topic: str, **settings: Any) -> KafkaConsumer:
    """A consumer that knows the topic before it joins: else kafka-python may assign nothing, also without a proxy."""
    consumer = KafkaConsumer(**settings)
    until(lambda: consumer.partitions_for_topic(topic), f"partitions of {topic}")
    consumer.subscribe([topic])
    return consumer


def read(consumer: KafkaConsumer, count: int, limit_s: float = LIMIT_S) -> list[str]:
    got: list[str] = []
    end = time.monotonic() + limit_s
    while len(got) < count:
        assert time.monotonic() < end, f"{len(got)} of {count} records came"
        for batch in consumer.poll(timeout_ms=200).values():
            got += [record.value.decode() for record in batch]
    return got


@pytest.mark.parametrize("settings", [
    {"acks": "all"}, {"acks": 0}, {"acks": 1}, {"compression_type": "gzip"}, {"compression_type": "zstd"},
], ids=lambda settings: "-".join(map(str, settings.values())))  # fmt: skip
def test_produce_and_consume(front: Front, topic: str, fresh: Fresh, settings: dict[str, Any]) -> None:
    """Records arrive once, with any acks and compression."""
    values = [f"value {number}" for number in range(100)]
    producer = KafkaProducer(bootstrap_servers=front.bootstrap, **{"enable_idempotence": False} | settings)
    try:
        for value in values:
            producer.send(topic, value.encode())
        producer.flush(30)
    finally:
        producer.close()
    consumer = subscribed(
        topic, bootstrap_servers=front.bootstrap, group_id=fresh("group"), auto_offset_reset="earliest"
    )
    try:
        assert sorted(read(consumer, 100)) == sorted(values)
    finally:
        consumer.close()


def test_group_rebalances(front: Front, topic: str, fresh: Fresh) -> None:
    """Two members share the partitions; when one leaves, the other has them all."""
    group = fresh("group")
    settings: dict[str, Any] = {
        "bootstrap_servers": front.bootstrap, "group_id": group, "heartbeat_interval_ms": 300,
        "session_timeout_ms": 6000,
    }  # fmt: skip
    first, second = subscribed(topic, **settings), subscribed(topic, **settings)
    stopping = threading.Event()
    other = threading.Thread(target=_poll_until, args=(second, stopping), daemon=True)
    other.start()
    try:
        until(lambda: first.poll(50) is not None and len(first.assignment()) == 2, "half of the partitions")
        stopping.set()  # it may just be rejoining: then the broker delays its leaving until the join is done
        until(lambda: first.poll(50) is not None and not other.is_alive(), "the second member to leave")
        until(lambda: first.poll(50) is not None and len(first.assignment()) == PARTITIONS, "all partitions")
    finally:
        stopping.set()
        first.close()


def _poll_until(consumer: KafkaConsumer, stopping: threading.Event) -> None:
    while not stopping.is_set():
        consumer.poll(50)
    consumer.close()


def test_transactions(front: Front, topic: str, fresh: Fresh) -> None:
    """Committed records and offsets are seen, aborted ones are not."""
    group, place = fresh("group"), TopicPartition(topic, 0)
    producer = KafkaProducer(bootstrap_servers=front.bootstrap, transactional_id=fresh("id"))
    try:
        producer.init_transactions()
        for outcome in ("aborted", "committed"):
            producer.begin_transaction()
            producer.send(topic, outcome.encode(), partition=0)
            offset = OffsetAndMetadata(7 if outcome == "committed" else 3, "", -1)
            producer.send_offsets_to_transaction({place: offset}, group)
            producer.flush(30)
            (producer.abort_transaction if outcome == "aborted" else producer.commit_transaction)()
    finally:
        producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=front.bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    try:
        consumer.assign([place])
        assert until(lambda: consumer.committed(place), "the committed offset") == 7
        consumer.seek_to_beginning(place)
        assert read(consumer, 1) == ["committed"]
    finally:
        consumer.close()


def test_admin(front: Front, topic: str, fresh: Fresh) -> None:
    """Admin requests work, and every address in their responses is the proxy's."""
    group = fresh("group")
    consumer = subscribed(topic, bootstrap_servers=front.bootstrap, group_id=group)
    admin = KafkaAdminClient(bootstrap_servers=front.bootstrap)
    try:
        until(lambda: consumer.poll(50) is not None and consumer.assignment(), "the assignment")
        cluster = admin.describe_cluster()
        assert {each["port"] for each in cluster["brokers"]} == {front.first_port + 1}
        assert group in str(admin.list_groups())
        consumer.close()
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics(), "the topic to be gone")
    finally:
        consumer.close()
        admin.close()
