"""Stock clients at the target, with and without faults: what they do, and what the judge finds.

`KNOWN` has the findings of the versions in the lock file. A new one is either a fault of the client, and is added with
its reason, or a fault of the rule.
"""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_share_proxy.conformance.cluster_thread import KafkaCluster, KafkaFaults, running_cluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

RECORDS, PARTITIONS = 30, 3
LIMIT_S = 30.0
PAUSE_S = 0.2
"""Seconds between a throttled response and the next request: the client had the time to read it."""
QUIET = {"log_level": 0}

KNOWN: Mapping[str, frozenset[str]] = {
    # librdkafka writes an int32 for the null array of topics: three bytes remain.
    "rdkafka admin": frozenset({"unread-bytes"}),
}


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster() as running:
        running.create_topic("t", PARTITIONS)
        yield running
        assert running.failures() == []


def rules_of(cluster: KafkaCluster) -> set[str]:
    return {finding["rule"] for finding in cluster.findings()}


def rdkafka_produce(bootstrap: str, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET, **config})
    errors: list[Any] = []
    for number in range(RECORDS):
        producer.produce("t", f"v{number}", partition=number % PARTITIONS, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(LIMIT_S) == 0
    assert errors == [None] * RECORDS


def rdkafka_consume(bootstrap: str, group: str = "g", **config: Any) -> None:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings, **QUIET, **config})
    consumer.subscribe(["t"])
    values: set[bytes | None] = set()
    end = time.monotonic() + LIMIT_S
    while len(values) < RECORDS and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.add(message.value())
    assert len(values) == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def rdkafka_transaction(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x", **QUIET})
    producer.init_transactions(LIMIT_S)
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("t", b"v", partition=0)
        ends(LIMIT_S)


def rdkafka_admin(bootstrap: str) -> None:
    metadata = AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(timeout=LIMIT_S)
    assert set(metadata.topics) == {"t"}


def share_consumer(bootstrap: str, client_id: str) -> Any:
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": "g", "client.id": client_id, **QUIET})
    consumer.subscribe(["t"])
    return consumer


def polled(consumer: Any, count: int) -> list[Any]:
    """Poll until that many different records were delivered."""
    records: dict[tuple[int, int], Any] = {}
    end = time.monotonic() + LIMIT_S
    while len(records) < count and time.monotonic() < end:
        records |= {(record.partition(), record.offset()): record for record in consumer.poll(timeout=0.2)}
    assert len(records) >= count
    return list(records.values())


def rdkafka_share(bootstrap: str) -> None:
    rdkafka_produce(bootstrap)
    consumer = share_consumer(bootstrap, "share")
    polled(consumer, RECORDS)
    consumer.close()


def python_produce_and_consume(bootstrap: str) -> None:
    servers = bootstrap.split(",")
    producer = KafkaProducer(bootstrap_servers=servers)
    for number in range(RECORDS):
        producer.send("t", b"v%d" % number, partition=number % PARTITIONS)
    producer.flush(LIMIT_S)
    producer.close()
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=LIMIT_S * 1000,
    )
    assert len([record.value for _, record in zip(range(RECORDS), consumer, strict=False)]) == RECORDS
    consumer.commit()
    consumer.close()


