"""Measure two workers against one: small requests, Produce, and share groups on several consumers.

    python -m tests.bench.workers [--rounds 5] [--workers 2] [--records 400000]

Each proxy has its own 3.9 broker, and rounds are interleaved. Printed are the CPU of all processes of a
proxy per request or record, as a multiple of that of one worker, and the rates. On a machine with fewer free cores than
processes only the CPU counts: it is what a core that is added brings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafka_share_proxy.localkafka.front import Front

from tests.bench import sharing
from tests.bench.forwarding import build
from tests.bench.measuring import cpu_seconds, load
from tests.support.brokers import OLD, Running
from tests.support.raw import Raw

CPU_MUST = 1.05
"""CPU of several workers a request, as a multiple of one worker's."""
CASES = {
    "small requests, 64 connections": "-k poll -c 64 -n 60000",
    "Produce of 100 B, 64 connections": "-k produce -b 100 -c 64 -p 2 -n 30000",
}
CONSUMERS = 4
SHARING = f"share group, {CONSUMERS} consumers"


@dataclass
class Side:
    """A proxy with its figures by case."""

    front: Front
    port: int
    """Port of its only broker."""
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    rate: dict[str, list[float]] = field(default_factory=dict)

    def seconds(self) -> float:
        """CPU of all its processes so far."""
        assert self.front.child is not None
        alive = json.loads(self.front.send_request("/livez")[1])
        workers: Mapping[str, int] = alive.get("workers", {})
        return sum(cpu_seconds(pid) for pid in (self.front.child.pid, *workers.values()))

    def measure(self, case: str, work: Callable[[], float], *, counts: bool) -> None:
        """Run `work`, which returns its number of requests or records."""
        began, before = time.monotonic(), self.seconds()
        done = work()
        spent, took = self.seconds() - before, time.monotonic() - began
        if counts:
            self.cpu_us.setdefault(case, []).append(spent / done * 1e6)
            self.rate.setdefault(case, []).append(done / took)


def side(running: Running, workers: int, records: int) -> Side:
    """Start a broker with records, and a proxy in front of it."""
    kafka = running.cluster(OLD)
    sharing.fill(kafka.bootstrap, records, 1024)
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic("bench", sharing.PARTITIONS)
    front = running.front(kafka.bootstrap, {"workers": workers})
    return Side(front, front.first_port + kafka.nodes[0].node_id)


def run(kload: Path, sides: list[Side], rounds: int, records: int) -> None:
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            for case, arguments in CASES.items():
                side.measure(case, partial(_requests, kload, side, arguments), counts=number > 0)
            side.measure(SHARING, partial(_records, side, records), counts=number > 0)


def _requests(kload: Path, side: Side, arguments: str) -> float:
    return load(kload, side.port, arguments.split())["requests"]


def _records(side: Side, records: int) -> float:
    return sharing.consume(side.front.bootstrap, records, CONSUMERS).records


def report(one: Side, several: Side) -> bool:
    """Print all cases. Return True if each is within its bound."""
    is_within = True
    for case in one.cpu_us:
        cpu = statistics.median(several.cpu_us[case]) / statistics.median(one.cpu_us[case])
        rate = statistics.median(several.rate[case]) / statistics.median(one.rate[case])
        print(
            f"{case:34} CPU x {cpu:.2f} (must {CPU_MUST}), {statistics.median(one.cpu_us[case]):.1f} us with one; "
            f"rate x {rate:.2f}"
        )
        is_within &= cpu <= CPU_MUST
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
            run(kload, sides, options.rounds, options.records)
        finally:
            running.close()
    raise SystemExit(not report(*sides))


if __name__ == "__main__":
    main()
