"""A stock client with TLS: one_port_client.py FAMILY BOOTSTRAP TOPIC GROUP RECORDS, and files in the environment.

It produces records to all partitions and reads them in a group. It prints the records, and the brokers that it knows.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

PARTITIONS = 3
LIMIT_S = 90.0
CA, CERT, KEY = (os.environ.get(f"KSP_TEST_{name}", "") for name in ("CA", "CERT", "KEY"))


def context() -> ssl.SSLContext:
    tls_context = ssl.create_default_context(cafile=CA)
    tls_context.load_cert_chain(CERT, KEY)
    return tls_context


def librdkafka() -> dict[str, Any]:
    return {
        "bootstrap.servers": sys.argv[2],
        "security.protocol": "ssl",
        "ssl.ca.location": CA,
        "ssl.certificate.location": CERT,
        "ssl.key.location": KEY,
    }


def read(poll: Callable[[], list[str]], count: int) -> list[str]:
    """Poll until this many different records are there, at least."""
    values_read: list[str] = []
    end = time.monotonic() + LIMIT_S
    while len(set(values_read)) < count and time.monotonic() < end:
        values_read += poll()
    return values_read


def values_of(messages: Iterable[Any]) -> list[str]:
    return [each.value().decode() for each in messages if not each.error()]


def confluent(topic: str, group: str, values: list[str]) -> tuple[list[str], list[str]]:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(librdkafka())
    brokers = admin.describe_cluster(request_timeout=LIMIT_S).result(LIMIT_S).nodes
    producer = Producer(librdkafka() | {"enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer(librdkafka() | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values_read = read(lambda: values_of(consumer.consume(100, 0.5)), len(values))
    consumer.commit(asynchronous=False)
    consumer.close()
    return values_read, [f"{each.host}:{each.port}" for each in brokers]


def view(topic: str, group: str, values: list[str]) -> tuple[list[str], list[str]]:
    """Read the view of the topic by two members of a group."""
    from confluent_kafka import Consumer, Producer

    producer = Producer(librdkafka())
    for number, value in enumerate(values):
        producer.produce(topic, value, key=value, partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0
    members = [Consumer(librdkafka() | {"group.id": group, "auto.offset.reset": "earliest"}) for _ in range(2)]
    for member in members:
        member.subscribe([f"__view.r2.{topic}"])

    def poll() -> list[str]:
        return [value for member in members for value in values_of(member.consume(100, 0.3))]

    values_read = read(poll, len(values))
    for member in members:
        member.close()
    return values_read, []


def share(topic: str, group: str, values: list[str]) -> tuple[list[str], list[str]]:
    """Read by two members of a share group, which acknowledge with their next poll."""
    from confluent_kafka import Producer, ShareConsumer

    producer = Producer(librdkafka())
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0
    members = [ShareConsumer(librdkafka() | {"group.id": group}) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    values_read = read(lambda: [value for member in members for value in values_of(member.poll(0.3))], len(values))
    for member in members:
        member.poll(0.3)
        member.close()
    return values_read, []


def kafka_python(topic: str, group: str, values: list[str]) -> tuple[list[str], list[str]]:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    common = {"bootstrap_servers": sys.argv[2], "security_protocol": "SSL", "ssl_cafile": CA}
    common |= {"ssl_certfile": CERT, "ssl_keyfile": KEY}
    admin = KafkaAdminClient(**common)
    brokers = admin.describe_cluster()["brokers"]
    admin.close()
    producer = KafkaProducer(**common, acks="all")
    for number, value in enumerate(values):
        producer.send(topic, value.encode(), partition=number % PARTITIONS)
    producer.flush(LIMIT_S)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", **common)
    values_read = read(
        lambda: [each.value.decode() for got in consumer.poll(500).values() for each in got], len(values)
    )
    consumer.commit()
    consumer.close()
    return values_read, [f"{each['host']}:{each['port']}" for each in brokers]


def aiokafka(topic: str, group: str, values: list[str]) -> tuple[list[str], list[str]]:
    return asyncio.run(_aiokafka(topic, group, values))


async def _aiokafka(topic: str, group: str, values: list[str]) -> tuple[list[str], list[str]]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    common = {"bootstrap_servers": sys.argv[2], "security_protocol": "SSL", "ssl_context": context()}
    async with AIOKafkaProducer(**common, acks="all") as producer:
        for number, value in enumerate(values):
            await producer.send_and_wait(topic, value.encode(), partition=number % PARTITIONS)
    values_read: list[str] = []
    end = time.monotonic() + LIMIT_S
    async with AIOKafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", **common) as consumer:
        while len(set(values_read)) < len(values) and time.monotonic() < end:
            got = await consumer.getmany(timeout_ms=500)
            values_read += [each.value.decode() for records in got.values() for each in records]
        await consumer.commit()
        brokers = [f"{each.host}:{each.port}" for each in consumer._client.cluster.brokers()]
    return values_read, brokers


FAMILIES = {each.__name__: each for each in (confluent, view, share, kafka_python, aiokafka)}

if __name__ == "__main__":
    family, _, topic, group, count = sys.argv[1:]
    values_read, brokers = FAMILIES[family](topic, group, [f"{family} {number}" for number in range(int(count))])
    print(json.dumps({"seen": sorted(values_read), "brokers": sorted(brokers)}))
