"""A share group at work for minutes: twelve members of three client families, killed at random, and one proxy killed.

    tests/soak/run [--records 200000] [--seed 1]

In front of Kafka 3.9.1, on a topic of 8 partitions: four members of confluent-kafka, four of franz-go, four of the
console share consumer of the released jars; random releases, rejects and renewals. Every few seconds a member is killed
(SIGKILL) and another of its family joins; once the proxy is killed and started again. It is checked that:

- every record was delivered, and in the end nothing is left: the lag of every partition is 0;
- a record whose acceptance or rejection was confirmed to a member is not delivered to anybody after that.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "proxy"))

from confluent_kafka import Producer
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, QUICK
from tests.support.java_tools import command
from tests.support.programs import built
from tests.support.raw import Raw

PARTITIONS, MEMBERS_EACH = 8, 4
GROUP, TOPIC = "soak", "soak"
SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "5000",
    "share.session.timeout.ms": "10000",
    "share.delivery.count.limit": "10",
    "share.assignment.interval.ms": "0",
}
KILL_EVERY_S = 2.5
PROXY_KILLED_AT = 0.4
"""Part of the records that was delivered when the proxy is killed."""
QUIET_S = 60.0
"""Seconds with a lag and without a new record after which a record counts as lost."""
PRODUCE_S = 5e-4
"""Seconds between two records."""
ROUNDS = {"A": 60, "L": 15, "J": 10}
"""How often, of 85, a console consumer accepts, releases or rejects what it gets."""

_JAVA = re.compile(r"Partition:(\d+)\s.*?Offset:(\d+)\s.*?Delivery:(\d+)", re.IGNORECASE)

Record = tuple[int, int]
"""Partition, offset."""


@dataclass
class Ledger:
    """All output of the members, ordered by their clocks."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    delivered: dict[Record, tuple[int, int]] = field(default_factory=dict)
    """The last delivery: (time in ns, delivery count)."""
    final: dict[Record, int] = field(default_factory=dict)
    """When an acceptance or rejection was first confirmed."""
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    reported_at: float = field(default_factory=time.monotonic)

    def deliver(self, who: str, record: Record, count: int, at: int) -> None:
        with self.lock:
            self.kinds["delivered"] += 1
            self.kinds["delivered again"] += record in self.delivered
            settled = self.final.get(record)
            if settled is not None and settled < at:
                self.faults.append(f"{who} got {record} {(at - settled) / 1e9:.3f} s after it was settled")
            self.delivered[record] = max(self.delivered.get(record, (0, 0)), (at, count))
            self.reported_at = time.monotonic()

    def settle(self, who: str, letter: str, record: Record, at: int) -> None:
        with self.lock:
            self.kinds[{"A": "accepted", "L": "released", "J": "rejected"}[letter]] += 1
            if letter == "L":
                return
            if record in self.final:
                self.faults.append(f"{who} settled {record}, which was settled before")
            self.final.setdefault(record, at)
            if self.delivered.get(record, (0, 0))[0] > at:
                self.faults.append(f"{record} was delivered after {who} had settled it")


