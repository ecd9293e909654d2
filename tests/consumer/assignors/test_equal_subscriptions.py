"""Sticky assignment where all subscribe alike."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.equal_subscriptions import EqualSubscriptions
from kafka_share_proxy.consumer.assignors.previous_owners import previous_owners

from tests.consumer.assignors.groups import member, places, shown


def assign(counts: dict[str, int], **had: str) -> EqualSubscriptions:
    members = {name: member("".join(counts), each, 1) for name, each in had.items()}
    assignment = EqualSubscriptions(counts, previous_owners(counts, members, lambda each: (each.owned, 1)))
    assignment.assign()
    return assignment


def test_a_new_member_gets_its_share_and_the_others_keep_the_rest() -> None:
    assignment = assign({"a": 4}, m0="a0 a1 a2 a3", m1="")
    assert shown(assignment.assigned) == {"m0": "a0 a1", "m1": "a2 a3"}
    assert assignment.moving == dict.fromkeys(places("a2 a3"), "m1")


def test_partitions_of_a_lost_member_are_assigned_to_those_with_least() -> None:
    assignment = assign({"a": 5}, m0="a0 a1", m1="a2")
    assert sorted(map(len, assignment.assigned.values())) == [2, 3]
    assert set(places("a0 a1")) <= set(assignment.assigned["m0"])
    assert assignment.moving == {}


def test_a_partition_that_two_members_claim_moves_to_its_new_owner() -> None:
    assignment = assign({"a": 2}, m0="a0 a1", m1="a0")
    assert sorted(map(len, assignment.assigned.values())) == [1, 1]
    assert places("a0")[0] in assignment.moving


def test_with_fewer_partitions_than_members_some_members_have_none() -> None:
    assignment = assign({"a": 1}, m0="", m1="a0", m2="")
    assert shown(assignment.assigned) == {"m0": "", "m1": "a0", "m2": ""}
