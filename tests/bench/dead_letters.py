"""Measure the cost of dead letters of share groups: transactions, latency, and the effect on other members.

    python -m tests.bench.dead_letters [--rounds 40] [--seconds 8] [--singles 60]

One broker of 3.9.1, one proxy.

- Transactions: a member rejects 1,000 records a second, in acknowledgements of 10. The commit markers in the topic for
  dead letters are counted by the second.
- Latency: single records are rejected. The time from the response until the dead letter is visible to a
  read_committed reader is compared with a transaction of a stock producer (confluent-kafka) that writes to two topics,
  from its beginning until its record is visible to the same reader.
- Bystanders: a member fetches and accepts as fast as it can: in a group of another state partition, in a group of the
  same one, and in the same group with another share partition. Another member settles 1,000 records a second. In turns
  it accepts them, rejects them, and accepts them while a stock producer writes as many records with the same headers,
  in as many transactions. Where members, broker and proxy share the cores, the rate falls with any work. The stock
  producer shows by how much for these records. What the rate is below that is what dead letters cost others, by waiting
  or by the work of the proxy. The range is a confidence interval of 95 % of the median.

The results are ratios within the run. The exit status is 1 if a bound is missed. `--singles 0` and `--rounds 0` leave
out latency and bystanders.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import confluent_kafka
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import BatchHeader, Record

from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, Topic, until
from tests.support.worlds import ACCEPT, REJECT, Member, Place, World

RATE, ACKNOWLEDGED = 1_000, 10
"""Failed records a second, and in one acknowledgement."""
BATCH, VALUE = 500, b"v" * 100
TRANSACTIONS_MUST, LATENCY_MUST, BYSTANDER_MUST = 20, 1.0, 0.97
SLICE_S, CHANGE_S = 1.0, 0.2
"""Length of a slice, and of its beginning, which does not count: dead letters of the slice before are still written."""
BYSTANDER_RATE_MAX = 15_000
"""Records a second that a bystander settles at most."""
WITHOUT, WITH, STOCK = "without", "with", "by a stock producer"
"""Kinds of slices."""
HEADERS: list[tuple[str, str | bytes | None]] = [
    ("__dlq.errors.topic", b"t.0"),
    ("__dlq.errors.partition", b"0"),
    ("__dlq.errors.offset", b"12345"),
    ("__dlq.errors.group", b"g0"),
    ("__dlq.errors.delivery.count", b"1"),
    ("__dlq.errors.message", b"Offset rejected by client."),
]
PAUSE_S = 0.4
"""Between two single rejected records: transactions take at most 3 % of the time of a state partition."""
READ_BYTES = 1 << 20
SETTING = "errors.deadletterqueue.topic.name"


@dataclass
class Bench:
    """A proxy and its broker."""

    proxy: str
    direct: Raw
    numbers: count[int] = field(default_factory=count)

    def topic(self, size: int, name: str = "t", partitions: int = 1) -> Topic:
        """Return a topic with this many records in each partition."""
        topic = self.direct.create_topic(f"{name}.{next(self.numbers)}", partitions)
        for partition in range(partitions):
            for base in range(0, size, BATCH):
                batch_records = [Record(value=VALUE, offset=at) for at in range(min(BATCH, size - base))]
                self.direct.append(topic, records.build_batch(0, batch_records), partition)
        return topic

    def group(self, letters: Topic | None = None, beside: str | None = None) -> str:
        """Return a group. `beside`: its state partition is the same as that of this group."""
        while True:
            name = f"g{next(self.numbers)}"
            if beside is None or state_partition(name) == state_partition(beside):
                break
        values = {"share.auto.offset.reset": "earliest"} | ({} if letters is None else {SETTING: letters.name})
        with Raw(self.proxy) as raw:
            raw.configure_group(name, values)
        return name

    def member(self, group: str, topic: Topic) -> Member:
        """Return a member for one thread."""
        world = World("bench", self.proxy, "bench")
        member = Member(world, group, f"m{next(self.numbers)}")
        member.join([topic])
        return member


def settle(member: Member, place: Place, kind: Callable[[], int], each: int) -> Iterator[int]:
    """Settle what is acquired, and yield the number of records after each acknowledgement of `each` records."""
    topic, partition = place
    while True:
        for first, last, _ in member.fetch(place, silent=True).acquired(topic, partition):
            for begin in range(first, last + 1, each):
                end = min(begin + each - 1, last)
                response = member.acknowledge((topic, partition, begin, end, kind()), silent=True)
                assert response.code(topic, partition) == 0
                yield end - begin + 1


class Failing:
    """A member that settles RATE records a second in a thread."""

    def __init__(self, member: Member, place: Place, kind: int) -> None:
        self._member, self._place, self.kind = member, place, kind
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.settled, self.took_s = 0, 0.0

    def __enter__(self) -> Failing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._member.disconnect()

    def _run(self) -> None:
        started_at = time.monotonic()
        for number in settle(self._member, self._place, lambda: self.kind, ACKNOWLEDGED):
            self.settled += number
            self.took_s = time.monotonic() - started_at
            if self._ends.wait(max(0.0, started_at + self.settled / RATE - time.monotonic())):
                return


def log_of(raw: Raw, topic: Topic, partition: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the committed batches of a partition with the buffer that they are in."""
    offset, end = 0, raw.end_offset(topic, partition)
    while offset < end:
        data = _fetch(raw, topic, partition, offset, wait_ms=0)
        for batch in records.iter_batches(data):
            yield batch, data
            offset = batch.last_offset + 1


