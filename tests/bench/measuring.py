"""Rounds of load through several ways to one broker, interleaved; what each costs in CPU time of which process.

Everything is pinned to one core: on small machines the scheduler's choice of core moves CPU per request by up to three
times between runs of the same binary; pinned, the range is a few percent on a calm machine. Ratios of medians inside
one run are what counts, never figures of two runs.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.memory import own_mib

GIB = 1 << 30
RUN_LIMIT_S = 120.0
"""One run of the load generator."""


@dataclass(frozen=True)
class Case:
    """One load, and what the proxy may cost in it."""

    name: str
    arguments: tuple[str, ...]
    """Arguments of kload."""
    unit: str
    """"request": microseconds each; "GiB": seconds each."""
    must: float
    """CPU of the proxy as a multiple of the C relay's."""
    aim: float


@dataclass
class Way:
    """A way to the broker: where the load goes, and who carries it."""

    name: str
    port: int
    pid: int
    cpu: list[float] = field(default_factory=list)
    broker_cpu: list[float] = field(default_factory=list)
    own_mib: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class LoadError(Exception):
    """The load generator did not get the responses it should have; the text says why."""


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, its ended threads included (Linux: the clock of another process)."""
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def pinned(pids: Sequence[int], core: int) -> Iterator[None]:
    """This process, all it starts, and every thread of the given ones on one core."""
    before = {pid: os.sched_getaffinity(pid) for pid in (0, *pids)}
    for pid in before:
        _place(pid, {core})
    try:
        yield
    finally:
        for pid, cores in before.items():
            _place(pid, cores)


def _place(pid: int, cores: set[int]) -> None:
    for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        with suppress(OSError):
            os.sched_setaffinity(int(task.name), cores)


def measure(kload: Path, case: Case, ways: Sequence[Way], broker_pid: int, rounds: int) -> None:
    """Measure the case this many times in each way, in random order, after one round that does not count."""
    for round_number in range(rounds + 1):
        for way in random.sample(ways, len(ways)):
            try:
                once(kload, case, way, broker_pid, counts=round_number > 0)
            except LoadError as error:
                way.failures.append(f"{case.name}: {error}")


def once(kload: Path, case: Case, way: Way, broker_pid: int, *, counts: bool) -> None:
    """One run through one way."""
    clocks: list[tuple[float, float]] = []
    resident: list[float] = []

    def sample() -> None:
        clocks.append((cpu_seconds(way.pid), cpu_seconds(broker_pid)))
        resident.append(own_mib(way.pid))

    numbers = load(kload, way.port, case.arguments, sample)
    if counts:
        work = numbers["bytes"] / GIB if case.unit == "GiB" else numbers["requests"] / 1e6
        way.cpu.append((clocks[1][0] - clocks[0][0]) / work)
        way.broker_cpu.append((clocks[1][1] - clocks[0][1]) / work)
        way.own_mib.append(resident[1])


def load(
    kload: Path, port: int, arguments: Sequence[str], on_sample: Callable[[], None] = lambda: None
) -> Mapping[str, float]:
    """Run the load generator; `on_sample` is called when it is connected and when it is done but still connected.

    Raises:
        LoadError: it did not get the responses it should have.
    """
    command = [str(kload), str(port), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        guard = threading.Timer(RUN_LIMIT_S, child.kill)
        guard.start()
        try:
            _line(child)
            on_sample()
            numbers: Mapping[str, float] = json.loads(_line(child, go=True))
            on_sample()
            _end(child)
        finally:
            guard.cancel()
            child.kill()
    return numbers


def _line(child: subprocess.Popen[str], *, go: bool = False) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    if go:
        with suppress(BrokenPipeError):  # the process has ended, and its log has the reason
            child.stdin.write("\n")
    line = child.stdout.readline()
    if not line:
        raise LoadError(child.stderr.read().strip() or "the load generator ended")
    return line


def _end(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(5)


def middle(numbers: Sequence[float]) -> float:
    """The median; not a number where there is nothing."""
    return statistics.median(numbers) if numbers else float("nan")


def spread(numbers: Sequence[float]) -> str:
    """Median and range."""
    if not numbers:
        return "-"
    return f"{middle(numbers):.3g} ({min(numbers):.3g}-{max(numbers):.3g})"


def forget(ways: Mapping[str, Way]) -> None:
    """Begin a new case."""
    for way in ways.values():
        way.cpu.clear()
        way.broker_cpu.clear()
        way.own_mib.clear()
