"""Measure the cost of plain commits while individual commits are served: `python -m tests.bench.plain_commits`; about 3
minutes.

One broker and two proxies in front of it: one forwards commits as they come (`commits.serve: false`), the other looks
which of them are about a group with ranges; one group has some. Many clients commit concurrently, because a broker
waits some milliseconds for more commits and processes one request of a connection at a time. Pairs of rounds in random
order, CPU of the proxy for each commit, without what it takes while it is idle: an owner of ranges reads their topic
and renews its lease. The exit status is 1 when the look costs more than it may.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.forwarding import build
from tests.bench.measuring import Case, LoadError, Way, cpu_seconds, forget, load, middle, pinned, spread
from tests.support.brokers import NEW, OLD, Running
from tests.support.raw import Raw

MUST = 1.03
"""CPU of a commit that is looked at, as a multiple of one that is not."""
CASES = (
    Case("one at a time", ("-k", "commit", "-n", "250"), "request", MUST, 1.0),
    Case("100 clients", ("-k", "commit", "-c", "100", "-n", "10000"), "request", MUST, 1.0),
)
TRIES = 50
IDLE_S = 8.0


def known_group(bootstrap: str) -> None:
    """One group with ranges, so that there is something to compare with."""
    with Raw(bootstrap) as raw:
        topic = raw.create_topic("bench", 1)
        raw.produce(topic, 10)
        entry = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "ic/1;5-7"}
        for _ in range(TRIES):
            response = raw.send_request(
                "OffsetCommit", 8, on=raw.on_coordinator("known"), group_id="known",
                generation_id_or_member_epoch=-1, topics=[{"name": "bench", "partitions": [entry]}],
            )  # fmt: skip
            if not response.topics[0].partitions[0].error_code:
                return
            time.sleep(0.2)
    raise SystemExit("error: no individual commit is accepted")


def wait_until_forwarded(kload: Path, way: Way) -> None:
    """Commits pass there: the brokers have their topic of offsets, the proxy knows which groups have ranges."""
    for attempt in range(TRIES):
        try:
            load(kload, way.port, ["-k", "commit", "-n", "10"])
        except LoadError:
            if attempt == TRIES - 1:
                raise
            time.sleep(0.2)
        else:
            return


def idle_share(ways: list[Way]) -> dict[str, float]:
    """CPU seconds per second of each idle proxy."""
    before = {way.name: cpu_seconds(way.pid) for way in ways}
    time.sleep(IDLE_S)
    return {way.name: (cpu_seconds(way.pid) - before[way.name]) / IDLE_S for way in ways}


def measure(kload: Path, case: Case, ways: list[Way], idle: dict[str, float], rounds: int) -> None:
    """Pairs of rounds in random order, after one that does not count; microseconds of each commit."""
    for round_number in range(rounds + 1):
        for way in random.sample(ways, len(ways)):
            clocks: list[float] = []

            def sample(clocks: list[float] = clocks, pid: int = way.pid) -> None:
                clocks.append(cpu_seconds(pid))

            numbers = load(kload, way.port, case.arguments, sample)
            took_s = clocks[1] - clocks[0] - idle[way.name] * numbers["wall"]
            if round_number:
                way.cpu.append(took_s * 1e6 / numbers["requests"])


def compare(release: str, folder: Path, kload: Path, rounds: int, core: int, table: Table) -> list[str]:
    """One release; what falls short."""
    running = Running(folder)
    try:
        cluster = running.cluster(release)
        off = {"commits": {"serve": False}, "share_groups": {"state": "memory"}}
        on = {"share_groups": {"state": "memory"}}
        fronts = {"off": running.front(cluster.bootstrap, off), "on": running.front(cluster.bootstrap, on)}
        known_group(fronts["on"].bootstrap)
        node, ways = cluster.nodes[0], {}
        for name, front in fronts.items():
            assert front.child is not None
            ways[name] = Way(name, front.first_port + node.node_id, front.child.pid)
            wait_until_forwarded(kload, ways[name])
        assert node.child is not None
        short_of = []
        with pinned([node.child.pid, *(way.pid for way in ways.values())], core):
            idle = idle_share(list(ways.values()))
            for case in CASES:
                forget(ways)
                measure(kload, case, list(ways.values()), idle, rounds)
                times = middle(ways["on"].cpu) / middle(ways["off"].cpu)
                table.add_row(release, case.name, spread(ways["off"].cpu), spread(ways["on"].cpu), f"{times:.3f}")
                if not times <= MUST:
                    short_of.append(f"{release}, {case.name}: {times:.3f} x, must be at most {MUST}")
        return short_of
    finally:
        running.close()


def main() -> int:
    """Everything; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="counted pairs of each case")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core everything runs on")
    parser.add_argument("--release", action="append", choices=[OLD, NEW], help="only these")
    options = parser.parse_args()
    console = Console(width=max(Console().width, 120))
    table = Table("Kafka", "commits", "not looked at", "looked at", "x", title="CPU: us/commit, median (range)")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        kload = build(Path(name), "kload")
        short_of = []
        for release in options.release or (OLD, NEW):
            folder = Path(name) / release
            folder.mkdir()
            short_of += compare(release, folder, kload, options.rounds, options.core, table)
    console.print(table)
    for line in short_of:
        console.print(f"[red]short of[/red] {line}")
    return 1 if short_of else 0


if __name__ == "__main__":
    sys.exit(main())
