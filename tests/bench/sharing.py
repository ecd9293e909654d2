"""What share groups served by the proxy cost: Kafka's own ShareConsumerPerformance, against a native 4.3 broker.

    python -m tests.bench.sharing [--rounds 3] [--records 400000] [--size 1024] [--consumers 1 4] [--state topic|memory]

Two worlds are filled alike: a 4.3 broker, which serves share groups itself, and the proxy in front of a 3.9 broker,
which has none. Their rounds are interleaved; the rate counts from the first report on (a new group delivers nothing for
its first heartbeat interval), and what is judged is the ratio of medians inside the run.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "deploy"))

from localkafka.cluster import Cluster  # noqa: E402  # found through the path set above
from localkafka.front import Front  # noqa: E402
from localkafka.jars import class_path  # noqa: E402
from localkafka.java import FULL_SPEED, find_java  # noqa: E402

from tests.bench.measuring import cpu_seconds  # noqa: E402

TOPIC, PARTITIONS = "data", 2
BATCH_BYTES = 65536
FLUSH_S = 120
RUN_S = 180
"""One run of Kafka's tool."""
MUST = {1: 0.65, 4: 0.6}
"""Rate through the proxy as a multiple of the native one, by number of consumers, at 1 KiB."""

DAY = r"\d{4}-\d\d-\d\d (\d\d):(\d\d):(\d\d):(\d{3})"
ROW = re.compile(rf"{DAY}, {DAY}, [\d.]+, [\d.]+, [\d.]+, (\d+), \d+( for share consumer (\d+))?")


@dataclass
class World:
    """A place where share groups are served."""

    name: str
    bootstrap: str
    pid: int
    """Of the process that serves them."""
    rates: dict[int, list[float]] = field(default_factory=dict)
    cpu_us: dict[int, list[float]] = field(default_factory=dict)


def fill(bootstrap: str, records: int, size: int) -> None:
    """Create the topic and store `records` of `size` bytes, in batches of about 64 KiB, alternating partitions."""
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([topic]).values():
        created.result(30)
    in_batch = max(BATCH_BYTES // (size + 20), 1)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": in_batch,
            "linger.ms": 20,
            "queue.buffering.max.kbytes": 400_000,
            "queue.buffering.max.messages": 400_000,
        }
    )
    value = os.urandom(size)
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number // in_batch % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if left := producer.flush(FLUSH_S):
        raise SystemExit(f"error: {left} records could not be stored at {bootstrap}")


def new_group(bootstrap: str) -> str:
    """A group id of its own that reads from the beginning."""
    group = f"bench-{random.getrandbits(48):x}"
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)
    return group


def consume(bootstrap: str, records: int, consumers: int) -> tuple[float, int]:
    """Records per second from the first report on, and how many records there were in all."""
    java = [find_java(), "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path("4.3.0")]
    arguments = [
        *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--num-records", str(records)),
        *("--group", new_group(bootstrap), "--threads", str(consumers), "--hide-header", "--timeout", "60000"),
        *("--show-detailed-stats", "--reporting-interval", "500"),
    ]
    command = [*java, "org.apache.kafka.tools.ShareConsumerPerformance", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise SystemExit(f"error: ShareConsumerPerformance failed: {(done.stderr or done.stdout)[-500:]}")
    return steady_rate(done.stdout)


def steady_rate(shown: str) -> tuple[float, int]:
    """What the tool's detailed rows say; consumers that join later have consumed all they have since then."""
    first: dict[str, tuple[float, int]] = {}
    end, total = 0.0, 0
    for found in ROW.finditer(shown):
        hour, minute, second, milli = map(int, found.group(5, 6, 7, 8))
        at, count = hour * 3600 + minute * 60 + second + milli / 1000, int(found[9])
        if found[10]:
            first.setdefault(found[11], (at, count))
        else:
            end, total = at, count
    if not first:
        raise SystemExit(f"error: ShareConsumerPerformance reported nothing: {shown[-500:]}")
    begin = min(at for at, _ in first.values())
    steady = total - sum(count for at, count in first.values() if at < begin + 0.1)
    if end <= begin or steady < total / 4:
        raise SystemExit("error: too few records for a steady state; name more with --records")
    return steady / (end - begin), total


def measure(worlds: list[World], rounds: int, consumers: list[int], records: int, say: Callable[[str], None]) -> None:
    """Interleaved rounds, in random order; one that is not counted goes first."""
    for turn in range(rounds + 1):
        for count in consumers:
            for world in random.sample(worlds, len(worlds)):
                before = cpu_seconds(world.pid)
                rate, total = consume(world.bootstrap, records, count)
                cpu_us = (cpu_seconds(world.pid) - before) / total * 1e6
                say(f"{world.name}, {count} consumers: {rate:,.0f} records/s, {cpu_us:.2f} us of CPU a record")
                if turn:
                    world.rates.setdefault(count, []).append(rate)
                    world.cpu_us.setdefault(count, []).append(cpu_us)


def report(native: World, ours: World, size: int) -> bool:
    """Print the table; whether all that must be reached at this size is."""
    table = Table(title=f"ShareConsumerPerformance, records of {size} bytes, medians")
    for column in ("consumers", "native records/s", "proxy records/s", "ratio", "must", "proxy CPU, us a record"):
        table.add_column(column, justify="right")
    reached = True
    for count, rates in native.rates.items():
        theirs, mine = statistics.median(rates), statistics.median(ours.rates[count])
        must = MUST.get(count) if size == 1024 else None
        reached = reached and (must is None or mine / theirs >= must)
        table.add_row(
            str(count),
            f"{theirs:,.0f}",
            f"{mine:,.0f}",
            f"{mine / theirs:.2f}",
            "-" if must is None else str(must),
            f"{statistics.median(ours.cpu_us[count]):.2f}",
        )
    Console(width=120).print(table)
    return reached


def main() -> None:
    """Start both worlds, measure, print; the exit status is 1 when something that must be reached is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a record")
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--state", choices=["topic", "memory"], default="topic", help="where the proxy keeps state")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            Cluster("4.3.0", folder / "native", java_options=FULL_SPEED) as native,
            Cluster("3.9.1", folder / "bare", java_options=FULL_SPEED) as bare,
            Front(bare.bootstrap, folder / "proxy", {"share_groups": {"state": options.state}}) as front,
        ):
            worlds = [
                World(name, bootstrap, child.pid)
                for name, bootstrap, child in (
                    ("native", native.bootstrap, native.nodes[0].child),
                    ("proxy", front.bootstrap, front.child),
                )
                if child is not None
            ]
            for world in worlds:
                fill(world.bootstrap, options.records, options.size)
            time.sleep(1)  # both brokers settle what they were given
            measure(worlds, options.rounds, options.consumers, options.records, lambda line: print(line, flush=True))
            reached = report(*worlds, options.size)
    sys.exit(not reached)


if __name__ == "__main__":
    main()
