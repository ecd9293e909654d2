"""Traffic for `pipeline demo`: records with Zipf keys, share group members with different habits, readers of a view.

They are stock clients and share consumers of this package, each in its own thread, like independent programs.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.client.share_records import ShareRecord
from kafka_share_proxy.consumer.events import BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import LockLostError
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

KEYS = 20_000
EXPONENT = 1.05
"""Exponent of Zipf's law: the key of rank r is r ** -EXPONENT times as frequent as the first."""
LOCK_S = 2.0
RENEWED_LOCKS = 3
"""Duration of a slow job, in lock durations."""
ODD_POLLS = 3
"""Polls in which a member does not just accept. The number is small, so that no record reaches the delivery limit."""
POLL_S = 0.5
WAIT_STEP_S = 0.1
"""Seconds after which a member that works checks if it should end."""
END_S = 20.0
"""Seconds that a thread may take to end."""


class TrafficFailed(ProxyError):
    """A client had an error, or did not receive all records in time."""


class ZipfKeys:
    """Generator of keys of which a few are hot. The same seed gives the same keys."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a load, not a secret
        self._weights = list(accumulate(rank**-EXPONENT for rank in range(1, KEYS + 1)))

    def drawn(self, count: int) -> list[bytes]:
        """Return `count` random keys."""
        return [b"user-%d" % each for each in self._chance.choices(range(KEYS), cum_weights=self._weights, k=count)]


def produce(bootstrap: str, topic: str, keys: Sequence[bytes]) -> None:
    """Produce one record for each key. Raises TrafficFailed."""
    troubles: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            troubles.append(str(error))

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": len(keys) + 1}
    producer = Producer(settings | {"log_level": 2})
    for number, key in enumerate(keys):
        producer.produce(topic, b"order %d" % number, key, on_delivery=delivered)
        if number % 5_000 == 0:
            producer.poll(0)
    unproduced = producer.flush(60)
    if unproduced or troubles:
        raise TrafficFailed(f"{unproduced} records of {topic} were not produced: {troubles[:1]}")


class RecordPlace(NamedTuple):
    """Partition and offset of a record in a topic."""

    partition: int
    offset: int


class Client:
    """A client in a thread, which ends with the `with` block."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: set[RecordPlace] = set()
        """Records that it has processed."""
        self.trouble = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def __enter__(self) -> Client:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._thread.join(END_S)

    def end(self) -> None:
        self._ending.set()

    def _guarded(self) -> None:
        try:
            self._run()
        except (KafkaException, ProxyError, OSError) as error:
            self.trouble = f"{self.name}: {error}"

    def _run(self) -> None:
        raise NotImplementedError


Habit = Callable[["DemoMember", ShareConsumer, list[ShareRecord]], Awaitable[list[ShareRecord]]]
"""Returns the records of a poll that are to be accepted."""


class DemoMember(Client):
    """Member of a share group that accepts the records that its habit returns from each poll."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str, habit: Habit) -> None:
        super().__init__(name)
        self.polls = 0
        self._bootstrap, self._group, self._topic, self._habit = bootstrap, group, topic, habit

    async def wait(self, seconds: float) -> None:
        """Simulate work, interrupted when the client ends."""
        for _ in range(round(seconds / WAIT_STEP_S)):
            if not self._ending.is_set():
                await trio.sleep(WAIT_STEP_S)

    async def accept(self, consumer: ShareConsumer, records: Sequence[ShareRecord]) -> None:
        """Note records whose lock had not expired. Raises ConsumerError."""
        accepted = [record for record in records if consumer.acknowledge(record)]
        errors = await consumer.commit()
        for error in errors.values():
            if error is not None and not _is_lost_lock(error):
                raise error
        self.got.update(
            RecordPlace(each.partition, each.offset) for each in accepted if errors.get(each.origin) is None
        )

    def _run(self) -> None:
        trio.run(self._poll)

    async def _poll(self) -> None:
        async with open_share_consumer(
            self._bootstrap,
            group=self._group,
            topics=[self._topic],
            client_id=self.name,
            acknowledgement_mode="explicit",
        ) as consumer:
            while not self._ending.is_set():
                if records := await consumer.poll(POLL_S):
                    self.polls += 1
                    await self.accept(consumer, await self._habit(self, consumer, records))


def _is_lost_lock(error: ConsumerError) -> bool:
    """True if a lock expired, as it may on a busy machine."""
    return isinstance(error, BrokerRefused | LockLostError) and error.code == ErrorCode.INVALID_RECORD_STATE


async def accepts(_member: DemoMember, _consumer: ShareConsumer, records: list[ShareRecord]) -> list[ShareRecord]:
    return records


async def releases(member: DemoMember, consumer: ShareConsumer, records: list[ShareRecord]) -> list[ShareRecord]:
    """Release every tenth record, for delivery to any member."""
    returned = records[::10] if member.polls <= ODD_POLLS else []
    for record in returned:
        consumer.acknowledge(record, AcknowledgeType.RELEASE)
    return [record for record in records if record not in returned]


async def forgets(member: DemoMember, _consumer: ShareConsumer, records: list[ShareRecord]) -> list[ShareRecord]:
    """Pause until the records are delivered to other members."""
    if member.polls > ODD_POLLS:
        return records
    await member.wait(LOCK_S * 1.5)
    return []


async def renews(member: DemoMember, consumer: ShareConsumer, records: list[ShareRecord]) -> list[ShareRecord]:
    slow, later = records[:1], records[1:]
    if member.polls > ODD_POLLS:
        return records
    await member.accept(consumer, later)
    for _ in range(2 * RENEWED_LOCKS):
        await member.wait(LOCK_S / 2)
        await consumer.renew(*slow)
    return slow


class ViewReader(Client):
    """Stock consumer in a group, which collects the records that it receives."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(name)
        self._topic = topic
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "roundrobin",
            "log_level": 2,
        }

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.subscribe([self._topic])
            while not self._ending.is_set():
                for message in consumer.consume(1_000, POLL_S):
                    self._take(message)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            raise KafkaException(message.error())
        self.got.add(RecordPlace(message.partition() or 0, message.offset() or 0))


def done(clients: Sequence[Client]) -> set[RecordPlace]:
    """Return the records processed by any of the clients."""
    return set().union(*(client.got.copy() for client in clients))


def until_done(clients: Sequence[Client], count: int, timeout_s: float) -> Iterator[int]:
    """Yield the number of processed records repeatedly, until it is `count`. Raises TrafficFailed."""
    end = time.monotonic() + timeout_s
    while (processed := len(done(clients))) < count:
        yield processed
        if troubles := [client.trouble for client in clients if client.trouble]:
            raise TrafficFailed("; ".join(troubles))
        if time.monotonic() > end:
            names = ", ".join(client.name for client in clients)
            raise TrafficFailed(f"{names} did {processed} of {count} records in {timeout_s:.0f} s")
        time.sleep(0.2)
    yield processed


def shares_of_slots(clients: Sequence[Client], slots: int) -> list[float]:
    """Return the share of all records that each slot of a view has (views/README.md rule 3)."""
    counts = Counter(record.partition % slots for record in done(clients))
    return [counts[slot] / counts.total() for slot in range(slots)]
