"""Assignors of consumer groups."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.server_assignors import Subscriber, in_ranges, uniform
from kafka_share_proxy.wire.values import TopicIdPartition

A, B = b"a" * 16, b"b" * 16


def test_uniform_balances_and_keeps() -> None:
    owned_partitions = {TopicIdPartition(A, 0), TopicIdPartition(A, 1), TopicIdPartition(A, 2)}
    members = {"m1": Subscriber({A}, owned_partitions), "m2": Subscriber({A}, set())}
    assigned = uniform(members, {A: 4})
    assert {name: len(each) for name, each in assigned.items()} == {"m1": 2, "m2": 2}
    assert assigned["m1"] < owned_partitions


def test_uniform_gives_topics_to_their_subscribers_only() -> None:
    members = {"m1": Subscriber({A}, set()), "m2": Subscriber({A, B}, set())}
    assigned = uniform(members, {A: 1, B: 2})
    assert {each.topic_id for each in assigned["m1"]} <= {A}
    assert sum(map(len, assigned.values())) == 3


def test_ranges_are_contiguous() -> None:
    members = {name: Subscriber({A}, set()) for name in ("m2", "m1")}
    assigned = in_ranges(members, {A: 3})
    assert sorted(each.partition for each in assigned["m1"]) == [0, 1]
