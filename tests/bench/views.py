"""Measure cost and gain of views: eight confluent-kafka consumers of `__view.r8` against one consumer of the base.

    python -m tests.bench.views [--rounds 3] [--records 2000000]

All go through the proxy. The base has one partition, records of 100 bytes with 10,000 keys; consumers take up to 500 at
a time, each is a separate process, and the rate counts from when all have their slot. Printed, with what must be
reached: records per second of all together, once with consumers that do nothing and once where each record costs 100 us
of waiting; CPU of the proxy for a GiB of the base, filtered and forwarded; and what readers at the live end cost the
broker in bytes, as counted on the wire between another proxy and the broker (the relay that counts has no part in the
rates).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
sys.path.insert(0, str(CHECKOUT / "proxy"))

from kafka_share_proxy.localkafka.cluster import Cluster  # noqa: E402  # found through the path set above
from kafka_share_proxy.localkafka.front import Front  # noqa: E402
from kafka_share_proxy.localkafka.java import FULL_SPEED  # noqa: E402

from tests.bench.measuring import GIB, cpu_seconds  # noqa: E402
from tests.support.relay import Relay  # noqa: E402

RELEASE = "4.3.0"
BASE, LIVE = "data", "live"
SLOTS = 8
VIEW = f"__view.r{SLOTS}.{BASE}"
RECORD_BYTES, KEYS, TAKEN_MAX = 100, 10_000, 500
WAIT_US = 100
RUN_S = 90.0
"""One run of consumers."""
WAITING_S = 8.0
"""How long consumers that wait are counted."""
CREATE_TRIES = 100
LIVE_S = 6.0
LIVE_PER_S = 20_000
MUST_IDLE, MUST_WAITING, MUST_BYTES = 0.9, 6.0, 1.05


# One consumer, in a separate process


def consume(bootstrap: str, topic: str, partition: int, wait_us: int, limit_s: float, *, from_end: bool) -> None:
    """Say when the partition is there to be read, wait for a line, read until the end or the limit, say how much."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{random.getrandbits(48):x}",
            "enable.auto.commit": False,
            "enable.partition.eof": not from_end,
        }
    )
    place = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(place, timeout=30)
    place.offset = high if from_end else low
    print("ready", flush=True)
    sys.stdin.readline()
    began, count, last = time.monotonic(), 0, time.monotonic()
    consumer.assign([place])
    at_end = False
    while not at_end and time.monotonic() - began < limit_s:
        messages = consumer.consume(TAKEN_MAX, 0.2)
        got = 0
        for message in messages:
            if message.error() is None:
                got += 1
            else:
                at_end = True
        if got:
            if wait_us:
                time.sleep(got * wait_us / 1e6)
            count, last = count + got, time.monotonic()
    consumer.close()
    print(json.dumps({"count": count, "seconds": last - began}), flush=True)


class Consumers:
    """Several of them, that begin together."""

    def __init__(self, bootstrap: str, places: Sequence[tuple[str, int]], *options: str) -> None:
        self._children = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.bench.views", "--consume", bootstrap, topic, str(partition), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=CHECKOUT,
            )
            for topic, partition in places
        ]

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> tuple[int, float]:
        """Records in all, and the seconds from the start of all to the last record of the last."""
        try:
            for child in self._children:
                if _line(child) != "ready":
                    raise SystemExit("error: a consumer did not get its slot")
            for child in self._children:
                assert child.stdin is not None
                child.stdin.write("\n")
                child.stdin.flush()
            meanwhile()
            results: list[dict[str, Any]] = [json.loads(_line(child)) for child in self._children]
        finally:
            for child in self._children:
                child.kill()
                child.wait()
        return sum(one["count"] for one in results), max(one["seconds"] for one in results)


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline().strip()
    if not line:
        raise SystemExit("error: a consumer ended")
    return line


# Data


def create(bootstrap: str, *names: str) -> None:
    """Topics of one partition, and the view."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(30)
    for name in names:
        view = f"__view.r{SLOTS}.{name}"
        for _ in range(CREATE_TRIES):  # a broker may not know yet of a topic that its controller has just made
            if admin.list_topics(view, timeout=30).topics[view].error is None:
                break
            time.sleep(0.1)
        else:
            raise SystemExit(f"error: {view} is not there")
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", "log_level": 0})
        reader.get_watermark_offsets(TopicPartition(view, 0), 30)  # the first request that needs it creates it
        reader.close()


def produce(bootstrap: str, topic: str, records: int, per_s: int = 0) -> None:
    """Produce records of 100 bytes, all together or at a rate."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10, "queue.buffering.max.messages": 400_000})
    keys = [b"key-%06d" % number for number in range(KEYS)]
    value = bytes(RECORD_BYTES - len(keys[0]))
    began = time.monotonic()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, keys[random.randrange(KEYS)], 0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 200 == 0:
            producer.poll(0)
            if per_s:
                time.sleep(max(0.0, began + number / per_s - time.monotonic()))
    if producer.flush(60):
        raise SystemExit("error: records could not be stored")


