"""Newest records after a crash: `python -m tests.bench.parallel_catch_up [RECORDS]`. Two minutes; needs a broker.

A million records of 100 B lie after the committed offset while one record is written every 20 ms. Measured from the
opening of the consumer: until the first record written after that ("newest"), and until the whole backlog is read
("all"), with `enable_parallel_rebalance` and without. Rounds are interleaved; medians; ratios in one run are what
counts. Ends with status 1 where the newest record does not come sooner with the mode.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import trio
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_share_proxy.client.opening import open_consumer
from rich.console import Console
from rich.table import Table

from tests.support.brokers import NEW, Running

RECORDS = 1_000_000
ROUNDS = 3
VALUE = b"v" * 100
TICK_S = 0.02
POLL_RECORDS = 5000


class Times(NamedTuple):
    """Seconds from the opening of the consumer."""

    newest: float
    all: float


class Ticker:
    """Writes one record after the other, each with the time at which it was."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            self._producer.produce(self._topic, repr(time.monotonic()).encode(), partition=0)
            self._producer.flush(10)


def filled(bootstrap: str, topic: str, records: int) -> None:
    """Create a topic of one partition with this many records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 200_000}
    )
    for number in range(records):
        producer.produce(topic, VALUE, partition=0)
        if number % 50_000 == 0:
            producer.flush(60)
    producer.flush(60)


def committed(bootstrap: str, group: str, topic: str) -> None:
    """Commit as the group that crashed had done."""
    tool = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    tool.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 0)], asynchronous=False)
    tool.close()


async def measured(bootstrap: str, group: str, topic: str, records: int, mode: bool) -> Times:
    """Run one consumer from its opening until the backlog is read."""
    started_at = time.monotonic()
    newest: float | None = None
    behind = 0
    with trio.fail_after(300):
        async with open_consumer(
            bootstrap, group=group, topics=[topic], enable_parallel_rebalance=mode, max_poll_records=POLL_RECORDS
        ) as consumer:
            while behind < records or newest is None:
                for record in (await consumer.poll(1)).records:
                    if record.offset < records:
                        behind += 1
                    elif newest is None and float(record.value or b"0") > started_at:
                        newest = time.monotonic() - started_at
    return Times(newest, time.monotonic() - started_at)


def main(records: int) -> int:
    times_by_mode: dict[bool, list[Times]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder, closing(Running(Path(folder))) as running:
        bootstrap = running.cluster(NEW).bootstrap
        for round_number in range(ROUNDS):
            for mode in (False, True):
                topic = group = f"behind-{round_number}-{mode}"
                filled(bootstrap, topic, records)
                committed(bootstrap, group, topic)
                with Ticker(bootstrap, topic):
                    times_by_mode[mode].append(trio.run(measured, bootstrap, group, topic, records, mode))
    plain, parallel = (Times(*map(statistics.median, zip(*times_by_mode[mode], strict=True))) for mode in (False, True))
    table = Table(title=f"{records} records of {len(VALUE)} B behind, medians of {ROUNDS} rounds, seconds")
    for column in ("", "without the mode", "with it", "ratio"):
        table.add_column(column)
    for name, before, after in zip(Times._fields, plain, parallel, strict=True):
        table.add_row(name, f"{before:.2f}", f"{after:.2f}", f"{before / after:.2f}")
    Console().print(table)
    return int(parallel.newest >= plain.newest)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS))
