"""Measure the cost of key order: rate, and CPU of the proxy, of a share group with key order against one without.

    python -m tests.bench.key_order [--rounds 5] [--records 100000] [--keys 10000]

One broker of 3.9.1, one proxy. Rounds of groups with and without key order alternate, over the same topics: batches of
500 records, plain and lz4, with different keys, and with keys drawn at random. Of 500 records with 10,000 random keys
12 have to wait, so the others are 13 ranges, which the members acknowledge one by one, and each batch is delivered a
second time for the records that waited. Ranges and bytes in the responses are therefore printed as well, and the floor:
a group without order whose member releases the same records at their first delivery, so that they are ranges of their
own and each batch is delivered twice, too. With random keys the bounds are judged against that group. In the last case
the first record of a hot key is never settled, with 5,000 of its records in front of 4,500 others: the rate of the
others is compared with a topic of the others alone. The results are ratios of medians within the run. The exit status
is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import Record

from tests.bench.measuring import cpu_seconds
from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, Topic
from tests.support.worlds import ACCEPT, RELEASE, World

BATCH = 500
VALUE = b"v" * 100
HOT, OTHERS = 5_000, 4_500
HOT_TIMES = 5
"""Groups of the last case in one round, because each takes milliseconds."""
RATE_MUST, CPU_MUST, HOT_MUST = 0.9, 1.3, 0.8
ORDERED = {"share.ordering": "key"}
RELEASED = "released"
SIDES = {"none": {}, "key": ORDERED, RELEASED: {}}
FETCHES_MAX = 100_000


@dataclass
class Bench:
    """A proxy, and the numbers of its groups."""

    world: World
    pid: int
    records: int
    numbers: count[int] = field(default_factory=count)
    ranges: int = 0
    """Ranges in all AcquiredRecords so far."""
    size: int = 0
    """Bytes of records in all responses so far."""

    def read(
        self,
        topic: Topic,
        settings: dict[str, str],
        record_count: int,
        *,
        keeps: int = -1,
        releases: Set[int] = frozenset(),
    ) -> float:
        """Accept this many records with a new group, and return the seconds.

        The record `keeps` is not settled. Those in `releases` are released at their first delivery.
        """
        group = self.world.group(f"g{next(self.numbers)}", **settings)
        member = self.world.member(group, "A", [topic])
        done, started_at = 0, time.monotonic()
        for _ in range(FETCHES_MAX):
            response = member.fetch(topic, silent=True, records=BATCH, batch=BATCH)
            got = response.acquired(topic)
            self.ranges += len(got)
            self.size += sum(len(part.records or b"") for _, part in response.parts())
            done += sum(last - first + 1 for first, last, _ in got)
            types = [each for first, last, count in got for each in _types(first, last, releases if count == 1 else ())]
            done -= sum(each[2] == RELEASE for each in types)
            acknowledgements = [
                (*bounds, kind) for first, last, kind in types for bounds in _without(first, last, keeps)
            ]
            if acknowledgements:
                member.acknowledge(*[(topic, 0, *each) for each in acknowledgements], silent=True)
            if done >= record_count:
                break
        took = time.monotonic() - started_at
        member.disconnect()
        return took


def _without(first: int, last: int, excluded_offset: int) -> list[tuple[int, int]]:
    if not first <= excluded_offset <= last:
        return [(first, last)]
    return [(begin, end) for begin, end in ((first, excluded_offset - 1), (excluded_offset + 1, last)) if begin <= end]


def _types(first: int, last: int, released: Collection[int]) -> Iterator[tuple[int, int, int]]:
    """Divide a range into acknowledgements: first, last, type."""
    begin = first
    for offset in range(first, last + 1) if released else ():
        if offset in released:
            if begin < offset:
                yield begin, offset - 1, ACCEPT
            yield offset, offset, RELEASE
            begin = offset + 1
    if begin <= last:
        yield begin, last, ACCEPT


def waiting(keys: Sequence[bytes]) -> frozenset[int]:
    """Return the offsets of the records whose key has an earlier one in the same batch."""
    offsets = []
    for base in range(0, len(keys), BATCH):
        waiting_keys: set[bytes] = set()
        for offset, key in enumerate(keys[base : base + BATCH], base):
            if key in waiting_keys:
                offsets.append(offset)
            waiting_keys.add(key)
    return frozenset(offsets)


def filled(raw: Raw, name: str, keys: Sequence[bytes], codec: int) -> Topic:
    topic = raw.create_topic(name)
    for base in range(0, len(keys), BATCH):
        batch_records = [Record(key=key, value=VALUE, offset=at) for at, key in enumerate(keys[base : base + BATCH])]
        raw.append(topic, records.build_batch(0, batch_records, codec=codec))
    return topic


@dataclass
class Figures:
    """Figures of one side, an entry for each round."""

    rates: list[float] = field(default_factory=list)
    """Records a second."""
    cpu: list[float] = field(default_factory=list)
    """Microseconds of CPU a record."""
    ranges: int = 0
    size: int = 0
    """Ranges, and bytes of records, of the last round."""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def us(self) -> float:
        return statistics.median(self.cpu)


def play(bench: Bench, figures: Figures, topic: Topic, settings: dict[str, str], releases: Set[int]) -> None:
    """Play one round."""
    began, ranges, size = cpu_seconds(bench.pid), bench.ranges, bench.size
    took = bench.read(topic, settings, bench.records, releases=releases)
    figures.rates.append(bench.records / took)
    figures.cpu.append((cpu_seconds(bench.pid) - began) / bench.records * 1e6)
    figures.ranges, figures.size = bench.ranges - ranges, bench.size - size


def compare(name: str, bench: Bench, rounds: int, topic: Topic, keys: Sequence[bytes]) -> bool:
    """Print the medians of a case. Return True if rate and CPU with key order are within their bounds."""
    released = waiting(keys)
    floor = RELEASED if released else "none"
    sides = {side: Figures() for side in SIDES if side in ("none", "key", floor)}
    for number in range(rounds + 1):
        for side in sorted(sides, reverse=bool(number % 2)):
            figures = sides[side] if number else Figures()  # the first round warms up
            play(bench, figures, topic, SIDES[side], released if side == RELEASED else frozenset())
    for side, figures in sides.items():
        print(
            f"{name:15} {side:8} {figures.rate:10,.0f} records/s ({min(figures.rates):,.0f} to "
            f"{max(figures.rates):,.0f}) {figures.us:7.3f} us of CPU each, {figures.ranges:,} ranges, "
            f"{figures.size:,} bytes"
        )
    ordered = sides["key"]
    for side in dict.fromkeys(["none", floor]):
        rate, us = ordered.rate / sides[side].rate, ordered.us / sides[side].us
        print(f"{name:15} key order against {side}: rate x {rate:.2f}, CPU x {us:.2f}", flush=True)
    return rate >= RATE_MUST and us <= CPU_MUST


def beside_a_hot_key(bench: Bench, topics: dict[str, Topic], rounds: int) -> float:
    """Print the rate of other keys with a hot key in front of them, as a multiple of that without. Return it."""
    rates: dict[str, list[float]] = {name: [] for name in topics}
    for number in range(HOT_TIMES * rounds + 1):
        for name in sorted(topics, reverse=bool(number % 2)):
            is_hot = name == "hot"
            took = bench.read(topics[name], ORDERED, OTHERS + is_hot, keeps=0 if is_hot else -1)
            if number:
                rates[name].append(OTHERS / took)
    ratio = statistics.median(rates["hot"]) / statistics.median(rates["cold"])
    print(f"{OTHERS} records behind {HOT} of a hot key: their rate x {ratio:.2f}", flush=True)
    return ratio


def main() -> None:
    """All cases on one broker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=10_000)
    options = parser.parse_args()
    is_kept = True
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        try:
            kafka = running.cluster(OLD)
            front = running.front(kafka.bootstrap)
            assert front.child is not None
            bench = Bench(World("bench", front.bootstrap, "bench"), front.child.pid, options.records)
            draw = random.Random(options.keys)
            uniform = [b"key-%d" % draw.randrange(options.keys) for _ in range(options.records)]
            with Raw(kafka.bootstrap) as raw:
                different = [b"key-%d" % number for number in range(options.records)]
                topics = {
                    f"{name}, {kind}": (filled(raw, f"{name}-{kind}", keys, code), keys)
                    for name, keys in (("different", different), ("random", uniform))
                    for kind, code in (("plain", compression.NONE), ("lz4", compression.LZ4))
                }
                behind = {
                    "cold": filled(raw, "cold", uniform[:OTHERS], compression.NONE),
                    "hot": filled(raw, "hot", [b"hot"] * HOT + uniform[:OTHERS], compression.NONE),
                }
            for name, (topic, keys) in topics.items():
                is_kept &= compare(name, bench, options.rounds, topic, keys)
            is_kept &= beside_a_hot_key(bench, behind, options.rounds) >= HOT_MUST
        finally:
            running.close()
    sys.exit(not is_kept)


if __name__ == "__main__":
    main()
