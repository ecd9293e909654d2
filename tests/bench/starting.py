"""How long share groups are away when the only proxy is started for the first time, and when it is started again.

    python -m tests.bench.starting [--rounds N]

In front of one real broker 3.9.1 with Kafka's defaults, whose `group.initial.rebalance.delay.ms` of 3 s keeps the first
member of an empty group waiting. Seconds from the start of the process until it says that it is ready, and the CPU of
broker and proxy meanwhile. The floor is what the same new broker takes without a proxy (`starting_at_the_least`), in
another cluster of the same round: its topics of offsets, transactions and states are created, and its code runs for the
first time.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.values import Address

from tests.bench.measuring import cpu_seconds
from tests.bench.starting_at_the_least import at_the_least
from tests.support.brokers import OLD, Running

DELAY_S = 3.0
DEFAULTS = {
    "group.initial.rebalance.delay.ms": str(round(DELAY_S * 1000)),
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
}
FIRST_MAX_S = DELAY_S + 2.0
AGAIN_MAX_S = 1.5


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


FLOOR = "floor of a first start"


class Start(NamedTuple):
    """One start."""

    seconds: float
    broker_cpu_s: float
    proxy_cpu_s: float = 0.0


def measured(cluster: Cluster, start: Callable[[], object], front: Callable[[], Front] | None = None) -> Start:
    """Start something in front of the only broker."""
    broker = cluster.nodes[0].child
    assert broker is not None
    before = cpu_seconds(broker.pid)
    took = seconds(start)
    child = None if front is None else front().child
    return Start(took, cpu_seconds(broker.pid) - before, 0.0 if child is None else cpu_seconds(child.pid))


def one_round(folder: Path) -> dict[str, Start]:
    running = Running(folder)
    try:
        kafka = running.cluster(OLD, properties=DEFAULTS)
        address = Address(*parse(kafka.bootstrap))
        took = {FLOOR: measured(kafka, partial(trio.run, at_the_least, address))}
    finally:
        running.close()
    running = Running(folder / "proxy")
    try:
        kafka = running.cluster(OLD, properties=DEFAULTS)
        fronts: list[Front] = []
        took["first start"] = measured(kafka, lambda: fronts.append(running.front(kafka.bootstrap)), lambda: fronts[0])
        (front,) = fronts
        front.stop()
        took["again after SIGTERM"] = measured(kafka, front.start, lambda: front)
        front.kill()
        took["again after SIGKILL"] = measured(kafka, front.start, lambda: front)
    finally:
        running.close()
    return took


def parse(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def main() -> int:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each start would compile the program anew, which takes a second
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = []
    for _ in range(parser.parse_args().rounds):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(one_round(Path(folder)))
    missed = 0
    for name in rounds[0]:
        took, broker, proxy = (
            statistics.median(figures) for figures in zip(*(each[name] for each in rounds), strict=True)
        )
        bound = math.inf if name == FLOOR else AGAIN_MAX_S if "again" in name else FIRST_MAX_S
        missed += took > bound
        shown = "" if math.isinf(bound) else f"(bound {bound:.1f})"
        print(f"{name:23} {took:5.2f} s {shown:12} CPU: broker {broker:.2f} s, proxy {proxy:.2f} s")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
