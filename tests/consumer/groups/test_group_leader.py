"""The leader of a classic group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from kafka_share_proxy.consumer.assignors.range_assignor import RangeAssignor
from kafka_share_proxy.consumer.assignors.weighted_sticky_assignor import WeightedStickyAssignor
from kafka_share_proxy.consumer.events import FatalGroupError
from kafka_share_proxy.consumer.groups.group_leader import GroupLeader
from kafka_share_proxy.consumer.groups.group_protocol import (
    GroupSubscription,
    MalformedMember,
    read_assignment,
    write_subscription,
)
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import TopicPartition


class Topics:
    """Topics that are known, or not yet."""

    def __init__(self, **counts: int) -> None:
        self.counts: dict[str, int] | None = counts
        self.requested: list[str] = []
        self.racks: dict[TopicPartition, frozenset[str]] = {}
        self.weights: dict[str, tuple[float, ...]] = {}

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int] | None:
        self.requested = list(topics)
        return self.counts and dict(self.counts)

    def replica_racks(self, topics: Iterable[str]) -> dict[TopicPartition, frozenset[str]]:
        return {each: racks for each, racks in self.racks.items() if each.topic in topics}

    def slot_weights(self, topics: Iterable[str]) -> dict[str, tuple[float, ...]]:
        return {each: weights for each, weights in self.weights.items() if each in topics}


def elected(protocol: str = "range", skip: bool = False, **members: bytes) -> Any:
    response = registry.message("JoinGroupResponse")
    listed = [response.JoinGroupResponseMember(member_id=name, metadata=data) for name, data in members.items()]
    return response(protocol_name=protocol, members=listed, skip_assignment=skip)


def topics(*names: str) -> bytes:
    return write_subscription(GroupSubscription(topics=names))


def assigned(leader: GroupLeader) -> dict[str, list[str]]:
    assignments = leader.assign()
    assert assignments is not None
    return {name: [str(each) for each in read_assignment(data).partitions] for name, data in assignments}


def test_the_leader_assigns_all_subscribed_topics_once_they_are_known() -> None:
    known = Topics(p=2, q=1)
    leader = GroupLeader([RangeAssignor()], known)
    leader.become_leader(elected(a=topics("p"), b=topics("p", "q")))
    counts, known.counts = known.counts, None
    assert leader.assign() is None
    assert known.requested == ["p", "q"]
    known.counts = counts
    assert assigned(leader) == {"a": ["p-0"], "b": ["p-1", "q-0"]}


def test_the_leader_assigns_anew_when_a_topic_grows_and_only_while_it_leads() -> None:
    known = Topics(p=2)
    leader = GroupLeader([RangeAssignor()], known)
    assert not leader.needs_new_assignment()
    leader.become_leader(elected(a=topics("p")))
    assert assigned(leader) == {"a": ["p-0", "p-1"]}
    assert not leader.needs_new_assignment()
    known.counts = {"p": 3}
    assert leader.needs_new_assignment()
    known.counts = None
    assert not leader.needs_new_assignment(), "they are being asked about"
    known.counts = {"p": 3}
    leader.step_down()
    assert not leader.needs_new_assignment()


def test_a_static_leader_that_is_back_assigns_nothing() -> None:
    leader = GroupLeader([RangeAssignor()], Topics(p=1))
    leader.become_leader(elected(skip=True, a=topics("p")))
    assert assigned(leader) == {}


def test_malformed_metadata_of_another_member_name_it() -> None:
    leader = GroupLeader([RangeAssignor()], Topics(p=1))
    with pytest.raises(MalformedMember, match="member b of the group"):
        leader.become_leader(elected(a=topics("p"), b=b"\0\1bad"))
    assert assigned(leader) == {}


def test_an_assignor_that_was_not_offered_is_an_error() -> None:
    with pytest.raises(FatalGroupError, match="'sticky', not offered"):
        GroupLeader([RangeAssignor()], Topics()).become_leader(elected("sticky"))


def test_members_get_what_is_in_their_racks_and_anew_when_replicas_move() -> None:
    """KIP-881; without a member that names a rack, racks are not looked up."""
    known = Topics(p=2)
    here, there = (frozenset({rack}) for rack in ("here", "there"))
    known.racks = {TopicPartition("p", 0): there, TopicPartition("p", 1): here}
    leader = GroupLeader([RangeAssignor()], known)
    placed = {
        name: write_subscription(GroupSubscription(topics=("p",), rack=rack))
        for name, rack in (("a", "here"), ("b", "there"))
    }
    leader.become_leader(elected(**placed))
    assert assigned(leader) == {"a": ["p-1"], "b": ["p-0"]}
    assert not leader.needs_new_assignment()
    known.racks = {TopicPartition("p", 0): here, TopicPartition("p", 1): there}
    assert leader.needs_new_assignment()
    assert assigned(leader) == {"a": ["p-0"], "b": ["p-1"]}
    leader.become_leader(elected(a=topics("p"), b=topics("p")))
    assert assigned(leader) == {"a": ["p-0"], "b": ["p-1"]}
    known.racks = {}
    assert not leader.needs_new_assignment()


def test_weights_balance_the_assignment_and_a_change_of_them_alone_moves_nothing() -> None:
    known = Topics(p=4)
    known.weights = {"p": (0.7, 0.1, 0.1, 0.1)}
    leader = GroupLeader([WeightedStickyAssignor()], known)
    leader.become_leader(elected("weighted-sticky", a=topics("p"), b=topics("p")))
    assert assigned(leader) == {"a": ["p-0"], "b": ["p-1", "p-2", "p-3"]}
    known.weights = {}
    assert not leader.needs_new_assignment(), "two proxies may not know the same"