def run_python(bootstrap: str) -> None:
    """Run kafka-python, and free a socket that it may leave unclosed when a connection ends while it closes."""
    python_produce_and_consume(bootstrap)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def aio_produce_and_consume(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for number in range(RECORDS):
            await producer.send_and_wait("t", b"v%d" % number, partition=number % PARTITIONS)
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer("t", bootstrap_servers=bootstrap, **settings) as consumer:
        values = {(await consumer.getone()).value for _ in range(RECORDS)}
        await consumer.commit()
    assert len(values) == RECORDS


def run_aio(bootstrap: str) -> None:
    asyncio.run(asyncio.wait_for(aio_produce_and_consume(bootstrap), LIMIT_S))


RUNS: Mapping[str, Callable[[str], None]] = {
    "rdkafka produce": rdkafka_produce,
    "rdkafka classic": lambda bootstrap: (rdkafka_produce(bootstrap), rdkafka_consume(bootstrap))[1],
    "rdkafka consumer": lambda bootstrap: (
        rdkafka_produce(bootstrap),
        rdkafka_consume(bootstrap, **{"group.protocol": "consumer"}),
    )[1],
    "rdkafka transaction": rdkafka_transaction,
    "rdkafka admin": rdkafka_admin,
    "rdkafka share": rdkafka_share,
    "kafka-python": run_python,
    "aiokafka": run_aio,
}


@pytest.mark.parametrize("run", RUNS)
def test_a_stock_client_works_with_its_known_findings(cluster: KafkaCluster, run: str) -> None:
    cluster.configure_group("g", share_auto_offset_reset="earliest")
    RUNS[run](cluster.bootstrap)
    assert rules_of(cluster) == KNOWN.get(run, frozenset())


FAULTS: Mapping[str, Mapping[str, Any]] = {
    "leader error": {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "count": 2},
    "retriable error after the append": {
        "api": "Produce",
        "error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "execute": True,
    },
    "cut response": {"api": "Produce", "cut_after": 6},
    "half a frame": {"api": "Metadata", "half_frame": True, "nth": 2},
    "commit at the wrong coordinator": {"api": "OffsetCommit", "error": "NOT_COORDINATOR"},
    "coordinator not available": {"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE", "count": 2},
    "fetch session lost": {"api": "Fetch", "error": "FETCH_SESSION_ID_NOT_FOUND", "at": "top", "nth": 2},
    "lost heartbeat connection": {"api": "SyncGroup", "cut_after": 0},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_rdkafka_recovers_from_a_fault_without_a_finding(cluster: KafkaCluster, fault: str) -> None:
    faults = KafkaFaults(cluster)
    number = faults.add(**FAULTS[fault])
    rdkafka_produce(cluster.bootstrap)
    rdkafka_consume(cluster.bootstrap)
    assert faults.applied(number) >= 1
    assert rules_of(cluster) == set()


def rdkafka_pause(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    for _ in range(2):
        producer.produce("t", b"v", partition=0)
        assert producer.flush(LIMIT_S) == 0
        time.sleep(PAUSE_S)


def python_pause(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))
    for _ in range(2):
        producer.send("t", b"v", partition=0).get(LIMIT_S)
        time.sleep(PAUSE_S)
    producer.close()


def aio_pause(bootstrap: str) -> None:
    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for _ in range(2):
                await producer.send_and_wait("t", b"v", partition=0)
                await asyncio.sleep(PAUSE_S)

    asyncio.run(asyncio.wait_for(produce(), LIMIT_S))


THROTTLED: Mapping[str, tuple[Callable[[str], None], set[str]]] = {
    "rdkafka": (rdkafka_pause, {"throttle-ignored"}),
    "aiokafka": (aio_pause, {"throttle-ignored"}),
    "kafka-python": (python_pause, set()),
}
"""Two Produce requests of each client, and the findings: C5 of docs/conformance-results.md."""


@pytest.mark.parametrize("client", THROTTLED)
def test_a_throttled_client_waits_or_is_found(cluster: KafkaCluster, client: str) -> None:
    KafkaFaults(cluster).add(api="Produce", throttle_ms=3000, count=1)
    run, rules = THROTTLED[client]
    run(cluster.bootstrap)
    assert rules_of(cluster) == rules


def test_an_expired_lock_delivers_the_records_to_another_member(cluster: KafkaCluster) -> None:
    cluster.configure_group("g", share_auto_offset_reset="earliest")
    cluster.do("topics/t/delete")
    cluster.create_topic("t", 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    producer.produce("t", b"v")
    assert producer.flush(LIMIT_S) == 0
    slow, other = share_consumer(cluster.bootstrap, "slow"), share_consumer(cluster.bootstrap, "other")
    assert [record.delivery_count() for record in polled(slow, 1)] == [1]
    assert len(other.poll(timeout=0.5)) == 0
    cluster.advance_clock(30)
    assert [record.delivery_count() for record in polled(other, 1)] == [2]
    for consumer in (other, slow):
        consumer.close()
    assert rules_of(cluster) == set()


def member(bootstrap: str, protocol: str) -> Consumer:
    settings = {"group.id": "g", "client.id": protocol, "auto.offset.reset": "earliest", "group.protocol": protocol}
    classic = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200} if protocol == "classic" else {}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings, **classic, **QUIET})
    consumer.subscribe(["t"])
    return consumer


def poll_until(consumers: Iterable[Consumer], is_done: Callable[[], bool]) -> None:
    """Poll the consumers in turn, until that is true."""
    end = time.monotonic() + LIMIT_S
    while not is_done() and time.monotonic() < end:
        for consumer in consumers:
            consumer.poll(0.05)
    assert is_done()


def test_a_group_migrates_to_the_consumer_protocol_and_back(cluster: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})

    def kind() -> list[str]:
        return [group.type.name for group in admin.list_consumer_groups().result(LIMIT_S).valid]

    def share(*consumers: Consumer) -> bool:
        parts = [{each.partition for each in consumer.assignment()} for consumer in consumers]
        return all(parts) and sum(map(len, parts)) == PARTITIONS and set().union(*parts) == set(range(PARTITIONS))

    classic = member(cluster.bootstrap, "classic")
    poll_until([classic], lambda: share(classic))
    assert kind() == ["CLASSIC"]
    modern = member(cluster.bootstrap, "consumer")
    poll_until([classic, modern], lambda: share(classic, modern))
    assert kind() == ["CONSUMER"]
    for consumer in (classic, modern):
        consumer.commit(offsets=[TopicPartition("t", consumer.assignment()[0].partition, 1)], asynchronous=False)
    modern.close()
    poll_until([classic], lambda: share(classic))
    assert kind() == ["CLASSIC"]
    classic.close()
    assert rules_of(cluster) == set()


def test_a_share_consumer_follows_its_coordinator_and_its_leader(cluster: KafkaCluster) -> None:
    cluster.configure_group("g", share_auto_offset_reset="earliest")
    consumer = share_consumer(cluster.bootstrap, "share")
    for node in (1, 2, 3):
        cluster.move_coordinator("g", node)
        cluster.move_leader("t", 0, node)
        rdkafka_produce(cluster.bootstrap)
        # Records whose acknowledgement was lost with the session at the former leader are delivered again.
        polled(consumer, RECORDS)
    consumer.close()
    assert rules_of(cluster) <= {"leave-missing"}


def test_a_consumer_reads_on_when_a_node_goes_down(cluster: KafkaCluster) -> None:
    cluster.do("topics/t/delete")
    cluster.do("topics", name="t", partitions=PARTITIONS, replication=3)
    rdkafka_produce(cluster.bootstrap)
    leader = cluster.state()["topics"][0]["partitions"][0]["leader"]
    cluster.take_node_down(leader)
    rdkafka_consume(cluster.bootstrap)
    assert rules_of(cluster) == set()
