"""Key order at length: 4 Java and 4 confluent-kafka members in a fleet on 3.9.1, 200,000 records with Zipf keys.

Members release records, work longer than the lock, and are killed with kill -9, as is the proxy that owns the group.
For each key the order of settles is the order of offsets, and no record is lost. KSP_LONG_RECORDS says how many.

    tests/run tests/long/key_order.py -s
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka_share_proxy.localkafka.children import Child

from tests.support.brokers import OLD, Running
from tests.support.fleet import Fleet
from tests.support.java_programs import java_program
from tests.support.keyed_ledger import KeyedLedger, Place
from tests.support.raw import Raw

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1500)]

RECORDS = int(os.environ.get("KSP_LONG_RECORDS", "200000"))
KEYS, EXPONENT, PARTITIONS = 10_000, 0.7, 4
EACH = 4
"""Members of each client."""
LOCK_S, HANG_S = 3.0, 5.0
RELEASED, HANGING, POLL_RECORDS = 0.01, 0.002, 100
LATE_S = HANG_S + LOCK_S
"""A record can wait that long in the buffer of a client that hangs."""
MEMBER_KILLED_EVERY_S, OWNER_KILLED_FIRST_S, OWNER_KILLED_EVERY_S = 7.0, 5.0, 25.0
LIMIT_S = 1_200.0
SETTINGS = {
    "share.ordering": "key", "share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0",
    "share.record.lock.duration.ms": str(round(LOCK_S * 1000)), "share.delivery.count.limit": "10",
}  # fmt: skip
COMMANDS = {
    "java": lambda: java_program("KeyedMember", "4.3.0", "-Xmx96m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
    "confluent": lambda: [sys.executable, "-m", "tests.support.keyed_member"],
}


class KeyedMember:
    """A process of a member, and what it printed so far."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name, self._log, self._position, self._rest = name, log, 0, ""
        self.child = Child(command, log)

    def listen(self, ledger: KeyedLedger) -> None:
        """Read the complete new lines. What the client library logs is not a line of a member."""
        with self._log.open(encoding="utf-8") as log:
            log.seek(self._position)
            text = log.read()
            self._position = log.tell()
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line[:2] in ("D ", "A ", "R ", "S ", "E ", "H"):
                ledger.take(self.name, line)


class Members:
    """All members, of which the oldest is replaced after a kill."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._arguments, self._folder = arguments, folder
        self._numbers = itertools.count(1)
        self.ledger = KeyedLedger()
        self.alive = [self._start(kind) for _ in range(EACH) for kind in COMMANDS]
        self.killed = 0

    def _start(self, kind: str) -> KeyedMember:
        number = next(self._numbers)
        behaviour = [str(number), str(RELEASED), str(HANGING), str(round(HANG_S * 1000)), str(POLL_RECORDS)]
        command = [*COMMANDS[kind](), *self._arguments, *behaviour]
        return KeyedMember(f"{kind}-{number}", command, self._folder / f"{kind}-{number}.log")

    def kill_one(self) -> None:
        member = self.alive.pop(0)
        member.child.kill()
        member.listen(self.ledger)
        self.alive.append(self._start(member.name.split("-")[0]))
        self.killed += 1

    def listen(self) -> None:
        for member in self.alive:
            member.listen(self.ledger)

    def close(self) -> None:
        for member in self.alive:
            member.child.kill()
        self.listen()


@pytest.fixture
def fleet(running: Running) -> Fleet:
    fleet = Fleet(running, running.cluster(OLD))
    for name in ("a", "b"):
        fleet.start(name)
    fleet.settled("a", "b")
    return fleet


def produced(bootstrap: str, topic: str) -> dict[Place, bytes]:
    """Append the records, and return the key of each."""
    keys: dict[Place, bytes] = {}

    def stored(error: Any, message: Any) -> None:
        assert error is None
        keys[message.partition(), message.offset()] = message.key()

    options = {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True, "batch.num.messages": 500}
    producer = confluent_kafka.Producer(options)
    weights = list(itertools.accumulate(rank**-EXPONENT for rank in range(1, KEYS + 1)))
    for key in random.Random(29).choices(range(KEYS), cum_weights=weights, k=RECORDS):
        while True:
            try:
                producer.produce(topic, b"v", key=b"k%d" % key, on_delivery=stored)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0
    return keys


def owner(fleet: Fleet, group: str) -> str | None:
    """Return the name of the proxy that shows the group on its admin listener."""
    return next((name for name, front in fleet.fronts.items() if front.send_request(f"/groups/{group}")[0]), None)


def finish(fleet: Fleet, members: Members, group: str, keys: dict[Place, bytes]) -> int:
    """Kill members and owners until every record is settled. Return the number of owners killed."""
    owners, started_at = 0, time.monotonic()
    next_member, next_owner = started_at + MEMBER_KILLED_EVERY_S, started_at + OWNER_KILLED_FIRST_S
    while True:
        time.sleep(0.5)
        members.listen()
        tried = {place for place, each in members.ledger.attempts.items() if any(one.may_settle() for one in each)}
        if len(tried) >= len(keys):
            return owners
        now = time.monotonic()
        assert now < started_at + LIMIT_S, f"{len(tried)} of {len(keys)} records are settled"
        if now > next_member:
            members.kill_one()
            next_member = now + MEMBER_KILLED_EVERY_S
        if now > next_owner and (name := owner(fleet, group)):
            fleet.fronts[name].kill()
            fleet.fronts[name].start()
            owners += 1
            next_owner = time.monotonic() + OWNER_KILLED_EVERY_S


def test_settles_of_each_key_are_in_the_order_of_offsets_while_members_and_owners_die(
    fleet: Fleet, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    bootstrap = ",".join(front.bootstrap for front in fleet.fronts.values())
    topic, group = fresh("topic"), fresh("group")
    with Raw(fleet.fronts["a"].bootstrap) as raw:
        raw.create_topic(topic, PARTITIONS)
        raw.configure_group(group, SETTINGS)
    keys = produced(fleet.fronts["a"].bootstrap, topic)
    started_at = time.monotonic()
    members = Members([bootstrap, group, topic], tmp_path)
    try:
        owners = finish(fleet, members, group, keys)
        took = time.monotonic() - started_at
        time.sleep(LATE_S + LOCK_S)  # records of killed members, and what is left in buffers, are delivered again
    finally:
        members.close()
    ledger = members.ledger
    hottest = max(Counter(keys.values()).values())
    print(
        f"\n{len(keys)} records, {len(set(keys.values()))} keys, {hottest} of the hottest, in {took:.0f} s: "
        f"{len(keys) / took:.0f} records/s; {ledger.counts['D']} deliveries, {ledger.counts['R']} released, "
        f"{ledger.counts['H']} hangs, {members.killed} members and {owners} owners killed; "
        f"at most {ledger.most_deliveries} deliveries of a record; {len(keys) - len(ledger.settled())} settles unheard"
        f"; errors {dict(ledger.errors)}"
    )
    faults = ledger.faults(keys, round(LATE_S * 1e9))
    assert faults == [], f"{len(faults)} faults, for example {faults[:5]}"
    assert ledger.most_deliveries < int(SETTINGS["share.delivery.count.limit"])
    assert ledger.counts["R"]
    assert ledger.counts["H"]
    assert members.killed
    assert owners
