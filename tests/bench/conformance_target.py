"""Measure `conformance target` against kfake and a real broker: time to start, and requests a second.

    python -m tests.bench.conformance_target [--rounds 5]

All have one node and one topic with one partition. The start ends with the first Metadata response. The requests are
those of kload.c: one at a time on one connection, then 8 connections with 4 in flight each. Rounds of the three take
turns, in random order, and medians are printed. kfake runs if Go is there.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from kafka_share_proxy.localkafka.cluster import Cluster
from rich.console import Console
from rich.table import Table

from tests.bench.forwarding import build
from tests.bench.measuring import load, spread
from tests.support.blocking_connection import Connection
from tests.support.brokers import NEW
from tests.support.programs import built
from tests.support.raw import Raw, address, until
from tests.support.target_process import target_process

TOPIC = "bench"
GROUP = "kload"
"""Group of the commits."""
LOADS: Mapping[str, str] = {
    "Metadata, one at a time": "-k metadata -n {n}",
    "Metadata, 8 connections": "-k metadata -c 8 -d 4 -n {n}",
    "Produce, one at a time": "-k produce -b 100 -n {n}",
    "Produce, 8 connections": "-k produce -b 100 -c 8 -d 4 -n {n}",
    "Fetch, one at a time": "-k fetch -b 100 -n {n}",
    "Fetch, 8 connections": "-k fetch -b 100 -c 8 -d 4 -n {n}",
    "OffsetCommit, one at a time": "-k commit -n {n}",
}
REQUESTS = 5_000
STARTED_S = 60.0
Started = Callable[[], AbstractContextManager[str]]
"""Starts a cluster with the topic inside the block, and yields its address."""


@contextmanager
def target() -> Iterator[str]:
    with target_process("--nodes", "1", "--topic", TOPIC) as started:
        yield started.bootstrap


@contextmanager
def kfake(program: Path) -> Iterator[str]:
    with subprocess.Popen([program, TOPIC], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        try:
            yield started.stdout.readline().strip()
        finally:
            started.kill()


@contextmanager
def broker() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, Cluster(NEW, Path(folder) / "kafka") as cluster:
        with Raw(cluster.bootstrap) as raw:
            raw.create_topic(TOPIC)
            on = raw.on_coordinator(GROUP)
            until(lambda: _has_loaded(raw, on), f"the coordinator of {GROUP}")
        yield cluster.bootstrap


def _has_loaded(raw: Raw, coordinator: Connection) -> bool:
    response = raw.send_request("OffsetFetch", 8, on=coordinator, groups=[{"group_id": GROUP, "topics": None}])
    return not response.groups[0].error_code


def peers() -> dict[str, Started]:
    """Return what is compared, by name."""
    starters: dict[str, Started] = {"target": target, f"Kafka {NEW}": broker}
    go = shutil.which("go")
    if go is not None:
        program = built("kfake", [go, "build", "-o", "kfake", "."], "kfake") / "kfake"
        starters["kfake"] = partial(kfake, program)
    return starters


def first_response(bootstrap: str) -> None:
    """Wait for the response to the first Metadata request."""
    end = time.monotonic() + STARTED_S
    while time.monotonic() < end:
        with suppress(OSError), Raw(bootstrap) as raw:
            if raw.topic(TOPIC) is not None:
                return
    raise TimeoutError(bootstrap)


def start_times(starters: Mapping[str, Started], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in starters}
    for round_number in range(rounds + 1):
        for name in random.sample(sorted(starters), len(starters)):
            began = time.monotonic()
            with starters[name]() as bootstrap:
                first_response(bootstrap)
                if round_number > 0:  # the first round warms the page cache
                    times[name].append(time.monotonic() - began)
    return times


def import_times(rounds: int) -> list[float]:
    """Return the seconds from a new interpreter with Trio to a cluster that accepts connections, in its own process."""
    program = (
        "import time, trio; began = time.perf_counter()\n"
        "from kafka_share_proxy.conformance.target.server import open_target\n"
        "async def main():\n    async with open_target():\n        print(time.perf_counter() - began)\n"
        "trio.run(main)"
    )
    command = [sys.executable, "-c", program]
    return [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(rounds)]


def rates(starters: Mapping[str, Started], kload: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return requests a second by load and by peer."""
    measured: dict[str, dict[str, list[float]]] = {each: {name: [] for name in starters} for each in LOADS}
    with ExitStack() as stack:
        ports = {name: address(stack.enter_context(start()))[1] for name, start in starters.items()}
        for each, words in LOADS.items():
            arguments = words.format(n=REQUESTS).split()
            for round_number in range(rounds + 1):
                for name in random.sample(sorted(ports), len(ports)):
                    numbers = load(kload, ports[name], arguments)
                    if round_number > 0:  # the first round warms up
                        measured[each][name].append(numbers["requests"] / numbers["wall"])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    starters = peers()
    with tempfile.TemporaryDirectory() as folder:
        kload = build(Path(folder), "kload")
        starts, measured = start_times(starters, rounds), rates(starters, kload, rounds)
    table = Table("median (range)", *starters, title=f"{os.cpu_count()} cores, {rounds} rounds")
    table.add_row("start, s", *(spread(starts[name]) for name in starters))
    for each, by_peer in measured.items():
        table.add_row(f"{each}, requests/s", *(spread(by_peer[name]) for name in starters))
    Console(width=160).print(table)
    print(f"in a process that has Trio, the target starts in {statistics.median(import_times(rounds)):.2f} s")


if __name__ == "__main__":
    main()
