"""Measure several workers against one: small requests, Produce, and share groups.

    python -m tests.bench.workers [--rounds 5] [--workers 2] [--records 400000]

Each proxy has its own 3.9 broker, and rounds are interleaved. Printed are the CPU of all processes of a proxy per
request or record, as a multiple of that of one worker, and the rates. On a machine with fewer free cores than
processes only the CPU counts: it is what a core that is added brings.

Two readings. *The same load for each worker*: several workers have as many times the connections and requests a second
of one, or a share group each, with as many records a second. This is what more cores are for, and must cost at most
CPU_MUST a request. *The same load in total*: each worker is less busy, finds fewer requests when it wakes up, and each
wakeup costs the same. The number of wakeups (voluntary context switches) for 100 requests is printed. `net` is the CPU
without that of the same time without clients. Share groups that read stored records as fast as the cores allow are
printed too: of several workers each then has a lower rate than one alone. One worker also gets as many share groups as
several have: the same consumers on the same cores, but it is busier than each of several.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from kafka_share_proxy.localkafka.front import Front

from tests.bench import sharing
from tests.bench.forwarding import build
from tests.bench.measuring import cpu_seconds, load
from tests.support.brokers import OLD, Running
from tests.support.raw import Raw
from tests.support.worlds import World

CPU_MUST = 1.05
"""CPU of several workers a request, as a multiple of one worker's."""
CONNECTIONS = 32
"""Connections for each worker."""
PACED_S = 4
TOTAL_CONNECTIONS = 64
PER_WORKER, TOTAL = "the same load for each worker", "the same load in total"
FULL_SPEED, SAME_GROUPS = "a group for each worker, unpaced", "a group for each of several workers, unpaced"
CASES = {"small requests": ("-k", "poll"), "Produce of 100 B": ("-k", "produce", "-b", "100", "-p", "2")}
"""Arguments of the load generator."""
RATES = {"small requests": 8000, "Produce of 100 B": 4000}
"""Requests a second for each worker."""
TOTAL_REQUESTS = {"small requests": 60_000, "Produce of 100 B": 30_000}
SETTLED_S, IDLE_S = 15.0, 20.0
"""Heartbeats are frequent after the start; then the CPU without clients is measured for this time."""
CONSUMERS = 4
LIMIT_S = 30.0
SHARING = f"share groups, {CONSUMERS} consumers each"
RECORD_BYTES = 1024
SHARED_RATE, SHARED_S = 5000, 20
"""Records a second for each group, and for how long."""
SLICE_S = 0.01
"""Seconds between two sends of the producer."""


@dataclass
class Side:
    """A proxy with its figures by case."""

    front: Front
    kafka: str
    """Bootstrap of its broker."""
    port: int
    """Port of its only broker at the proxy."""
    workers: int
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    net_us: dict[str, list[float]] = field(default_factory=dict)
    rate: dict[str, list[float]] = field(default_factory=dict)
    wakeups: dict[str, list[float]] = field(default_factory=dict)
    """For 100 requests or records."""
    idle: float = 0.0
    """CPU a second without clients."""

    def pids(self) -> list[int]:
        assert self.front.child is not None
        alive = json.loads(self.front.send_request("/livez")[1])
        workers: Mapping[str, int] = alive.get("workers", {})
        return [self.front.child.pid, *workers.values()]

    def groups(self, count: int) -> list[str]:
        """Return new share groups, each owned by another worker if there are as many."""
        by_worker: dict[int, str] = {}
        while len(by_worker) < count:
            group = sharing.new_group(self.front.bootstrap)
            by_worker[self._owner(group) if 1 < count == self.workers else len(by_worker)] = group
        return list(by_worker.values())

    def _owner(self, group: str) -> int:
        """Return the worker of a group, which shows once a member has joined. The member leaves."""
        world = World("proxy", self.front.bootstrap, group)
        try:
            member = world.member(group)
            member.join([world.topic("owned")])
            lines = json.loads(self.front.send_request("/groups")[1])["groups"]
            member.heartbeat(-1)
            return next(int(line["worker"]) for line in lines if line["group"] == group)
        finally:
            world.close()

    def rest(self) -> None:
        """Measure it without clients."""
        pids = self.pids()
        before = sum(map(cpu_seconds, pids))
        time.sleep(IDLE_S)
        self.idle = (sum(map(cpu_seconds, pids)) - before) / IDLE_S

    def measure(self, case: str, work: Callable[[], float], *, counts: bool) -> None:
        """Run `work`, which returns its number of requests or records."""
        pids = self.pids()
        began, before, slept = time.monotonic(), sum(map(cpu_seconds, pids)), sum(map(wakeups, pids))
        done = work()
        spent, took = sum(map(cpu_seconds, pids)) - before, time.monotonic() - began
        if counts:
            self.cpu_us.setdefault(case, []).append(spent / done * 1e6)
            self.net_us.setdefault(case, []).append((spent - self.idle * took) / done * 1e6)
            self.wakeups.setdefault(case, []).append((sum(map(wakeups, pids)) - slept) / done * 100)
            self.rate.setdefault(case, []).append(done / took)


