"""Compare the cost of reading a topic with our consumer and with others: `python -m tests.bench.consumers [--rounds
N]`.

One real broker, one topic for each size and codec, read from its beginning by each client in a separate process; the
processes run in random order, and medians are compared within one run. An application that adds up the sizes of the
values, record by record; the clock runs from the first records on. CPU is that of the whole process: librdkafka
decompresses and decodes in its threads. Clients as they come, but for checksums, which all of them compare.

    ours            `poll`, 500 records at most
    ours, of        the same records, read by `records.of(partition)`
    ours, looped    `poll`, with the loop of `ours, iterated` around its records: what `async for` is compared with
    ours, iterated  `async for record in consumer`
    ours, decoded   only the records: batches that were received before, checked, opened, built and added up in the
                    same loop, without a consumer; what no change around the decoding can go below
    aiokafka        `getmany(max_records=500)`, with its extensions in C
    kafka-python    `poll`, 500 records at most
    confluent       `consume(500)`
    confluent poll  `poll`, one record at a time

Ends with status 1 where ours is not 1.5 times as quick as aiokafka. Ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_share_proxy.wire.records.batches import split_complete
from kafka_share_proxy.wire.records.fetched_records import fetched_records
from rich.console import Console
from rich.table import Table

from tests.bench.measuring import spread
from tests.support.brokers import NEW, Running
from tests.support.raw import Raw

PARTITIONS = 4
RECORDS = {100: 1_000_000, 1024: 250_000}
"""Bytes of a value -> records of a topic."""
CODECS = ("none", "lz4")
BATCH_BYTES = 1 << 16
"""Batch size of the producer: that of several partitions with `linger.ms`."""
POLL_MAX = 500
"""Maximum records of one poll or batch, like max.poll.records."""
ROUND_S = 240.0
MUST = 1.5
"""Records a second of ours, as a multiple of aiokafka's."""


class Topic(NamedTuple):
    """One of the topics that are read."""

    name: str
    size: int
    codec: str
    records: int

    @property
    def shown(self) -> str:
        """For a table."""
        return f"{self.size} B, {self.codec}"


@dataclass
class Meter:
    """Adds up what the application sees, and stops the clocks when it has seen all."""

    expected: int
    received: int = 0
    size: int = 0
    begin: tuple[float, float] | None = None
    first: int = 0
    """Records received before the measurement starts."""

    def add_records(self, count: int, size: int) -> bool:
        """Returns: whether this was the last of them."""
        self.received += count
        self.size += size
        if self.begin is None and count:
            self.begin, self.first = (time.monotonic(), time.process_time()), count
        return self.received >= self.expected

    def result(self) -> dict[str, float]:
        """Seconds, CPU seconds, and of how many records."""
        assert self.begin is not None
        wall, cpu = time.monotonic() - self.begin[0], time.process_time() - self.begin[1]
        return {
            "wall": wall,
            "cpu": cpu,
            "records": self.received - self.first,
            "size": self.size,
            "received": self.received,
        }


# The clients


def of_poll(records: Any) -> int:
    """The way of an application: each record, and its value."""
    return sum(len(record.value) for record in records)


def of_partitions(records: Any) -> int:
    """Partition by partition."""
    return sum(len(record.value) for partition in records.partitions for record in records.of(partition))


def ours(sizes: Callable[[Any], int]) -> Callable[[str, str, Meter], None]:
    """With `poll`."""

    async def read(bootstrap: str, topic: str, meter: Meter) -> None:
        from kafka_share_proxy.client.opening import open_consumer

        partitions = [(topic, number) for number in range(PARTITIONS)]
        async with open_consumer(bootstrap, partitions=partitions, auto_offset_reset="earliest") as consumer:
            while True:
                records = (await consumer.poll(1)).records
                if meter.add_records(len(records), sizes(records)):
                    return

    return lambda bootstrap, topic, meter: trio.run(read, bootstrap, topic, meter)