def _fetch(raw: Raw, topic: Topic, partition: int, offset: int, *, wait_ms: int) -> memoryview:
    to_find = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": READ_BYTES}
    response = raw.send_request(
        "Fetch", 12, max_wait_ms=wait_ms, min_bytes=1, max_bytes=READ_BYTES, isolation_level=1, session_epoch=-1,
        topics=[{"topic": topic.name, "partitions": [to_find]}],
    )  # fmt: skip
    (partition_response,) = response.responses[0].partitions
    assert partition_response.error_code == 0
    return memoryview(bytes(partition_response.records or b""))


# Transactions


def transactions(bench: Bench, seconds: float) -> tuple[bool, float]:
    """Reject RATE records a second. Return True if the bound is met, and the transactions in a second."""
    letters, topic = bench.topic(0, "dlq"), bench.topic(int(2 * seconds * RATE))
    with Failing(bench.member(bench.group(letters), topic), (topic, 0), REJECT) as failing:
        time.sleep(seconds)
    stored = until(lambda: _stored(bench, letters, failing.settled), "the dead letters")
    by_second = Counter(batch.base_timestamp // 1000 for batch, _ in log_of(bench.direct, letters) if batch.is_control)
    whole = [number for _, number in sorted(by_second.items())][1:-1]
    print(
        f"{failing.settled} records rejected in {failing.took_s:.1f} s ({failing.settled / failing.took_s:.0f} a "
        f"second), {stored} dead letters in {sum(by_second.values())} transactions; in one second at most "
        f"{max(whole)}, on average {statistics.mean(whole):.1f} (bound {TRANSACTIONS_MUST})",
        flush=True,
    )
    mean = statistics.mean(whole)
    return max(whole) <= TRANSACTIONS_MUST + 1 and mean <= TRANSACTIONS_MUST, mean


def _stored(bench: Bench, letters: Topic, expected: int) -> int | None:
    stored = sum(batch.records_count for batch, _ in log_of(bench.direct, letters) if not batch.is_control)
    assert stored <= expected
    return stored if stored == expected else None


# Latency


def visible_after(raw: Raw, topic: Topic, offset: int, started_at: float) -> float:
    """Wait until a committed record at this offset or after it is visible. Return the seconds since `started_at`."""
    while not len(_fetch(raw, topic, 0, offset, wait_ms=500)):
        assert time.monotonic() < started_at + 30
    return time.monotonic() - started_at


def latency(bench: Bench, singles: int) -> bool:
    """Compare single dead letters with transactions of a stock producer. Return True if the bound is met."""
    letters, topic = bench.topic(0, "dlq"), bench.topic(singles + 1)
    other_topics = [bench.topic(0, "other") for _ in range(2)]
    producer = confluent_kafka.Producer({"bootstrap.servers": bench.proxy, "transactional.id": "bench", "linger.ms": 0})
    producer.init_transactions()
    rejected = settle(bench.member(bench.group(letters), topic), (topic, 0), lambda: REJECT, 1)
    acknowledged, of_letters, of_producer = [], [], []
    for number in range(singles + 1):
        started_at = time.monotonic()
        next(rejected)
        confirmed = time.monotonic()
        visible = visible_after(bench.direct, letters, 2 * number, confirmed)
        time.sleep(PAUSE_S)
        transacted = _transaction(bench, producer, other_topics, number)
        if number:  # the first one looks up the topic
            acknowledged.append(confirmed - started_at)
            of_letters.append(visible)
            of_producer.append(transacted)
    ratio = statistics.median(of_letters) / statistics.median(of_producer)
    print(
        f"response to a reject {_ms(acknowledged)}; dead letter visible {_ms(of_letters)} later; transaction of a "
        f"stock producer {_ms(of_producer)}: x {ratio:.2f} (bound {LATENCY_MUST})",
        flush=True,
    )
    return ratio <= LATENCY_MUST


def _transaction(bench: Bench, producer: confluent_kafka.Producer, topics: Sequence[Topic], number: int) -> float:
    started_at = time.monotonic()
    producer.begin_transaction()
    for topic in topics:
        producer.produce(topic.name, VALUE, partition=0)
    producer.commit_transaction()
    return visible_after(bench.direct, topics[0], 2 * number, started_at)


def _ms(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return f"{statistics.median(ordered) * 1e3:.1f} ms (p90 {ordered[len(ordered) * 9 // 10] * 1e3:.1f})"


# Bystanders


class StockLetters:
    """A stock producer in a thread that writes RATE records a second in transactions, while `is_on`."""

    def __init__(self, bench: Bench, pause_s: float) -> None:
        settings = {"bootstrap.servers": bench.proxy, "transactional.id": f"stock-{next(bench.numbers)}"}
        self._producer = confluent_kafka.Producer(settings | {"linger.ms": 0, "compression.type": "zstd"})
        self._producer.init_transactions()
        self._topics, self._pause_s = [bench.topic(0, "stock") for _ in range(2)], pause_s
        self.is_on, self._ends = False, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.written, self.on_s = 0, 0.0

    def __enter__(self) -> StockLetters:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._ends.wait(self._pause_s):
            passed_s, before = time.monotonic() - before, time.monotonic()
            if self.is_on:
                self._write(round(RATE * passed_s))
                self.on_s += passed_s

    def _write(self, number: int) -> None:
        self._producer.begin_transaction()
        for _ in range(number):
            self._producer.produce(self._topics[0].name, headers=HEADERS, partition=0)
        self._producer.produce(self._topics[1].name, VALUE, partition=0)  # in place of the state
        self._producer.commit_transaction()
        self.written += number


def bystanders(bench: Bench, rounds: int, transactions_s: float) -> bool:
    """Compare the rates of other members. Return True if the bound is met."""
    letters = bench.topic(0, "dlq")
    failing = bench.group(letters)
    groups = {"other state partition": _elsewhere(bench, failing), "same state partition": bench.group(beside=failing)}
    groups["same group"] = failing
    is_kept = True
    with StockLetters(bench, 1 / transactions_s) as stock:
        for name, group in groups.items():
            is_kept &= _compare(bench, name, failing, group, rounds, stock)
    print(f"the stock producer wrote {stock.written / stock.on_s:.0f} records a second in transactions", flush=True)
    return is_kept


def _elsewhere(bench: Bench, group: str) -> str:
    return next(each for each in iter(bench.group, "") if state_partition(each) != state_partition(group))


def _compare(bench: Bench, name: str, failing: str, group: str, rounds: int, stock: StockLetters) -> bool:
    """Compare slices of one run, of all kinds in turns."""
    kinds = (WITHOUT, WITH, STOCK)
    slices = len(kinds) * (rounds + 1) * SLICE_S
    topic, own = bench.topic(int(slices * RATE * 1.5)), bench.topic(int(slices * BYSTANDER_RATE_MAX))
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    member = bench.member(group, own)
    settled = settle(member, (own, 0), lambda: ACCEPT, ACKNOWLEDGED)
    with Failing(bench.member(failing, topic), (topic, 0), ACCEPT) as other:
        for number in range(rounds + 1):
            for kind in kinds[number % 3 :] + kinds[: number % 3]:
                other.kind, stock.is_on = REJECT if kind == WITH else ACCEPT, kind == STOCK
                rate = _rate(settled)
                if number:  # the first round warms up
                    rates[kind].append(rate)
    stock.is_on = False
    member.disconnect()
    for each in (topic, own):
        bench.direct.delete_topic(each)
    of_letters, _ = _ratio(rates[WITH], rates[WITHOUT])
    of_stock, _ = _ratio(rates[STOCK], rates[WITHOUT])
    cost, interval = _ratio(rates[WITH], rates[STOCK])
    print(
        f"bystander, {name:22}: {statistics.median(rates[WITHOUT]):7,.0f} records/s; x {of_letters:.3f} with dead "
        f"letters, x {of_stock:.3f} with those of a stock producer: x {cost:.3f} ({interval}, {rounds} rounds, bound "
        f"{BYSTANDER_MUST})",
        flush=True,
    )
    return cost >= BYSTANDER_MUST


def _ratio(some: Sequence[float], baseline: Sequence[float]) -> tuple[float, str]:
    """Return the median ratio of pairs, and its confidence interval."""
    pairs = sorted(one / other for one, other in zip(some, baseline, strict=True))
    half = round(0.98 * len(pairs) ** 0.5)  # 1.96 standard deviations of a binomial distribution
    low, high = max(0, len(pairs) // 2 - half), min(len(pairs) - 1, len(pairs) // 2 + half)
    return statistics.median(pairs), f"{pairs[low]:.2f} to {pairs[high]:.2f}"


def _rate(settled: Iterator[int]) -> float:
    """Return the records that the bystander settles a second, after the change of the other member's kind."""
    changed = time.monotonic()
    done, started_at = 0, 0.0
    for number in settled:
        now = time.monotonic()
        if not started_at and now > changed + CHANGE_S:
            started_at, done = now, 0
        elif started_at:
            done += number
            if now > started_at + SLICE_S - CHANGE_S:
                return done / (now - started_at)
    raise AssertionError("the bystander has no records")


def main() -> None:
    """All cases on one broker."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--singles", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder))
        try:
            kafka = running.cluster(OLD)
            front = running.front(kafka.bootstrap, {"share_groups": {"dead_letters": {"topics": ["dlq.*"]}}})
            with Raw(kafka.bootstrap) as direct:
                bench = Bench(front.bootstrap, direct)
                is_kept, transactions_s = transactions(bench, options.seconds)
                if options.singles:
                    is_kept &= latency(bench, options.singles)
                if options.rounds:
                    is_kept &= bystanders(bench, options.rounds, transactions_s)
        finally:
            running.close()
    sys.exit(not is_kept)


if __name__ == "__main__":
    main()
