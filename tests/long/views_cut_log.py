"""A log is cut under its readers: an unclean leader never had what they read. Run by tests/long/run.

What each client reads of a view must be what the same client reads of the base, divided: no record more or less, and
none in another order. Whether it notices the cut at all is the client's own affair.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.key_hash import hash_of_record

from tests.long.views import SETTINGS
from tests.support.brokers import NEW, OLD, Running
from tests.support.raw import Raw, Topic, until
from tests.support.view_console import Console, reader_of

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

SLOTS, KEYS = 2, 10
KEPT, CUT = 100, 200
"""Number of records on both replicas, and end of the log that its readers have read."""
QUICKLY_MISSED = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
LIMIT_S = 90.0
IDLE_S = 2.0
"""Seconds without new records before the cut: every client has received empty responses."""
Got = list[tuple[int, int, str]]
"""(partition, offset, value)"""
Fresh = Callable[[str], str]


@pytest.fixture(scope="module", params=[OLD, NEW])
def kafka(request: pytest.FixtureRequest, running: Running) -> Cluster:
    return running.cluster(request.param, nodes=3, properties=QUICKLY_MISSED)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap, SETTINGS)


class Reader:
    """One client in a thread, which reads the given partitions from their beginning."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.got: Got = []
        self.end = threading.Event()
        self._thread = threading.Thread(target=self.run)

    @contextmanager
    def running(self, folder: Path) -> Iterator[Reader]:
        self._thread.start()
        try:
            yield self
        finally:
            self.end.set()
            self._thread.join()

    def run(self) -> None:
        raise NotImplementedError


class Librdkafka(Reader):
    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": "-", "enable.auto.commit": False, "log_level": 0,
                "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1000,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in self.partitions])
        while not self.end.is_set():
            for message in consumer.consume(100, 0.2):
                if not message.error():
                    value = message.value() or b""
                    self.got.append((message.partition() or 0, message.offset() or 0, value.decode()))
        consumer.close()


class KafkaPython(Reader):
    """It forgets the epoch of its position with every response that has nothing for a partition.

    Sessions of the Fetch protocol, which leave such partitions out, hide that from it; views are read without sessions,
    so its reader of the base is too.
    """

    def run(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka import KafkaConsumer
            from kafka import TopicPartition as Place

        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest",
            metadata_max_age_ms=1000, enable_incremental_fetch_sessions=False,
        )  # fmt: skip
        consumer.assign([Place(self.topic, partition) for partition in self.partitions])
        while not self.end.is_set():
            for polled in consumer.poll(timeout_ms=200).values():
                self.got += [(record.partition, record.offset, record.value.decode()) for record in polled]
        consumer.close()


class Aiokafka(Reader):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka import TopicPartition as Place

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest",
            metadata_max_age_ms=1000,
        )  # fmt: skip
        await consumer.start()
        consumer.assign([Place(self.topic, partition) for partition in self.partitions])
        while not self.end.is_set():
            for polled in (await consumer.getmany(timeout_ms=200)).values():
                self.got += [(record.partition, record.offset, record.value.decode()) for record in polled]
        await consumer.stop()


class Java(Reader):
    """The console consumer takes one partition each."""

    release = NEW

    @contextmanager
    def running(self, folder: Path) -> Iterator[Reader]:
        logs = [folder / f"{self.topic}-{partition}" for partition in self.partitions]
        with ExitStack() as stack:
            for partition, log in zip(self.partitions, logs, strict=True):
                child = Child(reader_of(self.release, self.bootstrap, self.topic, partition), log)
                stack.callback(child.stop)
            self._logs = logs
            yield self

    @property
    def got(self) -> Got:
        console = Console()
        lines = (line for log in self._logs for line in log.read_text().splitlines(keepends=True))
        consumed = (each for line in lines if line.endswith("\n") for each in console.reported(line.rstrip("\n")))
        return [(partition, offset, value) for kind, partition, offset, _, value in consumed if kind == "record"]

    @got.setter
    def got(self, _: Got) -> None:
        pass


