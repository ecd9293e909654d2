"""One stock client with default settings, in a separate process, that subscribes to a topic.

    python -m tests.support.plain_reader CLIENT BOOTSTRAP GROUP TOPIC COUNT [USER PASSWORD]

CLIENT: see `CLIENTS`. It writes a JSON list per line, ["value", text] or ["error", text], and ends after the first
error or COUNT different values. Besides the bootstrap servers and the group only the start of the log is set, and
SASL/PLAIN for a user.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any


class Reported:
    """Output of the client."""

    def __init__(self, count: int) -> None:
        self._count, self._values = count, set[str]()
        self.is_over = False

    def value(self, value: bytes | None) -> None:
        self._values.add((value or b"").decode())
        print(json.dumps(["value", (value or b"").decode()]), flush=True)
        self.is_over = self.is_over or len(self._values) >= self._count

    def error(self, text: object) -> None:
        print(json.dumps(["error", str(text)]), flush=True)
        self.is_over = True


Reader = Callable[[str, str, str, list[str], Reported], None]


def confluent(**settings: str) -> Reader:
    def read(bootstrap: str, group: str, topic: str, user: list[str], report: Reported) -> None:
        from confluent_kafka import Consumer

        sasl = dict(zip(("sasl.username", "sasl.password"), user, strict=False))
        if user:
            sasl |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        plain = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 2}
        consumer = Consumer(plain | sasl | settings)
        consumer.subscribe([topic])
        while not report.is_over:
            message = consumer.poll(1.0)
            if message is not None and (error := message.error()) is not None:
                report.error(error.str())
            elif message is not None:
                report.value(message.value())
        consumer.close()

    return read


def kafka_python(bootstrap: str, group: str, topic: str, user: list[str], report: Reported) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

    class Logged(logging.Handler):
        """It reports missing rights nowhere else, and continues."""

        def emit(self, record: logging.LogRecord) -> None:
            report.error(record.getMessage())
            os._exit(0)

    logging.getLogger("kafka").addHandler(Logged(logging.ERROR))
    sasl = dict(zip(("sasl_plain_username", "sasl_plain_password"), user, strict=False))
    if user:
        sasl |= {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", **sasl)
    try:
        for record in consumer:
            report.value(record.value)
            if report.is_over:
                break
    except KafkaError as error:
        report.error(repr(error))
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, user: list[str], report: Reported) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    sasl: dict[str, Any] = dict(zip(("sasl_plain_username", "sasl_plain_password"), user, strict=False))
    if user:
        sasl |= {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", **sasl
        )
        try:
            await consumer.start()
            while not report.is_over:
                report.value((await consumer.getone()).value)
        except KafkaError as error:
            report.error(repr(error))
        finally:
            await consumer.stop()

    asyncio.run(read())


def ours(protocol: str) -> Reader:
    def read(bootstrap: str, group: str, topic: str, user: list[str], report: Reported) -> None:
        import trio
        from kafka_share_proxy.client.opening import open_consumer
        from kafka_share_proxy.consumer.events import ConsumerError

        async def consume() -> None:
            options: dict[str, Any] = {"sasl": ("PLAIN", *user)} if user else {}
            options |= {"group_protocol": protocol, "auto_offset_reset": "earliest"}
            async with open_consumer(bootstrap, group=group, topics=[topic], **options) as consumer:
                while not report.is_over:
                    try:
                        for record in (await consumer.poll(1)).records:
                            report.value(record.value)
                    except ConsumerError as error:
                        report.error(error)

        trio.run(consume)

    return read


CLIENTS: dict[str, Reader] = {
    "confluent-eager": confluent(),
    "confluent-cooperative": confluent(**{"partition.assignment.strategy": "cooperative-sticky"}),
    "confluent-consumer": confluent(**{"group.protocol": "consumer"}),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "trio-classic": ours("classic"),
    "trio-consumer": ours("consumer"),
}


if __name__ == "__main__":
    client, bootstrap, group, topic, count, *user = sys.argv[1:]
    CLIENTS[client](bootstrap, group, topic, user, Reported(int(count)))
