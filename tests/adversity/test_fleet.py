"""Several proxies share the share groups of one cluster: each serves every group, one of them owns it (decision 22).

One broker that has no share groups, proxies in processes of their own, clients at a proxy that does not own their
group. What was accepted never comes again, nothing is lost, delivery counts go on, whichever proxy goes or stalls.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from localkafka.addresses import HOST, free_ports
from localkafka.cluster import Cluster
from localkafka.front import Front

from tests.support.brokers import OLD, QUICK, Running
from tests.support.raw import until
from tests.support.relay import Relay
from tests.support.worlds import ACCEPT, RELEASE, RENEW, Member, World

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(120)]

SECRET = "of this fleet alone"
LEASE_S = 6.0
PARTITIONS = 50


class Fleet:
    """Proxies by name, and the worlds of clients that go through them."""

    def __init__(self, running: Running, kafka: Cluster) -> None:
        self._running, self._kafka = running, kafka
        self.fronts: dict[str, Front] = {}
        self.relays: list[Relay] = []
        self.worlds: list[World] = []

    def start(self, name: str, *, relayed: bool = False) -> Front:
        """A proxy more; `relayed`: other proxies reach it through a relay."""
        port = free_ports(1)[0]
        peer = {"listen": f"{HOST}:{port}", "secret": SECRET}
        if relayed:
            relay = Relay(f"{HOST}:{port}").__enter__()
            self.relays.append(relay)
            peer["advertise"] = relay.address
        settings = {"cluster": {"mode": "fleet", "peer": peer}, "share_groups": {"broker": QUICK}}
        self.fronts[name] = front = self._running.front(self._kafka.bootstrap, settings)
        return front

    def owned(self, name: str) -> int:
        """How many state partitions a proxy serves."""
        ready, text = self.fronts[name].ask("/readyz")
        return int(json.loads(text)["state_partitions"]) if ready else -1

    def settled(self, *names: str) -> None:
        """Wait until these share everything evenly."""

        def even() -> bool:
            counts = [self.owned(name) for name in names]
            return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1

        until(even, f"{', '.join(names)} to share all state partitions", 20)

    def world(self, name: str, prefix: str) -> World:
        """Clients of one of the proxies."""
        world = World("proxy", self.fronts[name].bootstrap, prefix)
        self.worlds.append(world)
        return world

    def close_worlds(self) -> None:
        while self.worlds:
            self.worlds.pop().close()


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def two(running: Running, kafka: Cluster) -> Iterator[Fleet]:
    fleet = Fleet(running, kafka)
    fleet.start("a", relayed=True)
    fleet.start("b", relayed=True)
    yield fleet
    for relay in fleet.relays:
        relay.__exit__(None, None, None)


@pytest.fixture
def fleet(two: Fleet) -> Iterator[Fleet]:
    for relay in two.relays:
        relay.go_on()
    two.settled("a", "b")
    yield two
    two.close_worlds()


def far_group(fleet: Fleet, world: World, edge: str, **settings: str) -> str:
    """A group that the clients' own proxy does not own: its admin listener does not show it."""
    for number in range(40):
        group = world.group(f"g{number}", **settings)
        Member(world, group, f"probe-{group}"[-36:]).heartbeat(0, topics=["none"], silent=True)
        if not fleet.fronts[edge].ask(f"/groups/{group}")[0]:
            return group
    raise AssertionError("every group is owned there")


def elsewhere(world: World, member: Member, name: str) -> Member:
    """Another member of the same group, at another proxy."""
    world._labels |= member.world._labels
    return Member(world, member.group, f"{name}-{member.member_id}"[:36])