# What is measured


class Side:
    """One consumer of the base, or eight of the view."""

    def __init__(self, name: str, places: Sequence[tuple[str, int]]) -> None:
        self.name, self.places = name, places
        self.idle: list[float] = []
        self.waiting: list[float] = []
        self.cpu: list[float] = []


def measure(front: Front, side: Side, records: int) -> None:
    """One run that does nothing with the records, and one that waits."""
    assert front.child is not None
    pid = front.child.pid
    before = cpu_seconds(pid)
    count, seconds = Consumers(front.bootstrap, side.places, "0", str(RUN_S)).run()
    if count != records:
        raise SystemExit(f"error: {side.name}: {count} records of {records}")
    side.idle.append(count / seconds)
    side.cpu.append((cpu_seconds(pid) - before) / (records * RECORD_BYTES / GIB))
    count, seconds = Consumers(front.bootstrap, side.places, str(WAIT_US), str(WAITING_S)).run()
    side.waiting.append(count / seconds)
    shown = f"{side.name}: {side.idle[-1]:,.0f} and {side.waiting[-1]:,.0f} records/s, "
    shown += f"{side.cpu[-1]:.2f} s of CPU a GiB"
    print(shown, flush=True)


def live_bytes(front: Front, relay: Relay, broker: str, readers: int) -> int:
    """Return the broker's bytes for this many readers at the end of the log."""
    places = [(f"__view.r{SLOTS}.{LIVE}", slot) for slot in range(readers)]
    before = 0

    def write() -> None:
        nonlocal before
        time.sleep(1)
        before = relay.response_bytes
        produce(broker, LIVE, int(LIVE_PER_S * LIVE_S), LIVE_PER_S)

    Consumers(front.bootstrap, places, "0", str(LIVE_S + 3), "--from-end").run(write)
    return relay.response_bytes - before


def report(base: Side, view: Side, one: int, all_: int) -> bool:
    """Print the table; whether all that must be is reached."""
    middle = statistics.median
    rows = [
        ("records/s, idle", middle(base.idle), middle(view.idle), MUST_IDLE),
        (f"records/s, {WAIT_US} us a record", middle(base.waiting), middle(view.waiting), MUST_WAITING),
        ("proxy CPU, s a GiB of the base", middle(base.cpu), middle(view.cpu), None),
        (f"broker bytes at the live end, 1 and {SLOTS} readers", one, all_, -MUST_BYTES),
    ]
    table = Table(title="medians")
    for column in ("", "1 consumer of the base", f"{SLOTS} of the view", "ratio", "must"):
        table.add_column(column, justify="right")
    reached = True
    for name, first, second, must in rows:
        ratio = second / first
        if must is not None:
            reached = reached and (ratio >= must if must > 0 else ratio <= -must)
        words = "-" if must is None else f">= {must}" if must > 0 else f"<= {-must}"
        table.add_row(name, f"{first:,.2f}", f"{second:,.2f}", f"{ratio:.2f}", words)
    Console(width=130).print(table)
    return reached


def main() -> None:
    """Start everything, measure, print; the exit status is 1 when something that must be reached is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--consume", nargs=5, metavar=("BOOTSTRAP", "TOPIC", "PARTITION", "WAIT_US", "LIMIT_S"))
    parser.add_argument("--from-end", action="store_true")
    options = parser.parse_args()
    if options.consume:
        bootstrap, topic, partition, wait_us, limit_s = options.consume
        consume(bootstrap, topic, int(partition), int(wait_us), float(limit_s), from_end=options.from_end)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(Cluster(RELEASE, folder / "kafka", java_options=FULL_SPEED))
        front = stack.enter_context(Front(cluster.bootstrap, folder / "proxy", {"views": {"state": "memory"}}))
        create(front.bootstrap, BASE, LIVE)
        produce(cluster.bootstrap, BASE, options.records)
        base = Side("base", [(BASE, 0)])
        view = Side("view", [(VIEW, slot) for slot in range(SLOTS)])
        for round_number in range(options.rounds):
            for side in random.sample([base, view], 2):
                measure(front, side, options.records)
            print(f"round {round_number + 1} of {options.rounds}", flush=True)
        shown = front.send_request("/metrics")[1]
        relay = stack.enter_context(Relay(cluster.bootstrap))
        settings = {"upstream": {"bootstrap": relay.address, "nodes": {1: relay.address}}, "views": {"state": "memory"}}
        counted = stack.enter_context(Front(relay.address, folder / "counted", settings))
        one, all_ = (live_bytes(counted, relay, cluster.bootstrap, readers) for readers in (1, SLOTS))
        reached = report(base, view, one, all_)
    print("\n".join(line for line in shown.splitlines() if line.startswith("ksp_view")))
    sys.exit(not reached)


if __name__ == "__main__":
    main()
