"""Measure forwarding in instructions, by callgrind: the same on a busy machine, unlike CPU time.

    python -m tests.bench.instructions [--case latency-produce ...] [--rounds N] [--beside CHECKOUT ...]

The proxy runs in valgrind with a real broker, and gets the loads of `tests.bench.forwarding`. Only the pump counts
(`forwarding/walk/_pump.c`), with what it calls: all work for a forwarded request is done there, and Trio's tasks and
timers are not. What remains of an idle second is counted in a window before each load, and subtracted for its duration.
Checkouts alternate in each round, but those of commits and share groups, which one proxy of a cluster serves; the
median of the rounds is printed with its range.

The cases of commits are those of one client of `tests.bench.individual_commits`, with ranges in the metadata: checkouts
without `commits.state: metadata` cannot be compared in them. The case `idle` counts a whole process without clients,
Trio included, and beside it the least that such a process executes (`idle_guest`). The case `share-fetch` counts a
whole process too, less what it executes when idle: a ShareFetch that returns about 500 records and acknowledges those
of the one before.

Only instructions of the process itself count: the kernel's work is most of the CPU time of a small request, and is
measured by `tests.bench.forwarding`. Two checkouts are compared to the percent; machines, compilers and Python versions
are not.

Needs valgrind, and what `tests.bench.forwarding` needs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "proxy"))

from kafka_share_proxy.localkafka.children import Child  # noqa: E402  # found through the path set above
from kafka_share_proxy.localkafka.cluster import Cluster  # noqa: E402

from tests.bench import forwarding, individual_commits  # noqa: E402
from tests.bench.individual_commits import Client  # noqa: E402
from tests.bench.measuring import GIB, load, middle  # noqa: E402
from tests.bench.pump_instructions import pump_function  # noqa: E402
from tests.bench.share_cycles import Cycles  # noqa: E402
from tests.support.brokers import OLD  # noqa: E402

SETTLED_S = 15.0
"""After the start: what the proxy does once is done by then."""
ENTERED_S = 2.0
"""Seconds until the pump is certainly entered anew, after instructions are counted at all."""
IDLE_S = 2.0
IDLE_ROW_S = 10.0
DUMPED_S = 10.0
"""How long callgrind may take to write its counts."""
IDLE, IDLE_LEAST = "idle", "idle, least"
COMMITS = {"commit-plain": "plain", "commit-individual": "individual"}
"""Case -> kind of commit."""
COMMITS_COUNTED = 2_000
SHARES = "share-fetch"
SHARES_COUNTED = 100
TOPIC = "bench"
"""Made by `forwarding.store`."""
LOADS = {
    "latency-poll": ("-k poll -n 5000", 5_000),
    "latency-produce": ("-k produce -b 100 -n 5000", 5_000),
    "latency-metadata": ("-k metadata -n 5000", 5_000),
    "pipelined": ("-k poll -d 100 -n 50000", 50_000),
    "produce-raw": (f"-k produce -c 2 -d 5 -p 2 -b 1024 -r 63 -g {GIB // 4}", 256),
}
"""Case -> arguments of kload, and how many requests these are, or MiB of the last. Large responses are not included:
the number of reads they take varies from run to run.
"""


class Counted:
    """A proxy in valgrind, whose instructions are counted on demand."""

    def __init__(self, pid: int, out: Path, port: int = 0, bootstrap: str = "") -> None:
        self._pid = pid
        self._out = out
        self.port = port
        """Port of the only broker."""
        self.bootstrap = bootstrap
        self._is_counting = False

    def of(self, work: Callable[[], object]) -> tuple[int, float]:
        """Instructions while this runs, and how many seconds it took. Raises SystemExit."""
        if not self._is_counting:
            self._control("-i", "on")
            self._is_counting = True
            time.sleep(ENTERED_S)
        self._control("-z")
        began = time.monotonic()
        work()
        took = time.monotonic() - began
        before = self._dumps()
        self._control("-d", "load")
        return self._total(before), took

    def idle(self, seconds: float) -> float:
        """Instructions per second without any client."""
        count, took = self.of(partial(time.sleep, seconds))
        return count / took

    def of_unit(self, kload: Path, case: str) -> float:
        """Instructions a request, or a MiB, of a case; those of an idle proxy are subtracted."""
        if case in COMMITS:
            group = f"{case}-{time.monotonic_ns()}"
            client, units = Client(self.bootstrap, group), COMMITS_COUNTED
            first, *requests = individual_commits.requests(COMMITS[case], group, TOPIC, 1 + units)
            client.send(first)
            work: Callable[[], object] = partial(_send_all, client, requests)
        else:
            arguments, units = LOADS[case]
            work = partial(load, kload, self.port, arguments.split())
        idle = self.idle(IDLE_S)
        total, took = self.of(work)
        if not total:
            raise SystemExit("error: callgrind counted nothing: the pump was not entered")
        return (total - idle * took) / units

    def of_share_fetch(self) -> float:
        """Instructions of one ShareFetch. Those of an idle proxy are subtracted."""
        with Cycles(self.bootstrap, SHARES_COUNTED) as cycles:
            idle = self.idle(IDLE_S)
            total, took = self.of(partial(cycles.run, SHARES_COUNTED))
        return (total - idle * took) / SHARES_COUNTED

    def _control(self, *arguments: str) -> None:
        command = ["callgrind_control", *arguments, str(self._pid)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _dumps(self) -> set[Path]:
        return set(self._out.parent.glob(f"{self._out.name}.*"))

    def _total(self, before: set[Path]) -> int:
        end = time.monotonic() + DUMPED_S
        while time.monotonic() < end:
            for dump in self._dumps() - before:
                if match := re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE):
                    return int(match[1])
            time.sleep(0.1)
        raise SystemExit(f"error: callgrind wrote no counts within {DUMPED_S:g} s")


def _send_all(client: Client, requests: Sequence[bytes]) -> None:
    for request in requests:
        client.send(request)
    client.close()


def _valgrind(out: Path, *options: str) -> list[str]:
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes"]
    return [*tool, *options, f"--callgrind-out-file={out}"]


@contextlib.contextmanager
def counted(
    checkout: Path, cluster: Cluster, folder: Path, settings: Mapping[str, Any], *options: str
) -> Iterator[Counted]:
    """The proxy of a checkout, idle."""
    out = folder / "callgrind.out"
    programs = checkout.resolve() / ".venv" / "bin"
    command = [*_valgrind(out, *options), str(programs / "python"), str(programs / "kafka-share-proxy")]
    with forwarding.OtherBuild(cluster.bootstrap, folder, settings, command=command) as front:
        assert front.child is not None
        yield Counted(front.child.pid, out, front.first_port + cluster.nodes[0].node_id, front.bootstrap)


@contextlib.contextmanager
def least_idle(folder: Path) -> Iterator[Counted]:
    """A loop with one timer."""
    folder.mkdir()
    out = folder / "callgrind.out"
    child = Child([*_valgrind(out), sys.executable, "-m", "tests.bench.idle_guest"], folder / "log")
    try:
        yield Counted(child.pid, out)
    finally:
        child.kill()


def count(
    checkouts: Sequence[Path], cluster: Cluster, kload: Path, folder: Path, cases: Sequence[str], rounds: int
) -> dict[str, list[list[float]]]:
    """Counts of each case, by checkout and round."""
    counts: dict[str, list[list[float]]] = {case: [[] for _ in checkouts] for case in cases}
    with contextlib.ExitStack() as stack:
        proxies = []
        for number, checkout in enumerate(checkouts):
            only = f"--toggle-collect={pump_function(checkout)}"
            proxies.append(stack.enter_context(counted(checkout, cluster, folder / f"proxy-{number}", {}, only)))
        time.sleep(SETTLED_S)
        for round_number, case, (number, proxy) in itertools.product(range(rounds + 1), cases, enumerate(proxies)):
            instructions = proxy.of_unit(kload, case)
            if round_number:  # what is made once is made in the first round
                counts[case][number].append(instructions)
    return counts


def count_commits(
    checkouts: Sequence[Path], kload: Path, cases: Sequence[str], rounds: int
) -> dict[str, list[list[float]]]:
    """Counts of cases of commits, by checkout, which has a cluster of its own: one proxy serves those of a cluster."""
    counts: dict[str, list[list[float]]] = {case: [] for case in cases}
    for checkout in checkouts:
        only = f"--toggle-collect={pump_function(checkout)}"
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as name,
            Cluster(forwarding.RELEASE, Path(name) / "kafka") as cluster,
        ):
            forwarding.store(cluster.bootstrap, cluster.nodes[0].port, kload, fill_bytes=1 << 20)
            with counted(checkout, cluster, Path(name) / "proxy", {"commits": {"state": "metadata"}}, only) as proxy:
                time.sleep(SETTLED_S)
                for case in cases:
                    counts[case].append([proxy.of_unit(kload, case) for _ in range(rounds + 1)][1:])
    return counts


def count_shares(checkouts: Sequence[Path], rounds: int) -> list[list[float]]:
    """Counts of each checkout, which has a cluster of its own: one proxy serves the share groups of a cluster."""
    counts = []
    for checkout in checkouts:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as folder,
            Cluster(OLD, Path(folder) / "kafka") as cluster,
            counted(checkout, cluster, Path(folder) / "proxy", {}) as proxy,
        ):
            time.sleep(SETTLED_S)
            counts.append([proxy.of_share_fetch() for _ in range(rounds + 1)][1:])  # what is made once is in the first
    return counts


def count_idle(checkouts: Sequence[Path], cluster: Cluster, folder: Path, rounds: int) -> dict[str, list[list[float]]]:
    """Counts of each checkout, and of the least of this one."""
    counts: dict[str, list[list[float]]] = {IDLE: [], IDLE_LEAST: []}
    for number, checkout in enumerate(checkouts):
        with counted(checkout, cluster, folder / f"idle-{number}", {}) as proxy:
            time.sleep(SETTLED_S)
            counts[IDLE].append([proxy.idle(IDLE_ROW_S) for _ in range(rounds)])
    with least_idle(folder / "least") as least:
        time.sleep(SETTLED_S)
        counts[IDLE_LEAST].append([least.idle(IDLE_ROW_S) for _ in range(rounds)])
    return counts


def report(names: Sequence[str], counts: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Print one line for each case; the last columns: this checkout as a multiple of each other one."""
    table = Table("case", *names, *(f"x {name}" for name in names[1:]), title="instructions a request, a MiB, a second")
    for case, rows in counts.items():
        times = [f"{middle(rows[0]) / middle(other):.3f}" for other in rows[1:]]
        table.add_row(case, *(f"{middle(row):,.0f} ({min(row):,.0f}-{max(row):,.0f})" for row in rows), *times)
    Console(width=120).print(table)


