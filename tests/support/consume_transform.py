"""Consume, transform, produce with a stock transactional producer, records finished in any order.

As a program it does all of it in a separate process: a client that waits for a proxy does not block its start.
    python -m tests.support.consume_transform BOOTSTRAP TOPIC OUTPUT GROUP RECORDS SEED
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka_share_proxy.offsets.ledger import OffsetLedger

from tests.support.commit_members import ConfluentMember
from tests.support.raw import LIMIT_S

METADATA_MAX = 4096
SOON_LOST: dict[str, Any] = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
"""A member that a crash cut off keeps the next one waiting no longer than brokers demand."""
TAKEN, FINISHED = 30, 20
"""Records that are read in one attempt, and finished."""


class Job:
    """One worker, which begins anew with every attempt: what it knows is what the group has committed."""

    def __init__(self, bootstrap: str, topic: str, output: str, group: str, records: int, seed: int) -> None:
        self.bootstrap, self.topic, self.output, self.group, self.records = bootstrap, topic, output, group, records
        self._dice = random.Random(seed)
        self._producers: list[Producer] = []
        """All of them: one that is collected waits for its brokers, and keeps the interpreter meanwhile."""

    def attempt(self, *, aborts: bool = False) -> bool:
        """Run one transaction. Return True if everything was done before. Raises KafkaException."""
        producer = self._producer()  # first: while a transaction is open its commits are not visible
        member = ConfluentMember(self.bootstrap, self.group, self.topic, **SOON_LOST)
        try:
            ledger = OffsetLedger.from_committed(*member.committed(self.topic, 0))
            if ledger.offset == self.records:
                return True
            records = self._take(ledger)
            self._dice.shuffle(records)
            producer.begin_transaction()
            for offset, value in records[:FINISHED]:
                producer.produce(self.output, value)
                ledger.done(offset)
            place = TopicPartition(self.topic, 0, ledger.offset or 0, ledger.text(METADATA_MAX))
            producer.send_offsets_to_transaction([place], member.consumer.consumer_group_metadata(), LIMIT_S)
            if aborts:
                producer.abort_transaction(LIMIT_S)
            else:
                producer.commit_transaction(LIMIT_S)
            return False
        finally:
            member.close()

    def _producer(self) -> Producer:
        """Return a new producer, which fences the last one and ends its transaction."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": f"job-{self.group}", "log_level": 2}
        )
        self._producers.append(producer)
        producer.init_transactions(LIMIT_S)
        return producer

    def _take(self, ledger: OffsetLedger) -> list[tuple[int, bytes]]:
        """Return records that are not done, from the ledger's offset on."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader", "log_level": 2})
        consumer.assign([TopicPartition(self.topic, 0, ledger.offset or 0)])
        records: list[tuple[int, bytes]] = []
        try:
            while len(records) < TAKEN and (ledger.position or 0) < self.records:
                record = consumer.poll(LIMIT_S)
                if record is None:
                    raise KafkaException("no record came")
                if record.error() is None and (offset := record.offset()) is not None and ledger.delivered(offset):
                    records.append((offset, record.value() or b""))
            return records
        finally:
            consumer.close()

    def results(self) -> list[int]:
        """Return what the output has, read committed, in order; and nothing more."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        consumer.assign([TopicPartition(self.output, 0, 0)])
        got: list[int] = []
        try:
            while len(got) < self.records:
                record = consumer.poll(LIMIT_S)
                assert record is not None, f"{len(got)} of {self.records} came"
                got.append(int(record.value() or b""))
            assert consumer.poll(1.0) is None, "more than was put in"
            return sorted(got)
        finally:
            consumer.close()


def main(bootstrap: str, topic: str, output: str, group: str, records: str, seed: str) -> int:
    """Repeat attempts until everything is done. Return the exit status."""
    job = Job(bootstrap, topic, output, group, int(records), int(seed))
    for _ in range(60):
        try:
            if job.attempt():
                return 0
        except (KafkaException, TimeoutError) as error:
            print(f"begins anew: {error}", flush=True)
    return 1


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
