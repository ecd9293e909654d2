"""Sticky assignment where members subscribe to different topics."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.previous_owners import previous_owners
from kafka_share_proxy.consumer.assignors.unequal_subscriptions import (
    PartitionMovements,
    UnequalSubscriptions,
    balance_score,
)
from kafka_share_proxy.consumer.groups.group_protocol import GroupSubscription

from tests.consumer.assignors.groups import member, places, shown


def assign(counts: dict[str, int], **members: GroupSubscription) -> dict[str, str]:
    previous = previous_owners(counts, members, lambda each: (each.owned, each.generation))
    return shown(UnequalSubscriptions(counts, members, previous).assign())


def test_a_member_keeps_what_it_had_and_gets_what_only_it_wants() -> None:
    assert assign({"a": 2, "b": 2}, m0=member("a", "a0 a1", 1), m1=member("ab")) == {"m0": "a0 a1", "m1": "b0 b1"}


def test_a_topic_that_is_no_longer_subscribed_is_given_up() -> None:
    assert assign({"a": 1, "b": 1}, m0=member("b", "a0", 1), m1=member("ab")) == {"m0": "b0", "m1": "a0"}


def test_partitions_move_until_no_move_helps() -> None:
    assigned = assign({"a": 6}, m0=member("a", "a0 a1 a2 a3 a4 a5", 1), m1=member("ax"))
    assert sorted(len(each.split()) for each in assigned.values()) == [3, 3]


def test_an_earlier_owner_that_no_longer_subscribes_gets_nothing_back() -> None:
    """Java gives it back all the same, or fails."""
    assigned = assign({"a": 4, "b": 1}, m0=member("b", "a0 a1", 1), m1=member("ab", "a0 a1 a2 a3", 2), m2=member("a"))
    assert assigned["m0"] == "b0"
    assert sorted((assigned["m1"] + " " + assigned["m2"]).split()) == ["a0", "a1", "a2", "a3"]


def test_the_score_counts_the_difference_of_every_pair() -> None:
    assert [balance_score(loads) for loads in ([2, 2], [1, 4, 2], [])] == [0, 6, 0]


A0, A1, B0 = places("a0 a1 b0")


def test_a_partition_that_moved_goes_back_instead_of_another_of_its_topic() -> None:
    movements = PartitionMovements()
    movements.moved(A0, "m0", "m1")
    assert movements.better_choice(A1, "m1", "m0") == A0
    assert movements.better_choice(A1, "m0", "m1") == A1
    assert movements.better_choice(B0, "m1", "m0") == B0


def test_a_second_move_counts_from_the_first_owner_and_a_return_ends_the_move() -> None:
    movements = PartitionMovements()
    movements.moved(A0, "m0", "m1")
    movements.moved(A0, "m1", "m2")
    assert movements.better_choice(A1, "m2", "m0") == A0
    movements.moved(A0, "m2", "m0")
    assert movements.better_choice(A1, "m2", "m0") == A1
