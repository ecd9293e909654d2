"""Slow tests of fleets: pytest tests/adversity/fleet_at_length.py

Proxies start, stop and sleep; the largest fleet tested has five proxies. See test_fleet.py for what every run tries.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import QUICK, Running
from tests.support.fleet import Fleet, acquired_again, elsewhere, far_group
from tests.support.raw import Raw, until
from tests.support.worlds import ACCEPT

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(480)]


def test_owner_that_slept_beyond_its_lease_says_nothing_it_believed_before(
    fleet: Fleet, fresh: Callable[[str], str]
) -> None:
    prefix = fresh("w")[-16:]
    a = fleet.world("a", prefix)
    t = a.topic()
    a.raw.produce(t, 10)
    one = a.member(far_group(fleet, a, "a"), "one", topics=[t])
    at_owner = elsewhere(fleet.world("b", prefix), one, "two")
    assert at_owner.take(t).acquired(t) == [(0, 9, 1)]
    assert at_owner.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    child = fleet.fronts["b"].child
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    try:
        assert acquired_again(one, t) == [(5, 9, 1)]
        assert one.acknowledge((t, 0, 5, 7, ACCEPT)).code(t) == 0
    finally:
        os.kill(child.pid, signal.SIGCONT)
    assert at_owner.acknowledge((t, 0, 5, 9, ACCEPT)).error == 122
    fleet.settled("a", "b")
    one.disconnect()
    ((first, last, count),) = acquired_again(at_owner, t)
    assert (first, last) == (8, 9)
    assert count in (1, 2), "what is acquired is not stored: it counts again where its owner changed once more"


def test_third_proxy_takes_its_share_from_live_ones_and_gives_it_back(
    fleet: Fleet, fresh: Callable[[str], str]
) -> None:
    """No group is without an owner for long, and no accepted record is delivered again."""
    a = fleet.world("a", fresh("w")[-16:])
    topics = [a.topic(f"t{n}") for n in range(6)]
    members = []
    for number, t in enumerate(topics):
        a.raw.produce(t, 10)
        member = a.member(a.group(f"m{number}"), f"m{number}", topics=[t])
        assert member.take(t).acquired(t) == [(0, 9, 1)]
        assert member.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
        members.append(member)
    fleet.start("c")
    fleet.settled("a", "b", "c")
    for member, t in zip(members, topics, strict=True):
        response = member.acknowledge((t, 0, 5, 6, ACCEPT))
        first = 7 if response.error == 0 else 5
        if response.error:
            assert response.error == 122
            assert acquired_again(member, t) == [(first, 9, 1)]
        assert member.acknowledge((t, 0, first, 9, ACCEPT)).code(t) == 0
    assert fleet.fronts.pop("c").stop() == 0
    fleet.settled("a", "b")
    for member, t in zip(members, topics, strict=True):
        a.raw.produce(t, 1)
        assert acquired_again(member, t) == [(10, 10, 1)]


def test_proxy_that_would_own_everything_is_refused_by_a_fleet(
    fleet: Fleet, running: Running, fleet_kafka: Cluster
) -> None:
    """Two assignment protocols in one group would mean two owners."""
    alone = Front(fleet_kafka.bootstrap, fleet.fronts["a"].folder.parent / "alone", {"share_groups": {"broker": QUICK}})
    alone._wait_ready = lambda: until(
        lambda: "another cluster.mode" in alone.send_request("/readyz/share-groups")[1], "its reason"
    )  # type: ignore[method-assign]
    with alone:
        fleet.settled("a", "b")


def test_five_proxies_lose_two_and_go_on(fleet: Fleet, fresh: Callable[[str], str]) -> None:
    """Every group at every proxy; two killed together; accepted records are never delivered again."""
    names = ["a", "b", "c", "d", "e"]
    for name in names[2:]:
        fleet.start(name)
    fleet.settled(*names)
    prefix = fresh("w")[-16:]
    worlds = [fleet.world(name, prefix) for name in names]
    topics = [worlds[0].topic(f"t{n}") for n in range(10)]
    members = []
    for number, t in enumerate(topics):
        world = worlds[number % 3]
        world._labels |= worlds[0]._labels
        worlds[0].raw.produce(t, 10)
        member = world.member(world.group(f"m{number}"), f"m{number}", topics=[t])
        assert acquired_again(member, t) == [(0, 9, 1)]
        assert member.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
        members.append(member)
    for name in ("d", "e"):
        killed = fleet.fronts.pop(name)
        killed.kill()
        killed.child = None  # its end is what was wanted
    fleet.settled("a", "b", "c")
    for member, t in zip(members, topics, strict=True):
        response = member.acknowledge((t, 0, 5, 9, ACCEPT))
        if response.error:
            assert response.error == 122, "its owner was killed, and its session with it"
            assert acquired_again(member, t) == [(5, 9, 1)]
            assert member.acknowledge((t, 0, 5, 9, ACCEPT)).code(t) == 0
        worlds[0].raw.produce(t, 1)
        assert acquired_again(member, t) == [(10, 10, 1)]
    assert fleet.fronts.pop("c").stop() == 0
    fleet.settled("a", "b")


def test_stock_clients_at_every_proxy_lose_nothing_when_one_is_killed(
    fleet: Fleet, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    """confluent-kafka: every record is delivered and settled, and none is delivered after its acceptance was
    confirmed.
    """
    raw = fleet.world("a", fresh("w")[-16:]).raw
    group, topic = fresh("stock"), raw.create_topic(fresh("stock"), 4)
    raw.configure_group(group, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "5000"})
    files = [tmp_path / f"member{number}" for number in range(4)]
    members = []
    for number, file in enumerate(files):
        bootstrap = fleet.fronts["ab"[number % 2]].bootstrap
        line = [sys.executable, "-m", "tests.soak.confluent_member", bootstrap, group, topic.name, str(number)]
        with file.open("w") as out:
            members.append(subprocess.Popen(line, stdout=out))
    try:
        for index in range(4):
            raw.produce(topic, *[50] * 10, partition=index)
        until(lambda: len(settled_records(files)) > 400, "the first records")
        fleet.fronts["b"].kill()
        time.sleep(1)
        fleet.fronts["b"].start()
        for index in range(4):
            raw.produce(topic, *[50] * 10, partition=index)
        until(lambda: lag(raw, group) == 0, "all records to be settled")
    finally:
        for member in members:
            member.kill()
            member.wait()
    assert {place for place, _ in deliveries(files)} == {(str(p), str(n)) for p in range(4) for n in range(1000)}
    accepted = {place: when for place, (kind, when) in settled_records(files).items() if kind == "A"}
    late = [place for place, when in deliveries(files) if when > accepted.get(place, when)]
    assert not late, [(place, settled_records(files)[place]) for place in late]


def lag(raw: Raw, group: str) -> int:
    """Number of records that are not settled; -1 if unknown."""
    (described,) = raw.send_request("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}]).groups
    lags = [partition.lag for topic in described.topics for partition in topic.partitions]
    return sum(lags) if len(lags) == 4 and min(lags) >= 0 else -1


def lines_of(files: Sequence[Path]) -> Iterator[list[str]]:
    for file in files:
        for line in file.read_text().splitlines():
            if line and line[0] in "DAJ" and len(parts := line.split()) >= 4:
                yield parts


def settled_records(files: Sequence[Path]) -> dict[tuple[str, str], tuple[str, int]]:
    """(partition, offset) -> how and when it was confirmed to be settled for good, the first time."""
    settled: dict[tuple[str, str], tuple[str, int]] = {}
    for parts in lines_of(files):
        if parts[0] != "D":
            place, when = (parts[1], parts[2]), int(parts[3])
            if place not in settled or when < settled[place][1]:
                settled[place] = parts[0], when
    return settled


def deliveries(files: Sequence[Path]) -> Iterator[tuple[tuple[str, str], int]]:
    for parts in lines_of(files):
        if parts[0] == "D" and len(parts) == 5:
            yield (parts[1], parts[2]), int(parts[4])
