"""Measure the driver's cost of acquiring for a share group: `python -m tests.bench.share_source [--records N]`.

The driver is sent the records that it acquires, and drops them; tasks read them again from the log. The bench therefore
compares the cost of dropping with that of reading: CPU of this process, which acquires and acknowledges all offsets of
a topic and then reads the same offsets into Arrow record batches as tasks do, in turn, three times each; and CPU of the
proxy in both. Records of 100 bytes, 500 in a batch; ratios of medians within one run. Ends with status 1 above the
limit. A minute.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.share.share_locks import count_offsets
from kafka_share_proxy.pipeline.share.share_member import ShareMember
from kafka_share_proxy.pipeline.share.share_offsets import merge_tokens
from kafka_share_proxy.pipeline.share.share_options import ShareSourceOptions, read_share_options
from kafka_share_proxy.pipeline.source.columns import BatchMaker
from kafka_share_proxy.pipeline.source.log_reader import LogReader
from kafka_share_proxy.pipeline.source.splits import make_splits
from kafka_share_proxy.wire.values import TopicPartition
from rich.console import Console
from rich.table import Table

from tests.bench.measuring import cpu_seconds
from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, Topic

PARTITIONS, BATCH = 4, 500
ROUNDS = 3
MUST = 0.75
"""CPU of the driver, as a share of what tasks need to read into Arrow; in Spark they need about three times that."""
SETTINGS = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": "4000"}


class Cost(NamedTuple):
    """CPU seconds."""

    client: float
    proxy: float
    rounds: int


def filled(bootstrap: str, records: int) -> Topic:
    with Raw(bootstrap) as raw:
        topic = raw.create_topic("orders", PARTITIONS)
    producer = Producer({
        "bootstrap.servers": bootstrap, "linger.ms": 50, "batch.num.messages": BATCH,
        "queue.buffering.max.messages": records + 1,
    })  # fmt: skip
    for number in range(records):
        producer.produce(topic.name, b"%0100d" % number, b"key-%d" % (number % 10_000), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records")
    return topic


def measured(pid: int, work: Callable[[], int]) -> Cost:
    """Return what the work costs here, and the proxy of that process id."""
    proxy, own = cpu_seconds(pid), time.process_time()
    rounds = work()
    return Cost(time.process_time() - own, cpu_seconds(pid) - proxy, rounds)


def acquire(options: ShareSourceOptions, records: int) -> int:
    """Acquire and acknowledge all there is. Returns the number of requests to nodes."""
    rounds = count = 0
    with ShareMember(options, print) as member:
        while count < records:
            acquired = member.fetch(100_000, 0.5).acquired
            tokens = merge_tokens((each.partition, each.span) for each in acquired)
            count += count_offsets(span for _, span in tokens)
            if member.accept(acquired):
                raise RuntimeError("locks ended")
            rounds += 1
    return rounds


def read(options: ShareSourceOptions, topic: Topic, records: int) -> int:
    """Read as tasks do. Returns: record batches."""
    size = records // PARTITIONS
    planned_spans = [(TopicPartition(topic.name, each), OffsetSpan(0, size)) for each in range(PARTITIONS)]
    rows = batches = 0
    for split in make_splits(planned_spans, {topic.name: topic.topic_id}, options.source.ranges):
        maker = BatchMaker(options.source.columns, split.topic_partition, options.source.ranges)
        for batch in maker.batches(LogReader(options.source, split).records()):
            rows += batch.num_rows
            batches += 1
    if rows != records:
        raise RuntimeError(f"{rows} rows of {records} records")
    return batches


def options_of(bootstrap: str, topic: Topic, group: str) -> ShareSourceOptions:
    with Raw(bootstrap) as raw:
        raw.configure_group(group, SETTINGS)
    return read_share_options({"bootstrap": bootstrap, "topic": topic.name, "group": group})


def table_row(kind: str, costs: list[Cost], records: int) -> tuple[str, ...]:
    client, proxy = (1e6 * statistics.median(each) / records for each in list(zip(*costs, strict=True))[:2])
    return kind, f"{client:.2f}", f"{proxy:.2f}", str(costs[0].rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000, metavar="N")
    records = parser.parse_args().records // PARTITIONS * PARTITIONS
    costs: dict[str, list[Cost]] = {"acquire": [], "read": []}
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        try:
            cluster: Any = running.cluster(OLD)
            settings = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
            front: Any = running.front(cluster.bootstrap, settings)
            topic = filled(cluster.bootstrap, records)
            for number in range(ROUNDS):
                options = options_of(front.bootstrap, topic, f"group-{number}")
                costs["acquire"].append(measured(front.child.pid, partial(acquire, options, records)))
                costs["read"].append(measured(front.child.pid, partial(read, options, topic, records)))
        finally:
            running.close()
    table = Table("", "CPU us a record, client", "proxy", "answers, record batches", title=f"{records} records")
    for kind, kind_costs in costs.items():
        table.add_row(*table_row(kind, kind_costs, records))
    ratio = statistics.median(a.client / b.client for a, b in zip(costs["acquire"], costs["read"], strict=True))
    console = Console(width=110)
    console.print(table)
    console.print(f"driver / tasks: {ratio:.2f} (must be at most {MUST})")
    return int(ratio > MUST)


if __name__ == "__main__":
    sys.exit(main())
