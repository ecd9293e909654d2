"""A stock client at work until SIGTERM: python -m tests.support.working_client FAMILY ROLE BOOTSTRAP TOPIC NAME.

FAMILY: confluent, kafka-python, aiokafka. ROLE: produce, group; of confluent also transactions, view and commits. It
prints "P value time" for each record that was acknowledged to its producer, "C value time" for each that its group
NAME received, and "E error" for each error that an application sees. Times are nanoseconds since 1970.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka_share_proxy import OffsetLedger

PARTITIONS = 6
PAUSE_S = 0.02
"""Seconds between two records of a producer."""
IN_TRANSACTION = 10
POLL_S = 0.2
COMMIT_EVERY_S = 0.5
FLUSH_S = 120.0

STOP = threading.Event()


def tell(kind: str, value: object) -> None:
    print(kind, value, time.time_ns(), flush=True)


def failed(error: object) -> None:
    print("E", error, flush=True)


def values(name: str) -> Iterator[tuple[int, str]]:
    """Yield partition and value of one record after the other until SIGTERM."""
    number = 0
    while not STOP.wait(PAUSE_S):
        yield number % PARTITIONS, f"{name}-{number}"
        number += 1


# librdkafka


def confluent_produce(bootstrap: str, topic: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed(error)
        else:
            tell("P", message.value().decode())

    for partition, value in values(name):
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    if unsent := producer.flush(FLUSH_S):
        failed(f"{unsent} records are not acknowledged")


def confluent_transactions(bootstrap: str, topic: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(FLUSH_S)
    written: list[str] = []
    producer.begin_transaction()
    for partition, value in values(name):
        producer.produce(topic, value, partition=partition)
        producer.poll(0)
        written.append(value)
        if len(written) == IN_TRANSACTION:
            _commit_transaction(producer, written)
            written = []
            producer.begin_transaction()
    # Not aborted: librdkafka fails if the coordinator has accepted no partition yet (docs/clients.md).
    _commit_transaction(producer, written)


def _commit_transaction(producer: Producer, written: list[str]) -> None:
    """Commit. An error that is retriable is none for an application, by the contract of the client."""
    while True:
        try:
            producer.commit_transaction(FLUSH_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                failed(error)
                raise
        else:
            break
    for each in written:
        tell("P", each)


def confluent_group(bootstrap: str, topic: str, name: str) -> None:
    consumer = _subscribed(bootstrap, topic, name, {"auto.commit.interval.ms": int(COMMIT_EVERY_S * 1000)})
    for message in _messages(consumer):
        tell("C", message.value().decode())
    consumer.close()


confluent_view = confluent_group


def confluent_commits(bootstrap: str, topic: str, name: str) -> None:
    """Finish every second record late, and commit the ranges in between individually."""
    consumer = _subscribed(bootstrap, topic, name, {"enable.auto.commit": False})
    ledgers: dict[int, OffsetLedger] = {}
    late: dict[int, int] = {}
    committed_at = time.monotonic()
    for message in _messages(consumer, idle=True):
        if message is not None:
            partition, offset = message.partition(), message.offset()
            ledger = ledgers.get(partition) or ledgers.setdefault(partition, OffsetLedger.from_committed(offset, ""))
            ledger.delivered(offset)
            if partition in late:
                ledger.done(offset)
                ledger.done(late.pop(partition))
            else:
                late[partition] = offset
            tell("C", message.value().decode())
        if ledgers and time.monotonic() - committed_at > COMMIT_EVERY_S:
            committed_at = time.monotonic()
            _commit(consumer, topic, ledgers)
    consumer.close()


def _commit(consumer: Consumer, topic: str, ledgers: dict[int, OffsetLedger]) -> None:
    offsets = [
        TopicPartition(topic, partition, ledger.offset, metadata=ledger.text())
        for partition, ledger in ledgers.items()
        if ledger.offset is not None
    ]
    try:
        done = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        failed(error)
        return
    for each in done or ():
        if each.error is not None:
            failed(each.error)


def _subscribed(bootstrap: str, topic: str, group: str, settings: dict[str, Any]) -> Consumer:
    common = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(common | settings)
    consumer.subscribe([topic])
    return consumer


def _messages(consumer: Consumer, *, idle: bool = False) -> Iterator[Any]:
    """Yield messages until SIGTERM. `idle`: None too, if there is none."""
    while not STOP.is_set():
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is not None:
            failed(message.error())
        elif message is not None or idle:
            yield message


# kafka-python


def _kafka() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka
    return kafka


def kafka_python_produce(bootstrap: str, topic: str, name: str) -> None:
    producer = _kafka().KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    for partition, value in values(name):
        sent = producer.send(topic, value.encode(), partition=partition)
        sent.add_callback(lambda _, value=value: tell("P", value))
        sent.add_errback(failed)
    producer.flush(FLUSH_S)
    producer.close()


def kafka_python_group(bootstrap: str, topic: str, name: str) -> None:
    consumer = _kafka().KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest",
        auto_commit_interval_ms=int(COMMIT_EVERY_S * 1000),
    )  # fmt: skip
    while not STOP.is_set():
        for batch in consumer.poll(timeout_ms=int(POLL_S * 1000)).values():
            for record in batch:
                tell("C", record.value.decode())
    consumer.close()


# aiokafka


async def aiokafka_produce(bootstrap: str, topic: str, name: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def acknowledged(sent: Any, value: str) -> None:
        try:
            await sent
        except Exception as error:
            failed(repr(error))
        else:
            tell("P", value)

    tasks = []
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        number = 0
        while not STOP.is_set():
            value = f"{name}-{number}"
            sent = await producer.send(topic, value.encode(), partition=number % PARTITIONS)
            tasks.append(asyncio.create_task(acknowledged(sent, value)))
            number += 1
            await asyncio.sleep(PAUSE_S)
        await producer.flush()
        await asyncio.gather(*tasks)


async def aiokafka_group(bootstrap: str, topic: str, name: str) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest",
        auto_commit_interval_ms=int(COMMIT_EVERY_S * 1000),
    )  # fmt: skip
    async with consumer:
        while not STOP.is_set():
            for batch in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                for record in batch:
                    tell("C", record.value.decode())


ROLES: dict[tuple[str, str], Callable[[str, str, str], Any]] = {
    ("confluent", "produce"): confluent_produce,
    ("confluent", "transactions"): confluent_transactions,
    ("confluent", "group"): confluent_group,
    ("confluent", "view"): confluent_view,
    ("confluent", "commits"): confluent_commits,
    ("kafka-python", "produce"): kafka_python_produce,
    ("kafka-python", "group"): kafka_python_group,
    ("aiokafka", "produce"): aiokafka_produce,
    ("aiokafka", "group"): aiokafka_group,
}


def main(family: str, role: str, bootstrap: str, topic: str, name: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: STOP.set())
    try:
        running = ROLES[family, role](bootstrap, topic, name)
        if asyncio.iscoroutine(running):
            asyncio.run(running)
    except Exception as error:
        failed(repr(error))
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