def append(raw: Raw, topic: Topic, kind: str, first: int, last: int) -> None:
    """Records whose value says the offset they are to have."""
    for start in range(first, last, 10):
        batch_records = [
            records.Record(b"key-%d" % (n % KEYS), b"%s-%d" % (kind.encode(), n), timestamp=1)
            for n in range(start, start + 10)
        ]
        assert raw.append(topic, records.build_batch(0, batch_records)) == start


def partition_of(raw: Raw, name: str) -> Any:
    return (
        raw.send_request("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
        .topics[0]
        .partitions[0]
    )


def cut(kafka: Cluster, topic: Topic, new_end: int) -> None:
    """Let node 2 lead, which has nothing from KEPT on, and write there up to `new_end`."""
    kafka.node(1).kill()
    kafka.node(2).start()
    kafka.wait_ready()
    with Raw(kafka.node(3).address) as raw:
        until(lambda: partition_of(raw, topic.name).leader_id == 2, "an unclean leader", LIMIT_S)
        existing = until(lambda: raw.topic(topic.name), "the topic")
        until(lambda: raw.end_offset(existing) == KEPT, "the end of what is left", LIMIT_S)
        append(raw, existing, "new", KEPT, new_end)


@pytest.mark.parametrize(("new_end", "stopped"), [(150, False), (150, True), (300, True)])
def test_readers_of_a_view_see_what_readers_of_its_base_see(
    kafka: Cluster, front: Front, fresh: Fresh, tmp_path: Path, new_end: int, stopped: bool
) -> None:
    """The new log ends before or after their position; `stopped`: the proxy sleeps until all is written."""
    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    with Raw(kafka.node(3).address) as raw, ExitStack() as stack:
        base = raw.create_topic(fresh("base"), configs=configs, assignments={0: [1, 2]})
        view = f"__view.r{SLOTS}.{base.name}"
        append(raw, base, "old", 0, KEPT)
        readers: dict[str, tuple[Reader, Reader]] = {}
        for kind in (Librdkafka, KafkaPython, Aiokafka, Java):
            of_base, of_view = kind(front.bootstrap, base.name, [0]), kind(front.bootstrap, view, range(SLOTS))
            readers[kind.__name__] = (
                stack.enter_context(of_base.running(tmp_path)),
                stack.enter_context(of_view.running(tmp_path)),
            )
        every = [reader for pair in readers.values() for reader in pair]
        kafka.node(2).kill()
        until(lambda: list(partition_of(raw, base.name).isr_nodes) == [1], "the other replica to be missed", LIMIT_S)
        append(raw, base, "old", KEPT, CUT)
        until(lambda: all(len(reader.got) >= CUT for reader in every), "all to be read", LIMIT_S)
        time.sleep(IDLE_S)
        assert front.child is not None
        if stopped:
            front.child.signal(signal.SIGSTOP)
        try:
            cut(kafka, base, new_end)
        finally:
            front.child.signal(signal.SIGCONT)
        last = {f"new-{n}" for n in range(new_end - KEYS, new_end)}

        def consumed() -> dict[str, tuple[int, int]]:
            return {name: (len(plain.got), len(sliced.got)) for name, (plain, sliced) in readers.items()}

        try:
            until(
                lambda: all(last <= {value for _, _, value in reader.got} for reader in every), "what is new", LIMIT_S
            )
        finally:
            print("read of base and view:", consumed())
            kafka.node(1).start()
            kafka.wait_ready()
        for name, (plain, sliced) in readers.items():
            for slot in range(SLOTS):
                expected = [(offset, value) for _, offset, value in plain.got if _slot(offset) == slot]
                assert [(offset, value) for place, offset, value in sliced.got if place == slot] == expected, (
                    name,
                    slot,
                )


def _slot(offset: int) -> int:
    """Return the slot of the key that `append` gave the record at this offset."""
    return hash_of_record(b"key-%d" % (offset % KEYS), offset) * SLOTS >> 32
