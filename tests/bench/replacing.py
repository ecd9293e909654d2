"""Measure what one replacement of all workers takes of the throughput of three minutes, and of memory.

    python -m tests.bench.replacing [--rounds 1] [--window-s 180]

Small requests on 64 connections through two workers, in windows with and without a replacement after a third. Memory is
the anonymous memory of all processes of the proxy: its maximum with a replacement, as a multiple of that without one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from kafka_share_proxy.localkafka.front import Front

from tests.bench.forwarding import build
from tests.bench.measuring import load
from tests.support.brokers import OLD, Running
from tests.support.changed_workers import replace_workers
from tests.support.child_processes import children
from tests.support.memory import own_mib
from tests.support.raw import Raw

ARGUMENTS = "-k poll -c 64 -n 30000"
RATE_MUST = 0.95
"""Rate of a window with a replacement, as a multiple of that of one without."""
MEMORY_MUST = 2.0
"""Memory of two generations of workers."""
SAMPLE_S = 0.1


@dataclass
class Windows:
    """Figures of windows of one kind."""

    rates: list[float] = field(default_factory=list)
    """Requests a second."""
    memory: list[float] = field(default_factory=list)
    """Maximum, in MiB."""


def window(kload: Path, front: Front, port: int, seconds: float, meanwhile: Callable[[], None], into: Windows) -> None:
    """Send requests for this time, while a thread calls `meanwhile` after a third of it."""
    assert front.child is not None
    timer, samples = threading.Timer(seconds / 3, meanwhile), [0.0]
    is_over = threading.Event()
    sampler = threading.Thread(target=_sample, args=(front.child.pid, samples, is_over))
    began, requests = time.monotonic(), 0.0
    timer.start()
    sampler.start()
    try:
        while time.monotonic() < began + seconds:
            requests += load(kload, port, ARGUMENTS.split())["requests"]
        into.rates.append(requests / (time.monotonic() - began))
    finally:
        is_over.set()
        timer.join()
        sampler.join()
    into.memory.append(max(samples))


def _sample(pid: int, samples: list[float], is_over: threading.Event) -> None:
    while not is_over.wait(SAMPLE_S):
        samples.append(sum(map(own_mib, (pid, *_descendants(pid)))))


def _descendants(pid: int) -> list[int]:
    return [each for child in children(pid) for each in (child, *_descendants(child))]


def run(kload: Path, front: Front, port: int, rounds: int, seconds: float) -> tuple[Windows, Windows]:
    """Return the figures of windows without and with a replacement. They take turns."""
    without, replaced, numbers = Windows(), Windows(), count()
    for _ in range(rounds):
        window(kload, front, port, seconds, lambda: None, without)
        window(kload, front, port, seconds, lambda: replace_workers(front, next(numbers)), replaced)
    return without, replaced


def main() -> None:
    """Run all windows on one broker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--window-s", type=float, default=180.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        try:
            kload = build(Path(folder), "kload")
            kafka = running.cluster(OLD)
            with Raw(kafka.bootstrap) as raw:
                raw.create_topic("bench")
            front = running.front(kafka.bootstrap, {"workers": 2, "drain_s": 4})
            port = front.first_port + kafka.nodes[0].node_id
            window(kload, front, port, min(options.window_s, 5.0), lambda: None, Windows())
            without, replaced = run(kload, front, port, options.rounds, options.window_s)
        finally:
            running.close()
    rate, memory = (statistics.median(each) for each in (replaced.rates, replaced.memory))
    rate_ratio, memory_ratio = rate / statistics.median(without.rates), memory / statistics.median(without.memory)
    print(f"rate {rate:,.0f}/s with a replacement in {options.window_s:g} s, x {rate_ratio:.3f} (must {RATE_MUST})")
    print(f"memory {memory:.0f} MiB at most, x {memory_ratio:.2f} (must {MEMORY_MUST})")
    raise SystemExit(rate_ratio < RATE_MUST or memory_ratio > MEMORY_MUST)


if __name__ == "__main__":
    main()
