"""Racks of members and replicas."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.racks import (
    ANYWHERE,
    Nearness,
    all_partitions,
    racks_matter,
    racks_of_members,
)
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.assignors.groups import member

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
SPLIT = {A0: frozenset("x"), A1: frozenset("xy")}


def test_racks_matter_where_members_stand_in_some_and_replicas_are_not_in_all() -> None:
    assert all_partitions({"a": 2}) == {A0, A1}
    assert racks_of_members({"m": member("a", rack="x"), "n": member("a")}) == {"m": "x"}
    assert racks_matter(["y"], [A0, A1], SPLIT)
    assert not racks_matter(["z"], [A0, A1], SPLIT)
    assert not racks_matter([], [A0, A1], SPLIT)
    assert not racks_matter(["x", "y"], [A0, A1], dict.fromkeys((A0, A1), frozenset("xy")))
    assert racks_matter(["x"], [A0, A1], {A0: frozenset("x")}), "of the other nothing is known"


def test_a_member_without_a_rack_is_neither_far_nor_near() -> None:
    members = {"m": member("a", rack="x"), "n": member("a"), "o": member("a", rack="y")}
    near = Nearness({"a": 2}, members, SPLIT)
    assert [[name for name in members if near.is_far(name, each)] for each in (A0, A1)] == [["o"], []]
    assert near.next_near(A0, list(members), 0) == near.next_near(A0, list(members), 1) == 0
    assert near.next_near(A1, list(members), 1) == 2
    assert near.next_near(A0, ["n", "o"], 0) is None
    assert near.rarest_first([A1, A0]) == [A0, A1]


def test_without_racks_no_member_is_far() -> None:
    assert not ANYWHERE.matters
    assert not ANYWHERE.is_far("m", A0)
    assert ANYWHERE.rarest_first([A1, A0]) == [A1, A0]
