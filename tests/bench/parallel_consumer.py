"""Compare key order of a share group with Confluent's Parallel Consumer in mode KEY: rate, and duplicates after a kill.

    python -m tests.bench.parallel_consumer [--rounds 3] [--records 20000] [--exponents 1.0 0.5]

One broker of 3.9.1, one proxy. 16 stock Java share consumers against the Parallel Consumer with a concurrency of 16,
each side in one process, with 1 ms of work a record and 10,000 keys of a Zipf distribution. The bound is computed: the
heaviest key one record after the other, or all records on 16 workers, whichever takes longer, with the work as measured
in the run. The pause is the time between two records of the heaviest key. With the proxy it contains an append of the
share state, because a record is delivered only after the one before it of its key is stored as settled, which the other
side does every 5 s. Therefore the bound with one append for each record of the heaviest key is printed, too, with the
append as the proxy measured it, and the bound with the measured pause. A second group of members acknowledges the
records of a poll together, with its next ShareFetch. The sides alternate, and the results are medians of the run. Then
each process is killed with kill -9 at half of the records and replaced: records that were worked on twice are
duplicates. The Parallel Consumer commits every 5 s by default. Its duplicates are also counted with a commit every 100
ms. The exit status is 1 if the proxy is below 0.9 of the bound or slower than the other side.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

import confluent_kafka
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front

from tests.bench.measuring import cpu_seconds
from tests.support.brokers import OLD, Running
from tests.support.java_programs import java_program
from tests.support.raw import Raw

WORKERS, WORK_US, KEYS, PARTITIONS = 16, 1_000, 10_000, 4
BOUND_MUST, OTHER_MUST = 0.9, 1.0
LIMIT_S = 60.0
"""One process of workers. The proxy needs about 20 s for 20,000 records."""
SETTINGS = {
    "share.ordering": "key", "share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0",
}  # fmt: skip
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
PROXY, POLLS, OTHER, OFTEN = "proxy", "proxy, polls", "parallel consumer", "parallel, 100 ms"
COMMITS = {PROXY: "record", POLLS: "poll"}
"""Unit of acknowledgement of the members: each record, or the records of a poll with the next ShareFetch."""
COMMITS_MS = {OTHER: 5_000, OFTEN: 100}
"""Commit interval of the Parallel Consumer: its default, and one for few duplicates."""
APPENDS = "ksp_share_state_write_seconds"
Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class Worked:
    """A record whose work is done. Times in nanoseconds of CLOCK_MONOTONIC."""

    place: Place
    begin: int
    end: int


@dataclass
class Bench:
    """The cluster, the proxy and the numbers of the groups."""

    folder: Path
    broker: str
    proxy: str
    front: Front
    poll_records: int
    numbers: count[int]
    workers_cpu: float = 0.0
    """Seconds of CPU that the last process of workers took after its first record."""

    def command(self, side: str, group: str, topic: str) -> list[str]:
        if side not in COMMITS:
            java = java_program("ParallelWorker", "parallel-consumer-0.5.3.3", QUIET)
            return [*java, self.broker, group, topic, str(WORKERS), str(WORK_US), str(COMMITS_MS[side])]
        java = java_program("ShareWorker", "4.3.0", QUIET)
        numbers = (str(WORKERS), str(WORK_US), str(self.poll_records))
        return [*java, self.proxy, group, topic, *numbers, COMMITS[side]]

    @property
    def pid(self) -> int:
        assert self.front.child is not None
        return self.front.child.pid

    def appends(self) -> tuple[float, int]:
        """Return the seconds that appends of share state took, and their number."""
        values = dict(line.rsplit(" ", 1) for line in self.front.send_request("/metrics")[1].split("\n") if " " in line)
        return float(values[f"{APPENDS}_sum"]), round(float(values[f"{APPENDS}_count"]))

    def group(self, side: str) -> str:
        group = f"group-{next(self.numbers)}"
        if side in COMMITS:
            with Raw(self.proxy) as raw:
                raw.configure_group(group, SETTINGS)
        return group

    @contextmanager
    def working(self, side: str, group: str, topic: str) -> Iterator[tuple[Path, int]]:
        """A process of all workers, which is killed at the end: its output, and its process id."""
        log = self.folder / f"worker-{next(self.numbers)}.log"
        child = Child(self.command(side, group, topic), log)
        try:
            yield log, child.pid
        finally:
            child.kill()

    def until(
        self, side: str, group: str, topic: str, record_count: int, already: Sequence[Worked] = ()
    ) -> list[Worked]:
        """Work until this many different records are done, or time is up. Then kill the workers."""
        end, before = time.monotonic() + LIMIT_S, {each.place for each in already}
        with self.working(side, group, topic) as (log, pid):
            while not read(log) and time.monotonic() < end:
                time.sleep(0.01)
            cpu_before = cpu_seconds(pid)
            while len(before | {each.place for each in read(log)}) < record_count and time.monotonic() < end:
                time.sleep(0.2)
            self.workers_cpu = cpu_seconds(pid) - cpu_before
        return [*already, *read(log)]


def read(log: Path) -> list[Worked]:
    """Return what the workers printed in complete lines."""
    lines = [line.split() for line in log.read_text().split("\n")[:-1]]
    return [Worked((int(a), int(b)), int(c), int(d)) for a, b, c, d in (words for words in lines if len(words) == 4)]


def filled(bootstrap: str, topic: str, records: int, exponent: float) -> dict[Place, int]:
    """Make a topic, and return the key of each record."""
    keys: dict[Place, int] = {}
    with Raw(bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})

    def stored(_error: object, message: confluent_kafka.Message) -> None:
        keys[message.partition() or 0, message.offset() or 0] = int(message.key() or b"")

    weights = list(itertools.accumulate(rank**-exponent for rank in range(1, KEYS + 1)))
    for key in random.Random(29).choices(range(KEYS), cum_weights=weights, k=records):
        producer.produce(topic, b"v" * 100, key=b"%d" % key, on_delivery=stored)
        producer.poll(0)
    producer.flush(60)
    if len(keys) != records:
        raise RuntimeError(f"{len(keys)} of {records} records were stored")
    return keys


def bound(keys: dict[Place, int], work_s: float, append_s: float = 0.0) -> float:
    """Return records a second that the keys and the workers allow. `append_s`: after each record of a key."""
    heaviest = max(Counter(keys.values()).values())
    return len(keys) / max((work_s + append_s) * heaviest, work_s * len(keys) / WORKERS)


def out_of_order(worked: Sequence[Worked], keys: dict[Place, int]) -> int:
    """Return how many records were begun before the one before them of their key was done for the first time."""
    first: dict[Place, Worked] = {}
    for each in worked:
        first.setdefault(each.place, each)
    chains: dict[tuple[int, int], list[Worked]] = {}
    for place in sorted(first):
        chains.setdefault((keys[place], place[0]), []).append(first[place])
    return sum(later.begin < earlier.end for chain in chains.values() for earlier, later in pairwise(chain))


def pause_s(worked: Sequence[Worked], keys: dict[Place, int]) -> float:
    """Return the median time between two records of the heaviest key."""
    ((heaviest, _),) = Counter(keys.values()).most_common(1)
    chain = sorted((each for each in worked if keys[each.place] == heaviest), key=lambda each: each.begin)
    return statistics.median(later.begin - earlier.end for earlier, later in pairwise(chain)) / 1e9


@dataclass
class Side:
    """Figures of one side, an entry for each round."""

    rates: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    """Rates as fractions of the bound."""
    appended: list[float] = field(default_factory=list)
    """Rates as fractions of the bound with appends."""
    stepped: list[float] = field(default_factory=list)
    """Rates as fractions of the bound with the measured pause between two records of a key."""
    cpu: list[float] = field(default_factory=list)
    """Cores that the proxy used."""
    workers_cpu: list[float] = field(default_factory=list)
    """Cores that the workers used."""


def measure(bench: Bench, name: str, side: Side, topic: str, keys: dict[Place, int]) -> None:
    """Play one round. Raises RuntimeError if the order of a key is broken, and TimeoutError."""
    before, (append_s, appends) = cpu_seconds(bench.pid), bench.appends()
    worked = bench.until(name, bench.group(name), topic, len(keys))
    if missing := len(keys.keys() - {each.place for each in worked}):
        raise TimeoutError(f"{name}: {missing} records are not done after {LIMIT_S:.0f} s")
    took = (max(each.end for each in worked) - min(each.begin for each in worked)) / 1e9
    if late := out_of_order(worked, keys):
        raise RuntimeError(f"{name}: {late} records were begun before their predecessor was done")
    work_s = statistics.fmean(each.end - each.begin for each in worked) / 1e9
    side.cpu.append((cpu_seconds(bench.pid) - before) / took)
    side.workers_cpu.append(bench.workers_cpu / took)
    side.rates.append(len(keys) / took)
    side.shares.append(side.rates[-1] / bound(keys, work_s))
    after_s, after = bench.appends()
    append_s = (after_s - append_s) / max(after - appends, 1)
    side.appended.append(side.rates[-1] / bound(keys, work_s, append_s))
    pause = pause_s(worked, keys)
    side.stepped.append(side.rates[-1] / bound(keys, work_s, pause))
    print(
        f"  {name:18} {side.rates[-1]:8,.0f} records/s, {work_s * 1e3:.2f} ms of work each, "
        f"{pause * 1e3:.2f} ms of pause, which allows {bound(keys, work_s, pause):,.0f} records/s; "
        f"cores: proxy {side.cpu[-1]:.2f}, workers {side.workers_cpu[-1]:.2f}"
        + (f"; {after - appends} appends of {append_s * 1e3:.2f} ms" if name in COMMITS else ""),
        flush=True,
    )


def compare(bench: Bench, topic: str, keys: dict[Place, int], rounds: int) -> bool:
    """Print the medians of both sides. Return True if the bounds are met."""
    sides = {PROXY: Side(), POLLS: Side(), OTHER: Side()}
    for number in range(rounds):
        for name in sorted(sides, reverse=bool(number % 2)):
            measure(bench, name, sides[name], topic, keys)
    print(f"  the keys allow {bound(keys, WORK_US / 1e6):,.0f} records/s with {WORK_US / 1e3:g} ms of work")
    other, is_kept = sides[OTHER], False
    for name in COMMITS:
        ours = sides[name]
        share, ratio = statistics.median(ours.shares), statistics.median(ours.rates) / statistics.median(other.rates)
        print(
            f"  {name} x {share:.2f} of its bound (x {statistics.median(ours.appended):.2f} with appends, "
            f"x {statistics.median(ours.stepped):.2f} with its pause), "
            f"parallel consumer x {statistics.median(other.shares):.2f}; "
            f"rate of the proxy x {ratio:.2f}, with {statistics.median(ours.cpu):.2f} cores",
            flush=True,
        )
        is_kept |= share >= BOUND_MUST and ratio >= OTHER_MUST
    return is_kept


def duplicates(bench: Bench, side: str, topic: str, keys: dict[Place, int]) -> tuple[int, int]:
    """Kill the workers at half of the records and replace them.

    Return how many records were worked on again, and how many were not done within LIMIT_S.
    """
    group = bench.group(side)
    half = bench.until(side, group, topic, len(keys) // 2)
    worked = bench.until(side, group, topic, len(keys), half)
    done = {each.place for each in worked}
    return len(worked) - len(done), len(keys.keys() - done)


def play(bench: Bench, exponent: float, records: int, rounds: int) -> bool:
    """Print rates and duplicates with one distribution of keys. Return True if the bounds are met."""
    topic = f"zipf-{exponent:g}"
    keys = filled(bench.broker, topic, records, exponent)
    heaviest = max(Counter(keys.values()).values())
    print(f"Zipf {exponent:g}: {len(set(keys.values()))} keys, {heaviest} of {len(keys)} records have the heaviest")
    is_kept = compare(bench, topic, keys, rounds)
    for side in (PROXY, OTHER, OFTEN):
        again, missing = duplicates(bench, side, topic, keys)
        unfinished = f", {missing} records not done {LIMIT_S:.0f} s later" if missing else ""
        print(f"  {side:18} {again} duplicates after kill -9{unfinished}", flush=True)
        is_kept &= side != PROXY or not missing
    return is_kept


def main() -> None:
    """All cases on one broker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--exponents", type=float, nargs="+", default=[1.0, 0.5])
    parser.add_argument("--poll-records", type=int, default=8, help="max.poll.records of the share consumers")
    options = parser.parse_args()
    is_kept = True
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        try:
            kafka = running.cluster(OLD)
            front = running.front(kafka.bootstrap)
            bench = Bench(Path(folder), kafka.bootstrap, front.bootstrap, front, options.poll_records, count())
            for exponent in options.exponents:
                is_kept &= play(bench, exponent, options.records, options.rounds)
        finally:
            running.close()
    sys.exit(not is_kept)


if __name__ == "__main__":
    main()
