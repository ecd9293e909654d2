"""One member of a group that reads a view, as a process of its own, which tells what it gets.

    python -m tests.support.view_member CLIENT BOOTSTRAP GROUP TOPIC [ASSIGNOR]

CLIENT: confluent-classic, confluent-consumer, kafka-python, aiokafka. Every line of its output is a JSON list:
["assigned", [partition...]], ["record", partition, offset, key, value], ["error", text]. Records are told before they
are committed. It ends, leaving its group, when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

BATCH, WAIT_S = 200, 0.2
SESSION_MS, BEAT_MS = 6000, 500
REFRESH_MS = 1000


def tell(*line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def stopped() -> threading.Event:
    """Set when nobody holds the other end of the input any more."""
    event = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def confluent(protocol: str, bootstrap: str, group: str, topic: str, assignor: str) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    settings: dict[str, Any] = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": BEAT_MS}
    if assignor:
        settings["partition.assignment.strategy"] = assignor
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "log_level": 2,
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 200,
            "topic.metadata.refresh.interval.ms": REFRESH_MS, "error_cb": lambda error: tell("error", str(error)),
            **(settings if protocol == "classic" else {}),
        }
    )  # fmt: skip
    known: list[int] = [-1]

    def assigned() -> None:
        now = sorted(each.partition for each in consumer.assignment())
        if now != known:
            known[:] = now
            tell("assigned", now)

    end = stopped()
    consumer.subscribe([topic])
    while not end.is_set():
        messages = consumer.consume(BATCH, WAIT_S)
        assigned()
        for message in messages:
            if message.error():
                tell("error", str(message.error()))
            else:
                tell("record", message.partition(), message.offset(), message.key().decode(), message.value().decode())
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError._NO_OFFSET, *REBALANCING):
                    tell("error", str(error))
    consumer.close()


REBALANCING = (22, 25, 27, 110, 113)
"""Codes of commits during a rebalance: the records come again."""


def kafka_python(bootstrap: str, group: str, topic: str, assignor: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
        from kafka.errors import CommitFailedError, RebalanceInProgressError

    chosen = {"sticky": [StickyPartitionAssignor], "cooperative-sticky": [CooperativeStickyAssignor]}.get(assignor)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, metadata_max_age_ms=REFRESH_MS,
        fetch_max_wait_ms=200, **({"partition_assignment_strategy": chosen} if chosen else {}),
    )  # fmt: skip
    end, known = stopped(), [-1]
    while not end.is_set():
        got = consumer.poll(timeout_ms=int(WAIT_S * 1000), max_records=BATCH)
        known = _changed(known, [each.partition for each in consumer.assignment()])
        for records in got.values():
            for record in records:
                tell("record", record.partition, record.offset, record.key.decode(), record.value.decode())
        if got:
            with suppress(CommitFailedError, RebalanceInProgressError):  # the records come again
                consumer.commit()
    consumer.close()


def aiokafka(bootstrap: str, group: str, topic: str, assignor: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import CommitFailedError

    chosen = {"partition_assignment_strategy": [StickyPartitionAssignor]} if assignor == "sticky" else {}

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, metadata_max_age_ms=REFRESH_MS,
            fetch_max_wait_ms=200, **chosen,
        )  # fmt: skip
        await consumer.start()
        end, known = stopped(), [-1]
        try:
            while not end.is_set():
                got = await consumer.getmany(timeout_ms=int(WAIT_S * 1000), max_records=BATCH)
                known = _changed(known, [each.partition for each in consumer.assignment()])
                for records in got.values():
                    for record in records:
                        tell("record", record.partition, record.offset, record.key.decode(), record.value.decode())
                if got:
                    with suppress(CommitFailedError):  # the records come again
                        await consumer.commit()
        finally:
            await consumer.stop()

    asyncio.run(run())


def _changed(known: Sequence[int], now: Sequence[int]) -> list[int]:
    if sorted(now) != list(known):
        tell("assigned", sorted(now))
    return sorted(now)


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    "confluent-classic": lambda *rest: confluent("classic", *rest),
    "confluent-consumer": lambda *rest: confluent("consumer", *rest),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


if __name__ == "__main__":
    CLIENTS[sys.argv[1]](*sys.argv[2:5], *(sys.argv[5:6] or [""]))
