"""Measure the cost of share groups served by the proxy: Kafka's own ShareConsumerPerformance, against a native 4.3
broker.

    python -m tests.bench.sharing [--rounds 3] [--records 1200000] [--size 1024] [--consumers 1 4]
        [--state topic|memory] [--forwarding] [--kafka-proxy BINARY]

Three worlds are filled alike: a 4.3 broker, which serves share groups itself; the same broker through a minimal relay
in C, which only copies bytes; and the proxy with a 3.9 broker, which has no share groups. `--forwarding` adds the 4.3
broker through this proxy, and a binary of grepplabs/kafka-proxy, built from its source, the same through that. Rounds
are interleaved. Rate and CPU count while the second half of the records is consumed, and the tool runs without Java's
second compiler (CLIENT_OPTIONS). The results are ratios of medians inside the run, and the CPU per record of the
process that serves or relays. The relay's rate is what any process between clients and broker can reach where all
share the cores. Next to the rate stands the share of the consumer with the fewest records, because a rate alone does
not show who did the work.

The bound on CPU, 1.3 us, is what kafka-proxy spent on forwarding the same traffic where it was set; microseconds of two
machines are not to be compared. If kafka-proxy takes part, its CPU in this run is the bound.
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
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

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
sys.path.insert(0, str(HERE.parents[1] / "proxy"))

from kafka_share_proxy.localkafka.addresses import HOST, free_ports  # noqa: E402  # found through the path set above
from kafka_share_proxy.localkafka.children import Child  # noqa: E402
from kafka_share_proxy.localkafka.cluster import Cluster  # noqa: E402
from kafka_share_proxy.localkafka.front import Front  # noqa: E402
from kafka_share_proxy.localkafka.jars import class_path  # noqa: E402
from kafka_share_proxy.localkafka.java import FULL_SPEED, find_java  # noqa: E402

from tests.bench.forwarding import build, wait_for  # noqa: E402
from tests.bench.measuring import cpu_seconds  # noqa: E402

TOPIC, PARTITIONS = "data", 2
BATCH_BYTES = 65536
FLUSH_S = 120
RUN_S = 180
"""One run of Kafka's tool."""
WINDOW = (0.5, 0.95)
"""Rate and CPU count from this share of the records on, until this one: consumers end one after the other."""
SAMPLE_S = 0.05
CLIENT_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1")
"""Java's second compiler takes 3 to 5 us of CPU a record from sixteen consumers of a million records on two cores, as
much as the consumers themselves, and still 1 to 3 us after three million. A native broker shows less of it: a new group
waits longer there for its first record, and the tool is compiled meanwhile.
"""
JUDGED_BYTES = 1024
MUST = 0.8
"""Rate through the proxy as a multiple of the native one, at 1 KiB."""
CPU_MUST_US = 1.3
"""CPU of the proxy a record of 1 KiB, where kafka-proxy does not say in the same run what the machine makes of it."""

FORWARDING = "proxy, forwarding"
"""This proxy, which forwards what the native broker serves."""
FORWARDER = "kafka-proxy"
"""grepplabs/kafka-proxy, which forwards what the native broker serves."""

DAY = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3})"
ROW = re.compile(rf"{DAY}, {DAY}, [\d.]+, [\d.]+, [\d.]+, (\d+), \d+(?: for share consumer (\d+))?")


class Run(NamedTuple):
    """One run of Kafka's tool."""

    rate: float
    """Records per second within the window."""
    least: float
    """Records of the consumer with the fewest, as a multiple of an equal share."""
    cpu_us: float
    """CPU per record, within the window, of the process that served or relayed."""


class Report(NamedTuple):
    """Records of one consumer between two of its reports."""

    begin: float
    """Seconds of the wall clock, as all times here."""
    end: float
    records: int
    consumer: str