def wakeups(pid: int) -> int:
    """Return how often the main thread of a process has waited."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)[1])  # type: ignore[index]


def side(running: Running, workers: int, records: int) -> Side:
    """Start a broker with records, and a proxy in front of it."""
    kafka = running.cluster(OLD)
    sharing.fill(kafka.bootstrap, records, RECORD_BYTES)
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic("bench", sharing.PARTITIONS)
    front = running.front(kafka.bootstrap, {"workers": workers})
    return Side(front, kafka.bootstrap, front.first_port + kafka.nodes[0].node_id, workers)


def run(kload: Path, sides: list[Side], rounds: int, records: int) -> None:
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            for case, arguments in CASES.items():
                rate, counts = RATES[case] * side.workers, number > 0
                paced = ("-c", CONNECTIONS * side.workers, "-R", rate, "-n", rate * PACED_S)
                unpaced = ("-c", TOTAL_CONNECTIONS, "-n", TOTAL_REQUESTS[case])
                for reading, offered in ((PER_WORKER, paced), (TOTAL, unpaced)):
                    work = partial(_requests, kload, side, [*arguments, *map(str, offered)])
                    side.measure(f"{case}, {reading}", work, counts=counts)
            paced_groups = partial(_paced_records, side, f"paced-{number}", side.groups(side.workers))
            side.measure(f"{SHARING}, {PER_WORKER}", paced_groups, counts=number > 0)
            most = max(each.workers for each in sides)
            for reading, groups in ((FULL_SPEED, side.workers), (SAME_GROUPS, most), (TOTAL, 1)):
                work = partial(_records, side, records, side.groups(groups))
                side.measure(f"{SHARING}, {reading}", work, counts=number > 0)


def _requests(kload: Path, side: Side, arguments: list[str]) -> float:
    return load(kload, side.port, arguments)["requests"]


def _records(side: Side, records: int, groups: list[str]) -> float:
    """Let each of these groups read all records. Return how many were read."""
    with ThreadPoolExecutor(len(groups)) as pool:
        consume = partial(sharing.consume, side.front.bootstrap, records, CONSUMERS)
        return sum(map(sharing.total, pool.map(consume, groups)))


def _paced_records(side: Side, topic: str, groups: list[str]) -> float:
    """Let each of these groups read what is produced meanwhile, directly at the broker. Return how many were read."""
    with Raw(side.kafka) as raw:
        raw.create_topic(topic, sharing.PARTITIONS)
    records = SHARED_RATE * SHARED_S
    with ThreadPoolExecutor(len(groups) + 1) as pool:
        consume = partial(sharing.consume, side.front.bootstrap, records, CONSUMERS, topic=topic)
        runs = [pool.submit(consume, group) for group in groups]
        pool.submit(_produce, side.kafka, topic, records).result()
        return sum(sharing.total(run.result()) for run in runs)


def _produce(bootstrap: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    value, began = os.urandom(RECORD_BYTES), time.monotonic()
    for number in range(records):
        producer.produce(topic, value, partition=number % sharing.PARTITIONS)
        if number % round(SHARED_RATE * SLICE_S) == 0:
            producer.poll(0)
            time.sleep(max(began + number / SHARED_RATE - time.monotonic(), 0))
    assert producer.flush(LIMIT_S) == 0


def report(one: Side, several: Side) -> bool:
    """Print all cases. Return True if each with the same load for each worker is within its bound."""
    is_within = True
    print(f"without clients: {one.idle * 100:.2f} % of a core with one, {several.idle * 100:.2f} % with several")
    for case in several.cpu_us:
        cpu, net, rate = (
            statistics.median(getattr(several, name)[case]) / statistics.median(getattr(one, name)[case])
            for name in ("cpu_us", "net_us", "rate")
        )
        woke = [f"{statistics.median(each.wakeups[case]):.1f}" for each in (one, several)]
        is_judged = case.endswith(PER_WORKER)
        must = f"must {CPU_MUST}; " if is_judged else ""
        print(
            f"{case:62} CPU x {cpu:.2f} ({must}net x {net:.2f}), "
            f"{statistics.median(one.cpu_us[case]):.1f} us with one; rate x {rate:.2f}; "
            f"wakeups for 100: {woke[0]} with one, {woke[1]} with several"
        )
        is_within &= not is_judged or cpu <= CPU_MUST
    return is_within


def main() -> None:
    """Run all cases on one broker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--records", type=int, default=400_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        try:
            kload = build(Path(folder), "kload")
            sides = [side(running, workers, options.records) for workers in (1, options.workers)]
            time.sleep(SETTLED_S)
            for each in sides:
                each.rest()
            run(kload, sides, options.rounds, options.records)
        finally:
            running.close()
    raise SystemExit(not report(*sides))


if __name__ == "__main__":
    main()