def main() -> None:
    """Count everything and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", choices=[*LOADS, *COMMITS, SHARES, IDLE], help="only these")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each case")
    parser.add_argument("--beside", action="append", type=Path, default=[], help="a checkout with a .venv of its own")
    options = parser.parse_args()
    if shutil.which("callgrind_control") is None:
        raise SystemExit("error: valgrind is needed (Debian: apt install valgrind)")
    checkouts = [HERE.parents[1], *options.beside]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        kload = forwarding.build(folder, "kload")
        with Cluster(forwarding.RELEASE, folder / "kafka") as cluster:
            forwarding.store(cluster.bootstrap, cluster.nodes[0].port, kload, fill_bytes=64 << 20)
            cases = options.case or [*LOADS, SHARES, IDLE]
            counts: dict[str, list[list[float]]] = {}
            if loads := [case for case in cases if case in LOADS]:
                counts |= count(checkouts, cluster, kload, folder, loads, options.rounds)
            if IDLE in cases:
                counts |= count_idle(checkouts, cluster, folder, options.rounds)
        if commits := [case for case in cases if case in COMMITS]:
            counts |= count_commits(checkouts, kload, commits, options.rounds)
    if SHARES in cases:
        counts[SHARES] = count_shares(checkouts, options.rounds)
    report(["this", *(checkout.name for checkout in checkouts[1:])], counts)


if __name__ == "__main__":
    main()