def acquired_again(member: Member, topic: Any, limit_s: float = 20.0) -> list[tuple[int, int, int]]:
    """What a member gets that opens sessions anew for as long as it is told to."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        answer = member.fetch(topic)
        assert answer.error in (0, 122), answer.plain
        if answer.error:
            member.epoch = 0
        elif got := answer.acquired(topic):
            return got
    raise AssertionError(f"nothing came within {limit_s} s")


def test_every_request_of_a_group_is_served_at_a_proxy_that_does_not_own_it(
    fleet: Fleet, fresh: Callable[[str], str]
) -> None:
    """Join, fetch, acknowledge, renew, release; both proxies' members share one group; tools see one set of groups."""
    prefix = fresh("w")[-16:]
    a = fleet.world("a", prefix)
    b = fleet.world("b", prefix)
    t = a.topic()
    a.raw.produce(t, 10)
    group = far_group(fleet, a, "a", lock_ms="5000")
    one = a.member(group, "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 9, 1)]
    assert one.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    assert one.acknowledge((t, 0, 5, 5, RENEW), renew=True).code(t) == 0
    assert one.acknowledge((t, 0, 6, 9, RELEASE)).code(t) == 0
    two = elsewhere(b, one, "two")
    assert two.take(t).acquired(t) == [(6, 9, 2)]
    assert two.acknowledge((t, 0, 6, 9, ACCEPT)).code(t) == 0
    a.raw.produce(t, 3)
    assert one.take(t).acquired(t) == [(10, 12, 1)]
    one.disconnect()
    assert two.take(t, limit_s=5).acquired(t) == [(5, 5, 2), (10, 12, 2)], "the end of its connection ended the session"
    for world in (a, b):
        described = world.raw.ask("ShareGroupDescribe", 1, group_ids=[group, a.group("none", start=None)])
        assert [(g.group_id == group, g.error_code) for g in described.groups] == [(True, 0), (False, 69)]
        listed = world.raw.ask("ListGroups", 5, states_filter=[], types_filter=["share"])
        assert group in [g.group_id for g in listed.groups]
        resource = {
            "resource_type": 32,
            "resource_name": group,
            "configuration_keys": ["share.record.lock.duration.ms"],
        }
        (result,) = world.raw.ask("DescribeConfigs", 4, resources=[resource]).results
        assert (result.error_code, result.configs[0].value) == (0, "5000")
        offsets = world.raw.ask("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}])
        assert offsets.groups[0].topics[0].partitions[0].start_offset in (5, 10)
    assert a.raw.ask("DeleteGroups", 2, groups_names=[group]).results[0].error_code == 68


def test_owner_that_is_killed_is_followed_by_another(fleet: Fleet, fresh: Callable[[str], str]) -> None:
    """Accepted stays accepted, the rest comes again with its deliveries counted on; it takes a session timeout."""
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    a.raw.produce(t, 10)
    one = a.member(far_group(fleet, a, "a"), "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 9, 1)]
    assert one.acknowledge((t, 0, 0, 3, ACCEPT)).code(t) == 0
    assert one.acknowledge((t, 0, 4, 4, RELEASE)).code(t) == 0
    assert one.take(t).acquired(t) == [(4, 4, 2)]
    began = time.monotonic()
    fleet.fronts["b"].kill()
    got = acquired_again(one, t)
    took = time.monotonic() - began
    assert sorted(got) == [(4, 4, 2), (5, 9, 1)]
    assert took < LEASE_S + 2.5
    assert one.acknowledge((t, 0, 4, 9, ACCEPT)).code(t) == 0
    fleet.fronts["b"].start()
    fleet.settled("a", "b")
    one.epoch = 0
    assert not one.fetch(t, wait_ms=200).acquired(t)
    print(f"takeover after kill -9: {took:.2f} s")


def test_owner_that_leaves_in_order_is_followed_within_a_second(fleet: Fleet, fresh: Callable[[str], str]) -> None:
    """Its clients and those of the other proxy are without their group for less than a second."""
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    a.raw.produce(t, 10)
    one = a.member(far_group(fleet, a, "a"), "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 9, 1)]
    assert one.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    stopping = threading.Thread(target=fleet.fronts["b"].stop)
    stopping.start()
    worst, since, last = 0.0, time.monotonic(), time.monotonic()
    while stopping.is_alive() or time.monotonic() - since < 2.0:
        assert one.heartbeat(silent=True).error_code in (0, 15, 16, 25)
        worst, last = max(worst, time.monotonic() - last), time.monotonic()
        time.sleep(0.01)
        if stopping.is_alive():
            since = time.monotonic()
    stopping.join()
    assert acquired_again(one, t) == [(5, 9, 1)]
    fleet.fronts["b"].start()
    fleet.settled("a", "b")
    print(f"longest wait while the owner left: {worst:.2f} s")
    assert worst < 1.5


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
    assert acquired_again(at_owner, t) == [(8, 9, 2)]


@pytest.mark.parametrize("trouble", ["cut", "stalled"])
def test_link_between_proxies_is_cut_or_stalled(trouble: str, fleet: Fleet, fresh: Callable[[str], str]) -> None:
    """Sessions that came over it end, locks are given back with deliveries counted, and everything goes on."""
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    a.raw.produce(t, 10)
    one = a.member(far_group(fleet, a, "a"), "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 9, 1)]
    assert one.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    for relay in fleet.relays:
        relay.cut() if trouble == "cut" else relay.stall()
    if trouble == "stalled":
        assert one.acknowledge((t, 0, 5, 5, ACCEPT)).error == 122, "within the time that silence may last"
        for relay in fleet.relays:
            relay.cut()
            relay.go_on()
    got = acquired_again(one, t)
    assert got in ([(5, 9, 2)], [(6, 9, 2)]), "what was on its way may have been stored"
    assert one.acknowledge((t, 0, got[0][0], 9, ACCEPT)).code(t) == 0


def test_third_proxy_takes_its_share_from_live_ones_and_gives_it_back(
    fleet: Fleet, fresh: Callable[[str], str]
) -> None:
    """No group is without an owner for long, and nothing that was accepted comes again."""
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
        answer = member.acknowledge((t, 0, 5, 6, ACCEPT))
        first = 7 if answer.error == 0 else 5
        if answer.error:
            assert answer.error == 122
            assert acquired_again(member, t) == [(first, 9, 1)]
        assert member.acknowledge((t, 0, first, 9, ACCEPT)).code(t) == 0
    assert fleet.fronts.pop("c").stop() == 0
    fleet.settled("a", "b")
    for member, t in zip(members, topics, strict=True):
        a.raw.produce(t, 1)
        assert acquired_again(member, t) == [(10, 10, 1)]


def test_proxy_that_would_own_everything_is_refused_by_a_fleet(fleet: Fleet, running: Running, kafka: Cluster) -> None:
    """Two ways to share at once would be two owners."""
    alone = Front(kafka.bootstrap, fleet.fronts["a"].folder.parent / "alone", {"share_groups": {"broker": QUICK}})
    alone._wait_ready = lambda: until(lambda: "another cluster.mode" in alone.ask("/readyz")[1], "its reason")  # type: ignore[method-assign]
    with alone:
        fleet.settled("a", "b")