class Member:
    """One member's process, and a thread that hears what it says."""

    def __init__(self, family: str, name: str, command: list[str], ledger: Ledger) -> None:
        self.family, self.name = family, name
        self._ledger = ledger
        self._process = Popen(command, stdout=PIPE, stderr=PIPE, text=True)
        threading.Thread(target=self._receive, daemon=True).start()
        self._errors: list[str] = []
        threading.Thread(target=self._receive_errors, daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def last_words(self) -> str:
        return " ".join(self._errors[-3:])[-300:]

    def _receive(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._take(line)
            except (ValueError, IndexError, KeyError):
                continue  # a line cut by a kill

    def _receive_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line.strip()]

    def _take(self, line: str) -> None:
        if self.family == "java":
            match = _JAVA.search(line)
            if match is not None:
                partition, offset, count = map(int, match.groups())
                self._ledger.deliver(self.name, (partition, offset), count, time.time_ns())
            return
        if not line.endswith("\n"):
            return
        letter, *numbers = line.split()
        if letter == "D":
            partition, offset, count, at = map(int, numbers)
            self._ledger.deliver(self.name, (partition, offset), count, at)
        elif letter in "ALJ":
            partition, offset, at = map(int, numbers)
            self._ledger.settle(self.name, letter, (partition, offset), at)


class Soak:
    """The whole run."""

    def __init__(self, front: Front, records: int, seed: int) -> None:
        self._front, self._records = front, records
        self._choose = random.Random(seed)
        self._numbers = iter(range(1, 1_000_000))
        self._franz = built("franzgo", ["go", "build", "-o", "franzgo", "."], "franzgo") / "franzgo"
        self.ledger = Ledger()
        self.members: list[Member] = []
        self.kills: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def member(self, family: str) -> Member:
        number = next(self._numbers)
        bootstrap, seed = self._front.bootstrap, str(self._choose.randrange(1 << 30))
        if family == "confluent":
            line = [sys.executable, "-m", "tests.soak.confluent_member", bootstrap, GROUP, TOPIC, seed]
        elif family == "franz-go":
            line = [str(self._franz), bootstrap, f"soak-{number}", "soak", GROUP, TOPIC, seed]
        else:
            line = self._console(bootstrap)
        return Member(family, f"{family}-{number}", line, self.ledger)

    def _console(self, bootstrap: str) -> list[str]:
        (letter,) = self._choose.choices(list(ROUNDS), list(ROUNDS.values()))
        end = {"A": [], "L": ["--release"], "J": ["--reject"]}[letter]
        shown = [f"--formatter-property=print.{name}=true" for name in ("partition", "offset", "delivery")]
        count = "20000" if letter == "A" else "300"
        return command(
            "consumer.ConsoleShareConsumer", "--bootstrap-server", bootstrap, "--topic", TOPIC, "--group", GROUP,
            "--max-messages", count, *shown, *end,
        )  # fmt: skip

    def run(self) -> None:
        with Raw(self._front.bootstrap) as raw:
            raw.create_topic(TOPIC, PARTITIONS)
            raw.configure_group(GROUP, SETTINGS)
        producing = threading.Thread(target=self._produce, daemon=True)
        producing.start()
        self.members = [self.member(each) for each in ("confluent", "franz-go", "java") for _ in range(MEMBERS_EACH)]
        try:
            self._work(producing)
        finally:
            for member in self.members:
                member.kill()

    def _work(self, producing: threading.Thread) -> None:
        proxy_killed, kill_at, reported_at = False, time.monotonic() + KILL_EVERY_S, time.monotonic()
        while True:
            time.sleep(0.2)
            now, delivered = time.monotonic(), len(self.ledger.delivered)
            self._replace_ended()
            if now - reported_at > 10:
                reported_at = now
                print(f"{delivered:,} of {self._records:,} delivered, {dict(self.ledger.kinds)}", flush=True)
            if not proxy_killed and delivered >= PROXY_KILLED_AT * self._records:
                proxy_killed = True
                self._front.kill()
                self._front.start()
                self.kills["proxy"] += 1
            if delivered < self._records and now > kill_at:
                kill_at = now + KILL_EVERY_S
                self._kill_one()
            if delivered >= self._records and not producing.is_alive() and self._lag() == 0:
                return
            if now - self.ledger.reported_at > QUIET_S:
                raise AssertionError(
                    f"{QUIET_S:.0f} s without a delivery, {delivered} of {self._records}, lag {self._lag()}"
                )

    def _kill_one(self) -> None:
        place = self._choose.randrange(len(self.members))
        member = self.members[place]
        member.kill()
        self.kills[member.family] += 1
        self.members[place] = self.member(member.family)

    def _replace_ended(self) -> None:
        for place, member in enumerate(self.members):
            if member.ended:
                self.ended[member.family] += 1
                if member.family != "java":
                    print(f"{member.name} ended by itself: {member.last_words()}", flush=True)
                self.members[place] = self.member(member.family)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._front.bootstrap, "enable.idempotence": True, "log_level": 2})
        for number in range(self._records):
            while True:
                try:
                    producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 100 == 0:
                producer.poll(0)
                time.sleep(100 * PRODUCE_S)
        assert producer.flush(120) == 0, "not every record was produced"

    def _lag(self) -> int:
        """Over all partitions; -1 where one is not known."""
        with Raw(self._front.bootstrap) as raw:
            response = raw.send_request(
                "DescribeShareGroupOffsets", 1, on=raw.on_coordinator(GROUP),
                groups=[{"group_id": GROUP, "topics": None}],
            )  # fmt: skip
        lags = [part.lag for topic in response.groups[0].topics for part in topic.partitions]
        return -1 if len(lags) != PARTITIONS or min(lags) < 0 else sum(lags)


def judge(soak: Soak, records: int) -> list[str]:
    """Return what is wrong."""
    ledger, wrong = soak.ledger, list(soak.ledger.faults)
    expected = {(number % PARTITIONS, number // PARTITIONS) for number in range(records)}
    missing = expected - ledger.delivered.keys()
    if missing:
        wrong.append(f"{len(missing)} records were never delivered, such as {min(missing)}")
    if more := ledger.delivered.keys() - expected:
        wrong.append(f"{len(more)} records that nobody produced, such as {min(more)}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Cluster(OLD, Path(folder) / "kafka") as kafka:
        settings = {"share_groups": {"state": "topic", "broker": QUICK}}
        with Front(kafka.bootstrap, Path(folder) / "proxy", settings) as front:
            soak = Soak(front, arguments.records, arguments.seed)
            try:
                soak.run()
            except AssertionError as error:
                soak.ledger.faults.append(str(error))
            wrong = judge(soak, arguments.records)
            if wrong:
                print(front.output())
    print(f"{arguments.records:,} records, {time.monotonic() - began:.0f} s, {dict(soak.ledger.kinds)}")
    print(f"killed: {dict(soak.kills)}; ended by themselves: {dict(soak.ended)}")
    print(f"most deliveries of one record: {max(count for _, count in soak.ledger.delivered.values())}")
    for each in wrong[:20]:
        print(f"WRONG: {each}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
