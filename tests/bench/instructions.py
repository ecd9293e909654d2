"""Measure forwarding in instructions, by callgrind: the same on a busy machine, unlike CPU time.

    python -m tests.bench.instructions [--case latency-produce ...] [--beside CHECKOUT ...]

The proxy runs in valgrind with a real broker, and gets the loads of `tests.bench.forwarding`. The instructions of an
idle proxy are counted first, and subtracted for the duration of each load. Only instructions of the process itself
count: the kernel's work is most of the CPU time of a small request, and is measured by `tests.bench.forwarding`. Two
checkouts are compared to the percent; machines, compilers and Python versions are not.

Needs valgrind, and what `tests.bench.forwarding` needs.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "proxy"))

from kafka_share_proxy.localkafka.cluster import Cluster  # noqa: E402  # found through the path set above

from tests.bench import forwarding  # noqa: E402
from tests.bench.measuring import GIB, load  # noqa: E402

SETTLED_S = 15.0
"""After the start: what the proxy does once is done by then."""
IDLE_S = 10.0
DUMPED_S = 10.0
"""How long callgrind may take to write its counts."""
LOADS = {
    "latency-poll": ("-k poll -n 20000", 20_000),
    "latency-produce": ("-k produce -b 100 -n 20000", 20_000),
    "latency-metadata": ("-k metadata -n 20000", 20_000),
    "pipelined": ("-k poll -d 100 -n 50000", 50_000),
    "produce-raw": (f"-k produce -c 2 -d 5 -p 2 -b 1024 -r 63 -g {GIB // 2}", 512),
}
"""Case -> arguments of kload, and how many requests these are, or MiB of the last. Large responses are not included:
the number of reads they take varies from run to run.
"""


class Counted:
    """A proxy in valgrind, whose instructions are counted on demand."""

    def __init__(self, pid: int, port: int, out: Path) -> None:
        self._pid = pid
        self.port = port
        self._out = out
        self.idle = 0.0
        """Instructions per second of an idle proxy."""

    def of(self, work: Callable[[], object]) -> tuple[int, float]:
        """Instructions while this runs, and how many seconds it took. Raises SystemExit."""
        self._control("-z")
        self._control("-i", "on")
        began = time.monotonic()
        work()
        took = time.monotonic() - began
        self._control("-i", "off")
        before = self._dumps()
        self._control("-d", "load")
        return self._total(before), took

    def measure_idle(self) -> None:
        """Count what is executed without any client."""
        count, took = self.of(partial(time.sleep, IDLE_S))
        self.idle = count / took

    def _control(self, *arguments: str) -> None:
        command = ["callgrind_control", *arguments, str(self._pid)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _dumps(self) -> set[Path]:
        return set(self._out.parent.glob(f"{self._out.name}.*"))

    def _total(self, before: set[Path]) -> int:
        end = time.monotonic() + DUMPED_S
        while time.monotonic() < end:
            for dump in self._dumps() - before:
                if found := re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE):
                    return int(found[1])
            time.sleep(0.1)
        raise SystemExit(f"error: callgrind wrote no counts within {DUMPED_S:g} s")


@contextlib.contextmanager
def counted(checkout: Path, cluster: Cluster, folder: Path) -> Iterator[Counted]:
    """The proxy of a checkout, idle."""
    out = folder / "callgrind.out"
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes"]
    programs = checkout.resolve() / ".venv" / "bin"
    command = [*valgrind, f"--callgrind-out-file={out}", str(programs / "python"), str(programs / "kafka-share-proxy")]
    with forwarding.OtherBuild(cluster.bootstrap, folder, command=command) as front:
        assert front.child is not None
        time.sleep(SETTLED_S)
        proxy = Counted(front.child.pid, front.first_port + cluster.nodes[0].node_id, out)
        proxy.measure_idle()
        yield proxy


def count(proxy: Counted, kload: Path, cases: Sequence[str]) -> list[float]:
    """Instructions a request, or a MiB, of each case; what the proxy does by itself is taken off."""
    counts = []
    for case in cases:
        arguments, units = LOADS[case]
        load(kload, proxy.port, arguments.split())  # what is made once is made here
        total, took = proxy.of(partial(load, kload, proxy.port, arguments.split()))
        counts.append((total - proxy.idle * took) / units)
    return counts


def report(names: Sequence[str], cases: Sequence[str], rows: Sequence[Sequence[float]], idle: Sequence[float]) -> None:
    """Print one line for each case; the last columns: this checkout as a multiple of each other one."""
    table = Table("case", *names, *(f"x {name}" for name in names[1:]), title="instructions a request, or a MiB")
    for number, case in enumerate(cases):
        counts = [row[number] for row in rows]
        times = [f"{counts[0] / other:.3f}" for other in counts[1:]]
        table.add_row(case, *(f"{each:,.0f}" for each in counts), *times)
    table.add_row("idle, a second", *(f"{each:,.0f}" for each in idle))
    Console(width=120).print(table)


def main() -> None:
    """Count everything, one checkout after the other, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", choices=list(LOADS), help="only these")
    parser.add_argument("--beside", action="append", type=Path, default=[], help="a checkout with a .venv of its own")
    options = parser.parse_args()
    if shutil.which("callgrind_control") is None:
        raise SystemExit("error: valgrind is needed (Debian: apt install valgrind)")
    cases = options.case or list(LOADS)
    checkouts = [HERE.parents[1], *options.beside]
    rows, idle = [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        kload = forwarding.build(folder, "kload")
        with Cluster(forwarding.RELEASE, folder / "kafka") as cluster:
            forwarding.store(cluster.bootstrap, cluster.nodes[0].port, kload, fill_bytes=64 << 20)
            for number, checkout in enumerate(checkouts):
                with counted(checkout, cluster, folder / f"proxy-{number}") as proxy:
                    rows.append(count(proxy, kload, cases))
                    idle.append(proxy.idle)
    report(["this", *(checkout.name for checkout in checkouts[1:])], cases, rows, idle)


if __name__ == "__main__":
    main()
