"""How long share groups are away when the only proxy is started for the first time, and when it is started again.

    python -m tests.bench.starting [--rounds N]

In front of one real broker 3.9.1 with Kafka's defaults, whose `group.initial.rebalance.delay.ms` of 3 s keeps the first
member of an empty group waiting. Seconds from the start of the process until it says that it is ready.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def one_round(folder: Path) -> dict[str, float]:
    running = Running(folder)
    try:
        kafka = running.cluster(OLD, properties=DEFAULTS)
        fronts: list[Any] = []
        took = {"first start": seconds(lambda: fronts.append(running.front(kafka.bootstrap)))}
        (front,) = fronts
        front.stop()
        took["again after SIGTERM"] = seconds(front.start)
        front.kill()
        took["again after SIGKILL"] = seconds(front.start)
    finally:
        running.close()
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = []
    for _ in range(parser.parse_args().rounds):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(one_round(Path(folder)))
    missed = 0
    for name in rounds[0]:
        median, bound = (
            statistics.median(each[name] for each in rounds),
            AGAIN_MAX_S if "again" in name else FIRST_MAX_S,
        )
        missed += median > bound
        print(f"{name:22} {median:5.2f} s   (bound {bound:.1f})")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
