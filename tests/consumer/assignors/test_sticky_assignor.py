"""Assignors `sticky` and `cooperative-sticky`."""

from __future__ import annotations

import time

from kafka_share_proxy.consumer.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from kafka_share_proxy.consumer.groups.group_protocol import read_cooperative_user_data, read_sticky_user_data

from tests.consumer.assignors.groups import member, places, shown

STICKY, COOPERATIVE = StickyAssignor(), CooperativeStickyAssignor()


def test_a_moving_partition_is_not_assigned_until_it_is_released() -> None:
    first = COOPERATIVE.assign({"a": 2}, {"m0": member("a", "a0 a1", 1), "m1": member("a")})
    assert shown(first) == {"m0": "a0", "m1": ""}
    second = COOPERATIVE.assign({"a": 2}, {"m0": member("a", "a0", 2), "m1": member("a", "", 2)})
    assert shown(second) == {"m0": "a0", "m1": "a1"}


def test_a_partition_that_a_member_still_owns_is_not_assigned_to_another() -> None:
    """A member that delays its revoke rejoins with the partition among those it owns."""
    for generation in range(2, 5):
        members = {"m0": member("a", "a0 a1", generation), "m1": member("a", "", generation)}
        assert shown(COOPERATIVE.assign({"a": 2}, members)) == {"m0": "a0", "m1": ""}


def test_an_owned_partition_is_not_assigned_to_another_with_different_subscriptions_either() -> None:
    members = {"m0": member("a", "a0 a1 a2 a3", 1), "m1": member("ab")}
    assigned = shown(COOPERATIVE.assign({"a": 4}, members))
    assert assigned["m1"] == ""
    assert len(assigned["m0"].split()) == 2


def test_an_eager_member_says_in_its_user_data_what_it_had() -> None:
    members = {"m0": member("a", "a1", 3, STICKY), "m1": member("a", "a0", 3, STICKY)}
    assert shown(STICKY.assign({"a": 2}, members)) == {"m0": "a1", "m1": "a0"}


def test_user_data_contain_what_each_assignor_of_java_writes() -> None:
    assert STICKY.user_data(None, 4) is None
    assert read_sticky_user_data(STICKY.user_data(frozenset(places("a0")), 4)) == (tuple(places("a0")), 4)
    assert read_cooperative_user_data(COOPERATIVE.user_data(None, 4)) == -1
    assert read_cooperative_user_data(COOPERATIVE.user_data(frozenset(), 4)) == 4


def test_a_large_group_is_assigned_in_time() -> None:
    """200 members of different subscriptions, 2000 partitions: a leader must be done within the rebalance timeout."""
    counts = dict.fromkeys("abcdefghij", 200)
    members = {f"m{number}": member("abcdefghij"[number % 5 :]) for number in range(200)}
    started_at = time.process_time()
    assigned = COOPERATIVE.assign(counts, members)
    assert sum(map(len, assigned.values())) == 2000
    assert time.process_time() - started_at < 20