def ours_looped(bootstrap: str, topic: str, meter: Meter) -> None:
    """With `poll`, record by record in the loop of `ours_iterated`."""

    async def read() -> None:
        from kafka_share_proxy.client.opening import open_consumer

        partitions = [(topic, number) for number in range(PARTITIONS)]
        async with open_consumer(bootstrap, partitions=partitions, auto_offset_reset="earliest") as consumer:
            count = size = 0
            while True:
                for record in (await consumer.poll(1)).records:
                    count += 1
                    size += len(record.value)
                    if count == POLL_MAX or meter.received + count == meter.expected:
                        if meter.add_records(count, size):
                            return
                        count = size = 0

    trio.run(read)


def ours_iterated(bootstrap: str, topic: str, meter: Meter) -> None:
    """With `async for`."""

    async def read() -> None:
        from kafka_share_proxy.client.opening import open_consumer

        partitions = [(topic, number) for number in range(PARTITIONS)]
        async with open_consumer(bootstrap, partitions=partitions, auto_offset_reset="earliest") as consumer:
            count = size = 0
            async for record in consumer:
                count += 1
                size += len(record.value)
                if count == POLL_MAX or meter.received + count == meter.expected:
                    if meter.add_records(count, size):
                        return
                    count = size = 0

    trio.run(read)


def ours_decoded(bootstrap: str, topic: str, meter: Meter) -> None:
    """The decoding of `ours` alone, with the application's loop."""
    from kafka_share_proxy.client.polled_records import ConsumerRecord

    received = list(_received(bootstrap, topic))
    for partition, offset, data in received:
        for batch in fetched_records(data, offset):
            records = batch.records
            if meter.add_records(len(records), of_poll(records.iterated(ConsumerRecord, (topic, partition)))):
                return


def _received(bootstrap: str, topic: str) -> Iterator[tuple[int, int, bytes]]:
    """(partition, offset, record batches) of the whole topic."""
    with Raw(bootstrap) as raw:
        for partition in range(PARTITIONS):
            offset = 0
            while True:
                place = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                response = raw.send_request(
                    "Fetch", 12, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_epoch=-1,
                    topics=[{"topic": topic, "partitions": [place]}],
                )  # fmt: skip
                data = bytes(response.responses[0].partitions[0].records or b"")
                batches, size = split_complete(data)
                if not size:
                    break
                yield partition, offset, data[:size]
                offset = batches[-1].last_offset + 1


def aiokafka(bootstrap: str, topic: str, meter: Meter) -> None:
    """With `getmany`."""

    async def read() -> None:
        import aiokafka

        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
            while True:
                polled = await consumer.getmany(timeout_ms=1000, max_records=POLL_MAX)
                if meter.add_records(sum(map(len, polled.values())), sum(map(of_poll, polled.values()))):
                    return
        finally:
            await consumer.stop()

    asyncio.run(read())


def kafka_python(bootstrap: str, topic: str, meter: Meter) -> None:
    """With `poll`."""
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
    while True:
        polled = consumer.poll(timeout_ms=1000, max_records=POLL_MAX)
        if meter.add_records(sum(map(len, polled.values())), sum(map(of_poll, polled.values()))):
            break
    consumer.close()


