"""Assignor `range`."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.range_assignor import RangeAssignor

from tests.consumer.assignors.groups import member, shown


def test_each_topic_is_divided_into_runs_and_the_first_members_get_one_more() -> None:
    assigned = RangeAssignor().assign({"a": 3, "b": 3}, {"m1": member("ab"), "m0": member("ab")})
    assert shown(assigned) == {"m0": "a0 a1 b0 b1", "m1": "a2 b2"}


def test_only_subscribers_share_a_topic_and_missing_topics_are_left_out() -> None:
    members = {"m0": member("ax"), "m1": member("b"), "m2": member("b", instance_id="i")}
    assert shown(RangeAssignor().assign({"a": 2, "b": 3}, members)) == {"m0": "a0 a1", "m1": "b2", "m2": "b0 b1"}


def test_more_members_than_partitions_leaves_some_without() -> None:
    assigned = RangeAssignor().assign({"a": 1}, {name: member("a") for name in ("m0", "m1")})
    assert shown(assigned) == {"m0": "a0", "m1": ""}
    assert RangeAssignor().user_data(frozenset(), 1) is None
