"""Measure the cost of audit: CPU of a proxy that writes audit events, against one that does not.

    python -m tests.bench.auditing [--rounds 5] [--records 100000] [--cpu 1] [--only NAME]

Two proxies in front of one broker of each release, alike but for audit, which writes a file with its other settings as
they are by default. Rounds at either take turns, with the same topics: share groups that the proxy serves, batches of
500 records and of 10; share groups that the brokers serve; all eight slots of a view, plain and compressed. What is
judged is the CPU of the one proxy as a multiple of the other's in the same round, the median of all rounds. The exit
status is 1 when a bound is missed.

Eight members of as many groups read at a time. One alone waits for its broker most of the time, and what audit does by
the clock, some looks at keys a second, is then charged to a proxy that has little else to do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import Record

from tests.bench.measuring import cpu_seconds
from tests.support.brokers import NEW, OLD, Running
from tests.support.raw import Raw, Topic
from tests.support.worlds import ACCEPT, World

BATCH, KEYS, VALUE = 500, 10_000, b"v" * 100
SMALL_BATCH = 10
SMALL_SHARE = 0.1
"""Share of the records that is in the topic of small batches."""
SLOTS = 8
MEMBERS = 8
MUST = 1.05
"""CPU with audit as a multiple of that without."""
PLAIN = {"share_groups": {"state": "memory"}, "commits": {"state": "memory"}}


@dataclass
class Side:
    """One proxy."""

    worlds: Sequence[World]
    """World of each member of share groups."""
    pid: int
    topics: dict[str, Topic]
    groups: Iterator[int] = field(default_factory=count)


def filled(raw: Raw, name: str, record_count: int, size: int, codec: int) -> Topic:
    """Fill a topic with batches of this many records, with 10,000 keys."""
    topic = raw.create_topic(name)
    for base in range(0, record_count, size):
        keys = [b"key-%d" % (number * 7919 % KEYS) for number in range(base, base + size)]
        batch_records = [Record(key=key, value=VALUE, offset=at) for at, key in enumerate(keys)]
        raw.append(topic, records.build_batch(0, batch_records, codec=codec))
    return topic


def share(side: Side, name: str, at_once: int, most: int) -> int:
    """Read a topic with new groups of one member each concurrently, and accept this many records in total."""
    with ThreadPoolExecutor(len(side.worlds)) as pool:
        parts = [pool.submit(share_of, side, world, name, at_once, most // MEMBERS) for world in side.worlds]
        return sum(part.result() for part in parts)


def share_of(side: Side, world: World, name: str, at_once: int, most: int) -> int:
    """One of them."""
    topic = side.topics[name]
    member = world.member(world.group(f"g{next(side.groups)}"), "A", [topic])
    done = 0
    while done < most:
        response = member.fetch(topic, silent=True, records=at_once, batch=at_once)
        for first, last, _ in response.acquired(topic):
            member.acknowledge((topic, 0, first, last, ACCEPT), silent=True)
            done += last - first + 1
    member.disconnect()
    return done


def view(side: Side, base: str, most: int) -> int:
    """All slots of a view from its beginning to its end, in one Fetch after the other."""
    name = f"__view.r{SLOTS}.{base}"
    raw = side.worlds[0].raw
    on = raw.connect(raw.node(side.topics[base].leaders[0]))
    positions = dict.fromkeys(range(SLOTS), 0)
    done = 0
    while min(positions.values()) < most:
        partitions = [
            {"partition": at, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for at, offset in positions.items()
        ]
        response = raw.send_request(
            "Fetch", 12, on=on, replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=0,
            session_epoch=-1, topics=[{"topic": name, "partitions": partitions}],
        )  # fmt: skip
        for entry in response.responses[0].partitions:
            for batch in records.iter_batches(memoryview(entry.records or b"")):
                positions[entry.partition_index] = batch.last_offset + 1
                done += 0 if batch.is_control else batch.records_count
    return done


@dataclass(frozen=True)
class Case:
    """One load."""

    name: str
    release: str
    play: Callable[[Side, int], int]
    share: float = 1.0
    """Share of the records."""


CASES = (
    Case("share group, 500 records a fetch", OLD, lambda side, most: share(side, "large", BATCH, most)),
    Case("share group, 10 a fetch", OLD, lambda side, most: share(side, "small", SMALL_BATCH, most), SMALL_SHARE),
    Case("view, 8 slots", OLD, lambda side, most: view(side, "large", most)),
    Case("view, 8 slots, zstd", OLD, lambda side, most: view(side, "packed", most)),
    Case("share group of the brokers", NEW, lambda side, most: share(side, "large", BATCH, most)),
)


def sides(running: Running, release: str, folder: Path, record_count: int) -> dict[str, Side]:
    """Two proxies of one broker, and topics."""
    kafka = running.native() if release == NEW else running.cluster(release)
    sides_by_name = {}
    with Raw(kafka.bootstrap) as raw:
        topics = {
            "large": filled(raw, "large", record_count, BATCH, compression.NONE),
            "packed": filled(raw, "packed", record_count, BATCH, compression.ZSTD),
            "small": filled(raw, "small", int(record_count * SMALL_SHARE), SMALL_BATCH, compression.NONE),
        }
    for name in ("off", "on"):
        audit: dict[str, Any] = {"audit": {"file": str(folder / f"{release}.jsonl")}} if name == "on" else {}
        front = running.front(kafka.bootstrap, PLAIN | audit)
        worlds = [World(name, front.bootstrap, f"bench-{name}-{number}") for number in range(MEMBERS)]
        for base in ("large", "packed"):
            worlds[0].raw.view(f"__view.r{SLOTS}.{base}")
        assert front.child is not None
        sides_by_name[name] = Side(worlds, front.child.pid, topics)
    return sides_by_name


def measure(case: Case, both: dict[str, Side], rounds: int, record_count: int, cpu_s: float) -> bool:
    """Print the figures of one load; whether the bound is kept."""
    spent: dict[str, list[float]] = {name: [] for name in both}
    for number in range(rounds + 1):
        took, done = dict.fromkeys(both, 0.0), dict.fromkeys(both, 0)
        while min(took.values()) < (cpu_s if number else 0.01):  # the first round warms up
            for name in sorted(both, reverse=bool(number % 2)):
                began = cpu_seconds(both[name].pid)
                done[name] += case.play(both[name], int(record_count * case.share))
                took[name] += cpu_seconds(both[name].pid) - began
        for name in both if number else ():
            spent[name].append(took[name] / done[name] * 1e6)
    off, on = (statistics.median(spent[name]) for name in ("off", "on"))
    ratios = [b / a for a, b in zip(spent["off"], spent["on"], strict=True)]
    ratio = statistics.median(ratios)
    print(
        f"{case.name:34} {off:7.3f} us a record without audit, {on:7.3f} with: {ratio:.3f} times "
        f"(rounds {min(ratios):.3f} to {max(ratios):.3f}; must {MUST:g})",
        flush=True,
    )
    return ratio <= MUST


def main() -> None:
    """Both releases, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--cpu", type=float, default=1.0, help="seconds of a proxy in one round")
    parser.add_argument("--only", default="", help="loads whose names begin so")
    options = parser.parse_args()
    is_goal_met = True
    with tempfile.TemporaryDirectory() as folder:
        for release in (OLD, NEW):
            cases = [case for case in CASES if case.release == release and case.name.startswith(options.only)]
            if not cases:
                continue
            running = Running(Path(folder))
            try:
                both = sides(running, release, Path(folder), options.records)
                for case in cases:
                    is_goal_met &= measure(case, both, options.rounds, options.records, options.cpu)
            finally:
                running.close()
            events = [json.loads(line)["kind"] for line in (Path(folder) / f"{release}.jsonl").open()]
            print(f"  {release}: " + ", ".join(f"{events.count(kind)} {kind}" for kind in sorted(set(events))))
    sys.exit(not is_goal_met)


if __name__ == "__main__":
    main()
