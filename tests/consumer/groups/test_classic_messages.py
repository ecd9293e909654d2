"""Requests of a member of a classic group."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from kafka_share_proxy.consumer.groups import classic_messages as messages
from kafka_share_proxy.consumer.groups.classic_messages import JoinFacts, MemberIdentity
from kafka_share_proxy.consumer.groups.group_protocol import read_sticky_user_data, read_subscription
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.messages import round_trip

P0 = TopicPartition("p", 0)
OPTIONS = ConsumerOptions(group_id="g", rack="r1", session_timeout_s=10.0, max_poll_interval_s=60.0)
WHO = MemberIdentity("m", 4, "i")


@pytest.mark.parametrize("version", range(5, 10))
def test_join_group_says_everything_in_the_words_of_each_assignor(version: int) -> None:
    facts = JoinFacts(frozenset({"p"}), frozenset({P0}), frozenset({P0}), 3, "a test")
    request = round_trip(
        messages.join_group(OPTIONS, WHO, [StickyAssignor(), CooperativeStickyAssignor()], facts), version
    )
    assert (request.member_id, request.group_instance_id) == ("m", "i")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, 60_000)
    assert [each.name for each in request.protocols] == ["sticky", "cooperative-sticky"]
    for each in request.protocols:
        subscription = read_subscription("m", bytes(each.metadata))
        assert (subscription.topics, subscription.owned, subscription.generation, subscription.rack) == (
            ("p",),
            (P0,),
            4,
            "r1",
        )
    subscription = read_subscription("m", bytes(request.protocols[0].metadata))
    assert read_sticky_user_data(subscription.user_data) == ((P0,), 3)


@pytest.mark.parametrize("version", range(3, 6))
def test_sync_group_has_the_assignments_and_leave_group_names_the_member(version: int) -> None:
    request = round_trip(messages.sync_group("g", WHO, "range", [("m", b"1")]), version)
    assert [(each.member_id, bytes(each.assignment)) for each in request.assignments] == [("m", b"1")]
    left = round_trip(messages.leave_group("g", WHO, "closed"), version)
    assert [(each.member_id, each.group_instance_id) for each in left.members] == [("m", "i")]


@pytest.mark.parametrize("version", [3, 4])
def test_a_heartbeat_names_member_generation_and_instance(version: int) -> None:
    request = round_trip(messages.heartbeat("g", WHO), version)
    assert (request.member_id, request.generation_id, request.group_instance_id) == ("m", 4, "i")
