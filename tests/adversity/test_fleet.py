"""Several proxies share the share groups of one cluster: each serves every group, one owns it (fleet/README.md).

One broker that has no share groups, two proxies in processes of their own, clients at the proxy that does not own their
group. Accepted records are never delivered again, no record is lost, delivery counts continue, whichever proxy stops or
stalls. More proxies, sleep and mixed modes are tested by fleet_at_length.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.blocking_connection import Connection
from tests.support.fleet import LEASE_S, Fleet, acquired_again, elsewhere, far_group
from tests.support.raw import Raw
from tests.support.worlds import ACCEPT, RELEASE, RENEW, Member

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(480)]


PACES = 10
"""Multiple of the longest wait of an undisturbed run that is allowed: many steps follow one another, each slowed down
as much.
"""
EVENT_S = 60.0
"""Seconds that an event may take, as the end of a proxy."""


def test_every_request_of_a_group_is_served_at_a_proxy_that_does_not_own_it(
    fleet: Fleet, fresh: Callable[[str], str]
) -> None:
    """Join, fetch, acknowledge, renew, release; both proxies' members share one group; tools see one set of groups."""
    prefix = fresh("w")[-16:]
    a = fleet.world("a", prefix)
    b = fleet.world("b", prefix)
    t = a.topic()
    a.raw.produce(t, 10)
    group = far_group(fleet, a, "a", lock_ms="29000")
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
    assert two.take(t).acquired(t) == [(5, 5, 2), (10, 12, 2)], "the end of its connection ended the session"
    for world in (a, b):
        described = world.raw.send_request("ShareGroupDescribe", 1, group_ids=[group, a.group("none", start=None)])
        assert [(g.group_id == group, g.error_code) for g in described.groups] == [(True, 0), (False, 69)]
        listed = world.raw.send_request("ListGroups", 5, states_filter=[], types_filter=["share"])
        assert group in [g.group_id for g in listed.groups]
        resource = {
            "resource_type": 32,
            "resource_name": group,
            "configuration_keys": ["share.record.lock.duration.ms"],
        }
        (result,) = world.raw.send_request("DescribeConfigs", 4, resources=[resource]).results
        assert (result.error_code, result.configs[0].value) == (0, "29000")
        offsets = world.raw.send_request("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}])
        assert offsets.groups[0].topics[0].partitions[0].start_offset in (5, 10)
    (deleted,) = a.raw.send_request("DeleteGroups", 2, groups_names=[group]).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP


def test_owner_that_is_killed_is_followed_by_another(fleet: Fleet, fresh: Callable[[str], str]) -> None:
    """Accepted records stay accepted, the rest is delivered again with its delivery counts; it takes a session
    timeout.
    """
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    a.raw.produce(t, 10)
    one = a.member(far_group(fleet, a, "a"), "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 9, 1)]
    assert one.acknowledge((t, 0, 0, 3, ACCEPT)).code(t) == 0
    assert one.acknowledge((t, 0, 4, 4, RELEASE)).code(t) == 0
    assert one.take(t).acquired(t) == [(4, 4, 2)]
    calm = longest_wait(one, threading.Timer(1.0, lambda: None))
    began = time.monotonic()
    fleet.fronts["b"].kill()
    got = acquired_again(one, t)
    took = time.monotonic() - began
    assert sorted(got) == [(4, 4, 2), (5, 9, 1)]
    assert took < LEASE_S + 2.5 + PACES * calm
    assert one.acknowledge((t, 0, 4, 9, ACCEPT)).code(t) == 0
    fleet.fronts["b"].start()
    fleet.settled("a", "b")
    one.epoch = 0
    assert not one.fetch(t, wait_ms=200).acquired(t)
    print(f"takeover after kill -9: {took:.2f} s")


def longest_wait(member: Member, meanwhile: threading.Thread) -> float:
    """Longest time between two successful heartbeats, during an event and for two seconds after it."""
    meanwhile.start()
    worst, since, last = 0.0, time.monotonic(), time.monotonic()
    limit = time.monotonic() + EVENT_S
    while meanwhile.is_alive() or time.monotonic() - since < 2.0:
        assert time.monotonic() < limit, f"the event takes longer than {EVENT_S:g} s"
        assert member.heartbeat(silent=True).error_code in (0, 15, 16, 25)
        worst, last = max(worst, time.monotonic() - last), time.monotonic()
        time.sleep(0.01)
        if meanwhile.is_alive():
            since = time.monotonic()
    return worst


def test_owner_that_leaves_in_order_is_followed_within_a_second(fleet: Fleet, fresh: Callable[[str], str]) -> None:
    """Its clients and those of the other proxy are without their group for less than a second."""
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    a.raw.produce(t, 10)
    one = a.member(far_group(fleet, a, "a"), "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 9, 1)]
    assert one.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    calm = longest_wait(one, threading.Timer(0.1, lambda: None))
    worst = longest_wait(one, threading.Thread(target=fleet.fronts["b"].stop, daemon=True))
    assert acquired_again(one, t) == [(5, 9, 1)]
    fleet.fronts["b"].start()
    fleet.settled("a", "b")
    print(f"longest wait while the owner left: {worst:.2f} s")
    assert worst < 1.5 + PACES * calm


def test_owner_that_leaves_in_order_serves_its_connections_until_the_other_owns_everything(fleet: Fleet) -> None:
    b = fleet.fronts["b"]
    begin = len(b.log.read_text())
    assert fleet.owned("a") < PARTITIONS
    leaving = threading.Thread(target=b.stop, daemon=True)
    with Raw(b.bootstrap) as raw:
        connection = raw.kept()
        raw.send_request("Metadata", 12, on=connection, topics=[], allow_auto_topic_creation=False)
        leaving.start()
        with pytest.raises(ConnectionError):
            serve_until_closed(raw, connection)
    given_up = [line for line in b.log.read_text()[begin:].splitlines() if "share-state-given-up" in line]
    leaving.join()
    b.start()
    fleet.settled("a", "b")
    assert [line for line in given_up if " left=0 " in line]


def serve_until_closed(raw: Raw, connection: Connection) -> None:
    end = time.monotonic() + EVENT_S
    while time.monotonic() < end:
        raw.send_request("Metadata", 12, on=connection, topics=[], allow_auto_topic_creation=False)
        time.sleep(0.01)


@pytest.mark.parametrize("trouble", ["cut", "stalled"])
def test_link_between_proxies_is_cut_or_stalled(trouble: str, fleet: Fleet, fresh: Callable[[str], str]) -> None:
    """Sessions over that link end, locks are released with their delivery counts, and delivery continues."""
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    a.raw.produce(t, 10)
    one = a.member(far_group(fleet, a, "a"), "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 9, 1)]
    assert one.acknowledge((t, 0, 0, 4, ACCEPT)).code(t) == 0
    for relay in fleet.relays:
        relay.cut() if trouble == "cut" else relay.stall()
    if trouble == "stalled":
        lost = one.acknowledge((t, 0, 5, 5, ACCEPT))
        assert (lost.error, lost.code(t)) == (0, -1), "within the time that silence may last: it may be stored or not"
        for relay in fleet.relays:
            relay.cut()
            relay.go_on()
    got = acquired_again(one, t)
    assert got in ([(5, 9, 2)], [(6, 9, 2)]), "what was on its way may have been stored"
    assert one.acknowledge((t, 0, got[0][0], 9, ACCEPT)).code(t) == 0