class CpuLog:
    """CPU time of a process, sampled every SAMPLE_S while it is entered."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples: list[tuple[float, float]] = []
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> CpuLog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_ended.wait(SAMPLE_S):
            self._samples.append((time.time(), cpu_seconds(self._pid)))

    def seconds(self, begin: float, end: float) -> float:
        """CPU time from the first sample after `begin` to the first one after `end`."""
        return self._first_after(end) - self._first_after(begin)

    def _first_after(self, when: float) -> float:
        return next((cpu for at, cpu in self._samples if at >= when), self._samples[-1][1])


@dataclass
class World:
    """A place where share groups are served."""

    name: str
    bootstrap: str
    pid: int
    """Id of the process that serves or relays."""
    runs: dict[int, list[Run]] = field(default_factory=dict)
    """Runs by number of consumers."""

    def median(self, figure: str, consumers: int) -> float:
        """Return the median of one field over the runs with this many consumers."""
        figures: list[float] = [getattr(run, figure) for run in self.runs[consumers]]
        return statistics.median(figures)


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
    """Return a new group id that reads from the beginning."""
    group = f"bench-{random.getrandbits(48):x}"
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)
    return group


def consume(bootstrap: str, records: int, consumers: int, group: str = "", topic: str = TOPIC) -> list[Report]:
    """Let this many consumers of a group share all records. Return their reports. Without a name the group is a new
    one.
    """
    java = [find_java(), *CLIENT_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path("4.3.0")]
    arguments = [
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--group", group or new_group(bootstrap), "--threads", str(consumers), "--hide-header", "--timeout", "60000"),
        *("--show-detailed-stats", "--reporting-interval", "500"),
    ]
    command = [*java, "org.apache.kafka.tools.ShareConsumerPerformance", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise SystemExit(f"error: ShareConsumerPerformance failed: {(done.stderr or done.stdout)[-500:]}")
    return read_reports(done.stdout)


def read_reports(shown: str) -> list[Report]:
    """Return what the consumers reported, in the order of time.

    A row has the sum of what its consumer consumed. The last one is that of all consumers, and has what none of them
    reported before it ended.
    """
    reports: list[Report] = []
    sums: dict[str, int] = {}
    for begin, end, count, consumer in ROW.findall(shown):
        if consumer:
            reports.append(Report(_seconds(begin), _seconds(end), int(count) - sums.get(consumer, 0), consumer))
            sums[consumer] = int(count)
        else:
            last = max((report.end for report in reports), default=_seconds(begin))
            reports.append(Report(last, _seconds(end), int(count) - sum(sums.values()), consumer))
    if not sums:
        raise SystemExit(f"error: ShareConsumerPerformance reported nothing: {shown[-500:]}")
    return sorted(reports, key=lambda report: report.end)


def _seconds(shown: str) -> float:
    return datetime.strptime(shown, "%Y-%m-%d %H:%M:%S:%f").astimezone().timestamp()


def total(reports: list[Report]) -> int:
    """Return the number of records in all reports."""
    return sum(report.records for report in reports)


def summary(reports: list[Report], consumers: int, cpu: CpuLog) -> Run:
    """Return rate and CPU within the window, whose bounds are ends of reports, and the least share of a consumer."""
    records = total(reports)
    sums = list(accumulate(report.records for report in reports))
    begin, end = (reports[bisect_left(sums, share * records)].end for share in WINDOW)
    consumed = sum(_within(report, begin, end) for report in reports)
    if end <= begin or not consumed:
        raise SystemExit("error: too few records for a steady state; name more with --records")
    of_consumer: Counter[str] = Counter()
    for report in reports:
        of_consumer[report.consumer] += report.records
    least = min(of_consumer[str(number)] for number in range(1, consumers + 1))
    return Run(consumed / (end - begin), least * consumers / records, cpu.seconds(begin, end) / consumed * 1e6)


def _within(report: Report, begin: float, end: float) -> float:
    """Return how many records of the report fall into this time, assuming a steady rate."""
    overlap = min(end, report.end) - max(begin, report.begin)
    return report.records * max(overlap, 0) / max(report.end - report.begin, 1e-3)


def measure(worlds: list[World], rounds: int, consumers: list[int], records: int, log: Callable[[str], None]) -> None:
    """Interleaved rounds, in random order; one that is not counted goes first."""
    for round_number in range(rounds + 1):
        for count in consumers:
            for world in random.sample(worlds, len(worlds)):
                with CpuLog(world.pid) as cpu:
                    reports = consume(world.bootstrap, records, count)
                run = summary(reports, count, cpu)
                log(
                    f"{world.name}, {count} consumers: {run.rate:,.0f} records/s, {run.cpu_us:.2f} us of CPU a record, "
                    f"least {run.least:.2f} of an equal share"
                )
                if round_number:
                    world.runs.setdefault(count, []).append(run)


def report(native: World, ours: World, relays: list[World], size: int) -> bool:
    """Print the tables; whether all that must be reached at this size is."""
    judged = size == JUDGED_BYTES
    worlds = [native, *relays, ours]
    rates = Table(title=f"ShareConsumerPerformance, records of {size} bytes, medians: records/s")
    cpu = Table(title="CPU, us a record")
    for table, behind in ((rates, "behind "), (cpu, "")):
        for column in ("consumers", "native", *(f"{behind}{relay.name}" for relay in relays), "proxy"):
            table.add_column(column, justify="right")
    for table, columns in ((rates, ("x native", "must", "x relay", "least: native", "proxy")), (cpu, ("must",))):
        for column in columns:
            table.add_column(column, justify="right")
    reached = True
    for count in native.runs:
        ratio = ours.median("rate", count) / native.median("rate", count)
        bound = next((world.median("cpu_us", count) for world in relays if world.name == FORWARDER), CPU_MUST_US)
        reached = reached and (not judged or (ratio >= MUST and ours.median("cpu_us", count) <= bound))
        shown = [f"{world.median('rate', count):,.0f}" for world in worlds]
        least = [f"{world.median('least', count):.2f}" for world in (native, ours)]
        of_relay = ours.median("rate", count) / relays[0].median("rate", count)
        rates.add_row(str(count), *shown, f"{ratio:.2f}", str(MUST) if judged else "-", f"{of_relay:.2f}", *least)
        costs = [f"{world.median('cpu_us', count):.2f}" for world in worlds]
        cpu.add_row(str(count), *costs, f"{bound:.2f}" if judged else "-")
    console = Console(width=120)
    console.print(rates)
    console.print(cpu)
    return reached


def relaying(stack: ExitStack, name: str, command: list[str], port: int, log: Path) -> World:
    """Start a proxy that passes what this port receives to the native broker, and return it."""
    child = Child(command, log)
    stack.callback(child.kill)
    wait_for(port)
    return World(name, f"{HOST}:{port}", child.pid)


def forwarder(stack: ExitStack, binary: str, bootstrap: str, log: Path) -> World:
    """kafka-proxy in front of this broker, with its defaults."""
    (port,) = free_ports(1)
    mapping = f"{bootstrap},{HOST}:{port}"
    options = ["--dynamic-listeners-disable", "--http-disable", "--log-level", "warning"]
    return relaying(stack, FORWARDER, [binary, "server", "--bootstrap-server-mapping", mapping, *options], port, log)


def main() -> None:
    """Start all worlds, measure, print; the exit status is 1 when something that must be reached is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_200_000)
    parser.add_argument("--size", type=int, default=JUDGED_BYTES, help="bytes of a record")
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--kafka-proxy", metavar="BINARY", help="forward to the native broker through this one as well")
    parser.add_argument("--forwarding", action="store_true", help="forward through this proxy as well")
    parser.add_argument("--state", choices=["topic", "memory"], default="topic", help="where the proxy keeps state")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (port,) = free_ports(1)
        native = Cluster("4.3.0", folder / "native", java_options=FULL_SPEED, relay_port=port)
        command = [str(build(folder, "relay")), str(port), str(native.nodes[0].relayed_port)]
        relays = [relaying(stack, "relay", command, port, folder / "relay.log")]
        stack.enter_context(native)
        bare = stack.enter_context(Cluster("3.9.1", folder / "bare", java_options=FULL_SPEED))
        front = Front(bare.bootstrap, folder / "proxy", {"share_groups": {"state": options.state}})
        stack.enter_context(front)
        broker = native.nodes[0].child
        assert broker is not None  # started
        assert front.child is not None
        served = World("native", native.bootstrap, broker.pid)
        ours = World("proxy", front.bootstrap, front.child.pid)
        if options.forwarding:
            forwarding = stack.enter_context(Front(native.bootstrap, folder / "forwarding"))
            assert forwarding.child is not None
            relays.append(World(FORWARDING, forwarding.bootstrap, forwarding.child.pid))
        if options.kafka_proxy:
            relays.append(forwarder(stack, options.kafka_proxy, native.bootstrap, folder / "kafka-proxy.log"))
        for bootstrap in (native.bootstrap, front.bootstrap):
            fill(bootstrap, options.records, options.size)
        time.sleep(1)  # both brokers settle what they were given
        worlds = [served, ours, *relays]
        measure(worlds, options.rounds, options.consumers, options.records, lambda line: print(line, flush=True))
        reached = report(served, ours, relays, options.size)
    sys.exit(not reached)


if __name__ == "__main__":
    main()
