"""Assignor `roundrobin`."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.round_robin_assignor import RoundRobinAssignor

from tests.consumer.assignors.groups import member, shown


def test_the_round_continues_from_topic_to_topic() -> None:
    assigned = RoundRobinAssignor().assign({"a": 3, "b": 3}, {"m0": member("ab"), "m1": member("ab")})
    assert shown(assigned) == {"m0": "a0 a2 b1", "m1": "a1 b0 b2"}


def test_a_member_that_does_not_subscribe_is_passed_over() -> None:
    """The example of the Java class: one, two and three topics of one, two and three partitions."""
    members = {"m0": member("a"), "m1": member("ab"), "m2": member("abcx")}
    assigned = RoundRobinAssignor().assign({"a": 1, "b": 2, "c": 3}, members)
    assert shown(assigned) == {"m0": "a0", "m1": "b0", "m2": "b1 c0 c1 c2"}
    assert RoundRobinAssignor().user_data(None, -1) is None
