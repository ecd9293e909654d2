"""Measure two workers against one: small requests, Produce, and share groups on several consumers.

    python -m tests.bench.workers [--rounds 5] [--workers 2] [--records 400000]

Each proxy has its own 3.9 broker, and rounds are interleaved. Printed are the CPU of all processes of a
proxy per request or record, as a multiple of that of one worker, and the rates. On a machine with fewer free cores than
processes only the CPU counts: it is what a core that is added brings.

A worker that is less busy finds fewer requests when it wakes up, and each wakeup costs the same. The number of wakeups
(voluntary context switches) for 100 requests is printed. One worker is measured with fewer connections too, and so with
more wakeups: `at equal wakeups` compares several workers with what one takes for a request with as many wakeups as they
have. `net` is the CPU without that of the same time without clients.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

from kafka_share_proxy.localkafka.front import Front

from tests.bench import sharing
from tests.bench.forwarding import build
from tests.bench.measuring import cpu_seconds, load
from tests.support.brokers import OLD, Running
from tests.support.raw import Raw

CPU_MUST = 1.05
"""CPU of several workers a request, as a multiple of one worker's."""
CONNECTIONS = 64
CASES = {
    "small requests, 64 connections": "-k poll -n 60000",
    "Produce of 100 B, 64 connections": "-k produce -b 100 -p 2 -n 30000",
}
"""Arguments of the load generator."""
FEWER = (2, 4, 8, 16, 32)
"""Numbers of connections with which one worker is measured too."""
IDLE_S = 5.0
CONSUMERS = 4
SHARING = f"share group, {CONSUMERS} consumers"


@dataclass
class Side:
    """A proxy with its figures by case."""

    front: Front
    port: int
    """Port of its only broker."""
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
    sharing.fill(kafka.bootstrap, records, 1024)
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic("bench", sharing.PARTITIONS)
    front = running.front(kafka.bootstrap, {"workers": workers})
    return Side(front, front.first_port + kafka.nodes[0].node_id, workers)


def run(kload: Path, sides: list[Side], rounds: int, records: int) -> None:
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            for case, arguments in CASES.items():
                for connections in (CONNECTIONS, *(FEWER if side.workers == 1 else ())):
                    work = partial(_requests, kload, side, f"{arguments} -c {connections}")
                    side.measure(_name(case, connections), work, counts=number > 0)
            side.measure(SHARING, partial(_records, side, records), counts=number > 0)


def _name(case: str, connections: int) -> str:
    return case if connections == CONNECTIONS else f"{case} {connections}"


def at_equal_wakeups(one: Side, several: Side, case: str) -> float:
    """Return the CPU of several workers a request, as a multiple of what one takes with as many wakeups."""
    medians = [
        (statistics.median(one.wakeups[name]), statistics.median(one.net_us[name]))
        for name in (_name(case, connections) for connections in (CONNECTIONS, *FEWER))
    ]
    wakes = min(max(statistics.median(several.wakeups[case]), min(medians)[0]), max(medians)[0])
    points = sorted(medians)
    (before, low), (after, high) = next(pair for pair in pairwise(points) if pair[1][0] >= wakes)
    expected = low + (high - low) * (wakes - before) / max(after - before, 1e-9)
    return statistics.median(several.net_us[case]) / expected


def _requests(kload: Path, side: Side, arguments: str) -> float:
    return load(kload, side.port, arguments.split())["requests"]


def _records(side: Side, records: int) -> float:
    return sharing.consume(side.front.bootstrap, records, CONSUMERS).records


def report(one: Side, several: Side) -> bool:
    """Print all cases. Return True if each is within its bound."""
    is_within = True
    print(f"without clients: {one.idle * 100:.2f} % of a core with one, {several.idle * 100:.2f} % with several")
    for case in several.cpu_us:
        cpu, net, rate = (
            statistics.median(getattr(several, name)[case]) / statistics.median(getattr(one, name)[case])
            for name in ("cpu_us", "net_us", "rate")
        )
        woke = [f"{statistics.median(each.wakeups[case]):.1f}" for each in (one, several)]
        print(
            f"{case:34} CPU x {cpu:.2f} (must {CPU_MUST}; net x {net:.2f}), "
            f"{statistics.median(one.cpu_us[case]):.1f} us with one; rate x {rate:.2f}; "
            f"wakeups for 100: {woke[0]} with one, {woke[1]} with several"
            + (f"; at equal wakeups x {at_equal_wakeups(one, several, case):.2f}" if case in CASES else "")
        )
        is_within &= cpu <= CPU_MUST
    for name, figures in one.net_us.items():
        if name not in several.cpu_us:
            woke_up, cpu_us = statistics.median(one.wakeups[name]), statistics.median(figures)
            print(f"one worker, {name}: {woke_up:.1f} wakeups for 100, {cpu_us:.1f} us net")
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
            for each in sides:
                each.rest()
            run(kload, sides, options.rounds, options.records)
        finally:
            running.close()
    raise SystemExit(not report(*sides))


if __name__ == "__main__":
    main()