def _confluent(bootstrap: str, topic: str) -> Consumer:
    settings = {"group.id": "unused", "auto.offset.reset": "earliest", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 2, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    return consumer


def confluent(bootstrap: str, topic: str, meter: Meter) -> None:
    """With `consume`."""
    consumer = _confluent(bootstrap, topic)
    while True:
        messages = consumer.consume(POLL_MAX, 1.0)
        if meter.add_records(len(messages), sum(len(each.value() or b"") for each in messages)):
            break
    consumer.close()


def confluent_poll(bootstrap: str, topic: str, meter: Meter) -> None:
    """With `poll`."""
    consumer = _confluent(bootstrap, topic)
    count = size = 0
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        count += 1
        size += len(message.value() or b"")
        if count == POLL_MAX or meter.received + count == meter.expected:
            if meter.add_records(count, size):
                break
            count = size = 0
    consumer.close()


CLIENTS: dict[str, Callable[[str, str, Meter], None]] = {
    "ours": ours(of_poll),
    "ours, of": ours(of_partitions),
    "ours, looped": ours_looped,
    "ours, iterated": ours_iterated,
    "ours, decoded": ours_decoded,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "confluent": confluent,
    "confluent poll": confluent_poll,
}


# One process after the other


def prepared(bootstrap: str, sizes: Iterable[int], codecs: Iterable[str], share: float) -> list[Topic]:
    """Topics with records in them."""
    topics = []
    for size in sizes:
        for codec in codecs:
            topic = Topic(f"read-{size}-{codec}", size, codec, round(RECORDS[size] * share))
            with Raw(bootstrap) as raw:
                raw.create_topic(topic.name, PARTITIONS)
            fill(bootstrap, topic)
            topics.append(topic)
    return topics


def fill(bootstrap: str, topic: Topic) -> None:
    """Values that compress to about a half."""
    settings = {"compression.type": topic.codec, "linger.ms": 50, "batch.size": BATCH_BYTES, "acks": 1}
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2, **settings})
    drawn = random.Random(topic.size)
    values = [drawn.randbytes(topic.size // 2).ljust(topic.size, b"x") for _ in range(1000)]
    for number in range(topic.records):
        while True:
            try:
                producer.produce(topic.name, values[number % 1000], key=b"%d" % number, partition=number // 500 % 4)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise SystemExit("error: the topic cannot be filled")


def once(client: str, bootstrap: str, topic: Topic) -> dict[str, float]:
    """One process that reads it all."""
    command = [sys.executable, "-m", "tests.bench.consumers", "--read", client, bootstrap, topic.name]
    ran = subprocess.run([*command, str(topic.records)], capture_output=True, text=True, timeout=ROUND_S, check=False)
    if ran.returncode:
        raise SystemExit(f"error: {client}: {ran.stderr.strip()[-500:]}")
    figures: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    if figures["received"] != topic.records or figures["size"] != topic.records * topic.size:
        raise SystemExit(f"error: {client} read {figures['received']:g} records of {topic.records}")
    return figures


def compare(bootstrap: str, topic: Topic, clients: list[str], rounds: int) -> tuple[Table, dict[str, float]]:
    """Records a second, and CPU seconds for a million; medians and ranges, and ratios to ours."""
    rates: dict[str, list[float]] = {client: [] for client in clients}
    cpus: dict[str, list[float]] = {client: [] for client in clients}
    for _ in range(rounds):
        for client in random.sample(clients, len(clients)):
            figures = once(client, bootstrap, topic)
            rates[client].append(figures["records"] / figures["wall"] / 1e3)
            cpus[client].append(figures["cpu"] / figures["records"] * 1e6)
    table = Table(topic.shown, "thousand records/s", "CPU s/million", "ours is x as quick", "ours takes x CPU")
    for client in clients:
        rate = statistics.median(rates[clients[0]]) / statistics.median(rates[client])
        cpu = statistics.median(cpus[clients[0]]) / statistics.median(cpus[client])
        table.add_row(client, spread(rates[client]), spread(cpus[client]), f"{rate:.2f}", f"{cpu:.2f}")
    return table, {client: statistics.median(client_rates) for client, client_rates in rates.items()}


def main() -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of the records that a topic has")
    parser.add_argument("--size", type=int, action="append", choices=list(RECORDS))
    parser.add_argument("--codec", action="append", help="of the producer")
    parser.add_argument("--client", action="append", choices=list(CLIENTS), help="the first is compared with the rest")
    parser.add_argument("--read", nargs=4, metavar=("CLIENT", "BOOTSTRAP", "TOPIC", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        client, bootstrap, name, count = options.read
        meter = Meter(int(count))
        CLIENTS[client](bootstrap, name, meter)
        print(json.dumps(meter.result()))
        return 0
    short_of = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        running = Running(Path(folder))
        try:
            bootstrap = running.cluster(NEW).bootstrap
            topics = prepared(bootstrap, options.size or RECORDS, options.codec or CODECS, options.share)
            for topic in topics:
                table, rates = compare(bootstrap, topic, options.client or list(CLIENTS), options.rounds)
                Console(width=120).print(table)
                if {"ours", "aiokafka"} <= rates.keys() and rates["ours"] < MUST * rates["aiokafka"]:
                    short_of.append(f"{topic.shown}: {rates['ours'] / rates['aiokafka']:.2f} x aiokafka")
        finally:
            running.close()
    print("\n".join(short_of) or f"ours is at least {MUST} times as quick as aiokafka")
    return 1 if short_of else 0


if __name__ == "__main__":
    sys.exit(main())
