"""A group of our client, confluent-kafka and Kafka's console consumer on one topic: two minutes of joins and kills.

No record is lost, no committed offset goes back, and no committed record is delivered again. KSP_LONG_SECONDS says how
long else. Run by tests/long/run, not by tests/run.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.brokers import NEW, OLD, Running
from tests.support.raw import Raw, Topic
from tests.support.view_group import Group, Member, committed, produce

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("KSP_LONG_SECONDS", "120"))
PARTITIONS = 8
EVERY_S = 5.0
"""Interval at which a member dies or leaves, and another joins."""
MEMBERS = 5
READ_S = 240.0
SLACK_S = 10.0
"""A member's output may be this much later than another's commit: it was starved, or has lost its assignment."""
SESSIONS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
"""A member of a KIP-848 group that died is missed as soon as one of a classic group."""
CASES = {
    "range-3.9.1": (OLD, "range", ("trio-classic", "confluent-classic", "console-3.9.1")),
    "cooperative-3.9.1": (OLD, "cooperative-sticky", ("trio-classic", "confluent-classic", "console-3.9.1")),
    "cooperative-4.3.0": (NEW, "cooperative-sticky", ("trio-classic", "confluent-classic", "console-4.3.0")),
    "consumer-4.3.0": (NEW, "consumer", ("trio-consumer", "confluent-consumer", "console-4.3.0")),
    "consumer-3.9.1": (OLD, "consumer", ("trio-consumer", "console-3.9.1")),
}
Fresh = Callable[[str], str]


class Sample(NamedTuple):
    """Committed offsets of the group at one time."""

    at: float
    offsets: list[int]


class MixedGroup(Group):
    """Members of several clients; the client of the next member is random."""

    def __init__(self, bootstrap: str, group: str, topic: str, clients: tuple[str, ...], assignor: str) -> None:
        super().__init__(clients[0], bootstrap, group, topic, assignor)
        self._clients = clients
        self._joined = 0

    def join(self, count: int = 1) -> None:
        """One after the other of the clients, so that each is there."""
        for _ in range(count):
            client = self._clients[self._joined % len(self._clients)]
            _, bootstrap, group, topic, assignor = self._arguments
            needs_no_name = assignor == "consumer" and not client.startswith("console")
            self.members.append(Member(client, bootstrap, group, topic, "" if needs_no_name else assignor))
            self._joined += 1

    def lose_one(self, dice: random.Random) -> None:
        """Any of them, killed or in good order."""
        self.members.insert(0, self.members.pop(dice.randrange(len(self.members))))
        (self.kill if dice.random() < 0.6 else self.leave)()


@pytest.fixture(scope="module", params=[OLD, NEW])
def kafka(request: pytest.FixtureRequest, running: Running) -> Cluster:
    return running.cluster(request.param, properties=SESSIONS)


@pytest.fixture
def raw(kafka: Cluster) -> Iterator[Raw]:
    with Raw(kafka.bootstrap) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES)
def test_members_of_several_clients_come_and_die_and_nothing_is_lost(
    kafka: Cluster, raw: Raw, fresh: Fresh, case: str
) -> None:
    release, assignor, clients = CASES[case]
    if release != kafka.release:
        pytest.skip("the other release")
    topic, name, dice = raw.create_topic(fresh("topic"), PARTITIONS), fresh("group"), random.Random(case)
    group = MixedGroup(kafka.bootstrap, name, topic.name, clients, assignor)
    values: list[str] = []
    samples: list[Sample] = []
    try:
        group.join(MEMBERS)
        group.wait_assigned(PARTITIONS, READ_S)
        end, next_loss = time.monotonic() + SECONDS, 0.0
        while time.monotonic() < end:
            values += produce(raw, topic, len(values), len(values) + 100)
            samples.append(Sample(time.monotonic(), committed(raw, name, topic.name, range(PARTITIONS))))
            if time.monotonic() > next_loss:
                next_loss = time.monotonic() + EVERY_S
                group.lose_one(dice)
                group.join()
            time.sleep(0.2)
        group.wait_read(values, READ_S)
        group.wait_assigned(PARTITIONS, READ_S)
        wait_committed(raw, group, name, topic, samples)
    finally:
        group.close()
    check(group, samples)


def wait_committed(raw: Raw, group: Group, name: str, topic: Topic, samples: list[Sample]) -> None:
    """All of it, in the end."""
    expected = [raw.end_offset(topic, number) for number in range(PARTITIONS)]

    def is_committed() -> bool:
        samples.append(Sample(time.monotonic(), committed(raw, name, topic.name, range(PARTITIONS))))
        return samples[-1].offsets == expected

    group._wait(is_committed, lambda: f"{samples[-1].offsets} is committed of {expected}", READ_S)


def check(group: Group, samples: list[Sample]) -> None:
    """No commit goes back; and no committed record is delivered any longer."""
    for before, after in itertools.pairwise(samples):
        back = [n for n in range(PARTITIONS) if after.offsets[n] < before.offsets[n]]
        assert not back, f"partitions {back}: {before} and then {after}\n{group}"
    described = [
        (at, line[1], line[2], member)
        for member in (*group.members, *group.lost)
        for at, line in zip(member.times, member.lines, strict=False)
        if line[0] == "record"
    ]
    for at, partition, offset, member in described:
        known = max((each.offsets[partition] for each in samples if each.at < at - SLACK_S), default=-1)
        assert offset >= known, f"{partition}-{offset} was committed ({known}) and came again to {member}\n{group}"
    twice = sum(count - 1 for count in Counter((partition, offset) for _, partition, offset, _ in described).values())
    print(f"{len(described)} records told, {twice} of them again; {len(group.lost)} members went")
