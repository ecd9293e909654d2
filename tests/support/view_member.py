"""One member of a group that reads a view, in a separate process, which prints its records.

    python -m tests.support.view_member CLIENT BOOTSTRAP GROUP TOPIC [ASSIGNOR]

CLIENT: confluent-classic, confluent-consumer, kafka-python, aiokafka; trio-classic, trio-consumer: our own. Every line
of its output is a JSON list: ["assigned", [partition...]], all it has from now on; ["revoked", [partition...]], what it
gives up, or has lost; ["record", partition, offset, key, value]; ["error", text]. All in the order in which the client
learnt of them: records delivered again between "revoked" and "record" are correct. Records are printed before they are
committed. It ends, leaving its group, when its input ends; an error that ends it sooner is in its standard error.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

BATCH, WAIT_S = 200, 0.2
"""It commits after this many records, or when none arrived for this long."""
SESSION_MS, BEAT_MS = 10_000, 500
"""Next to a whole test run members get little CPU time: a live one must not be missed."""
REFRESH_MS = 1000


_telling = threading.Lock()


def tell(*line: Any) -> None:
    with _telling:  # some clients have a thread of their own for rebalances
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def report_partitions(kind: str, partitions: Iterable[Any]) -> None:
    """`kind`: "assigned" or "revoked"; partitions as clients have them."""
    tell(kind, sorted(each.partition for each in partitions))


def report_record(partition: int | None, offset: int | None, key: bytes | None, value: bytes | None) -> None:
    assert key is not None, "the test's records have keys"
    assert value is not None, "and values"
    tell("record", partition, offset, key.decode(), value.decode())


def stopped() -> threading.Event:
    """Set when the other end of the input is closed."""
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
    held: set[int] = set()

    def gained(_: Any, partitions: Iterable[Any]) -> None:  # under cooperative protocols only what is new
        held.update(each.partition for each in partitions)
        tell("assigned", sorted(held))

    def gave_up(_: Any, partitions: Iterable[Any]) -> None:
        held.difference_update(each.partition for each in partitions)
        report_partitions("revoked", partitions)
        tell("assigned", sorted(held))

    def commit() -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError._NO_OFFSET, *REBALANCING):
                tell("error", str(error))

    end = stopped()
    consumer.subscribe([topic], on_assign=gained, on_revoke=gave_up, on_lost=gave_up)
    uncommitted = 0
    while not end.is_set():
        message = consumer.poll(WAIT_S)  # one by one: what a rebalance means is then between two of them
        if message is not None and message.error():
            tell("error", str(message.error()))
        elif message is not None:
            report_record(message.partition(), message.offset(), message.key(), message.value())
            uncommitted += 1
        if uncommitted >= BATCH or (uncommitted and message is None):
            commit()
            uncommitted = 0
    consumer.close()


REBALANCING = (22, 25, 27, 110, 113)
"""Codes of commits during a rebalance: the records come again."""


def kafka_python(bootstrap: str, group: str, topic: str, assignor: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
        from kafka.errors import KafkaError

    chosen = {"sticky": [StickyPartitionAssignor], "cooperative-sticky": [CooperativeStickyAssignor]}.get(assignor)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, metadata_max_age_ms=REFRESH_MS,
        fetch_max_wait_ms=200, **({"partition_assignment_strategy": chosen} if chosen else {}),
    )  # fmt: skip

    class Reported(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:  # `on_partitions_lost` calls it too
            report_partitions("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            report_partitions("assigned", consumer.assignment())

    end = stopped()
    consumer.subscribe([topic], listener=Reported())
    while not end.is_set():
        got = consumer.poll(timeout_ms=int(WAIT_S * 1000), max_records=BATCH)
        remind_of_joining(consumer)
        for records in got.values():
            for record in records:
                report_record(record.partition, record.offset, record.key, record.value)
        if got:
            try:
                consumer.commit()
            except KafkaError as error:
                report_unless_rebalancing(error)
    consumer.close()


def remind_of_joining(consumer: Any) -> None:
    """kafka-python 3.0.12 forgets that it is joining, of plain topics as of views.

    A leader that joins anew because its topic grew takes the new partitions for known as soon as it has divided them.
    If a poll ends just before the SyncGroup response, no later poll waits for that response: the member sends no more
    heartbeats, is removed from its group, and never notices. Short polls make that likely, and a starved processor more
    so.
    """
    coordinator = consumer._coordinator
    if getattr(coordinator, "rejoining", False) and not coordinator.need_rejoin():
        coordinator.request_rejoin()


def aiokafka(bootstrap: str, group: str, topic: str, assignor: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    chosen = {"partition_assignment_strategy": [StickyPartitionAssignor]} if assignor == "sticky" else {}

    class Reported(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            report_partitions("revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            report_partitions("assigned", assigned)

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, metadata_max_age_ms=REFRESH_MS,
            fetch_max_wait_ms=200, **chosen,
        )  # fmt: skip
        consumer.subscribe([topic], listener=Reported())
        await consumer.start()
        end = stopped()
        try:
            while not end.is_set():
                got = await consumer.getmany(timeout_ms=int(WAIT_S * 1000), max_records=BATCH)
                for records in got.values():
                    for record in records:
                        report_record(record.partition, record.offset, record.key, record.value)
                if got:
                    try:
                        await consumer.commit()
                    except KafkaError as error:
                        report_unless_rebalancing(error)
        finally:
            await consumer.stop()

    asyncio.run(run())


def report_unless_rebalancing(error: Any) -> None:
    """An error of a commit: the records are committed with the next ones, or come again."""
    if type(error).__name__ != "CommitFailedError" and getattr(error, "errno", 0) not in REBALANCING:
        tell("error", f"{type(error).__name__}: {error}")
        time.sleep(WAIT_S)


def ours(protocol: str, bootstrap: str, group: str, topic: str, assignor: str) -> None:
    from tests.support.trio_member import run

    run(protocol, bootstrap, group, topic, assignor)


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    "confluent-classic": lambda *rest: confluent("classic", *rest),
    "confluent-consumer": lambda *rest: confluent("consumer", *rest),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "trio-classic": lambda *rest: ours("classic", *rest),
    "trio-consumer": lambda *rest: ours("consumer", *rest),
}


if __name__ == "__main__":
    CLIENTS[sys.argv[1]](*sys.argv[2:5], *(sys.argv[5:6] or [""]))
