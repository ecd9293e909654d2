"""A member of a KIP-848 group alone: what each heartbeat says, and what each response does."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.events import AssignPartitions, BackgroundError, PartitionsLost, RevokePartitions
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.groups.consumer_membership import ConsumerMembership
from kafka_share_proxy.consumer.groups.rebalance_flow import RebalanceFlow
from kafka_share_proxy.consumer.groups.states import RebalanceState, rebalance_trace
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import NOTHING
from kafka_share_proxy.consumer.requests import UnsentRequest
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.managers import (
    BARRED,
    LOST,
    NOW,
    assign,
    backoff,
    found_coordinator,
    known_topics,
    no_request,
    on_topics,
    only_request,
)

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
State = RebalanceState


class Play:
    """A member, its coordinator, and its application."""

    def __init__(self, **options: Any) -> None:
        self.options = ConsumerOptions(group_id="g", group_protocol="consumer", **options)
        self.flow = RebalanceFlow(rebalance_trace(), self.options.delay_limits)
        self.metadata = known_topics(p=2)
        self.settled = True
        self.member = ConsumerMembership(
            self.options, self.flow, found_coordinator(), self.metadata, backoff(), lambda _: self.settled, "m"
        )
        self.member.subscribe(frozenset({"p"}))
        self.member.on_poll(NOW)

    def respond(self, request: UnsentRequest, now: float = NOW, *, epoch: int = 1, **fields: Any) -> list[Any]:
        return assign(self.member, request, now, epoch=epoch, **fields)

    def events(self, now: float = NOW) -> list[Any]:
        return list(self.member.poll(now).events)

    def join(self, now: float = NOW) -> None:
        self.respond(only_request(self.member, now), now, partitions="01")
        (event,) = self.events(now)
        assert isinstance(event, AssignPartitions)
        self.member.acknowledge_assigned(event.rebalance_id, now)
        self.respond(only_request(self.member, now), now)
        assert self.flow.state is State.STABLE


def owned(request: UnsentRequest) -> list[int] | None:
    owned_topics = request.message.topic_partitions
    return None if owned_topics is None else [number for each in owned_topics for number in each.partitions]


def test_joining_says_everything_and_what_follows_only_what_has_changed() -> None:
    play = Play(rack="r", server_assignor="uniform", group_instance_id="i", max_poll_interval_s=60.0)
    first = only_request(play.member).message
    assert (first.member_id, first.member_epoch, first.instance_id, first.rack_id) == ("m", 0, "i", "r")
    assert (first.rebalance_timeout_ms, first.subscribed_topic_names, first.server_assignor) == (
        60_000,
        ["p"],
        "uniform",
    )
    assert first.topic_partitions == []
    play = Play()
    play.join()
    beat = only_request(play.member, NOW + 5.0)
    assert (beat.message.member_epoch, owned(beat), beat.message.subscribed_topic_names) == (1, None, None)
    assert beat.message.rebalance_timeout_ms == -1


def test_an_assignment_is_acknowledged_once_the_application_knows_it() -> None:
    play = Play()
    play.respond(only_request(play.member), partitions="01")
    (event,) = play.events()
    no_request(play.member, NOW + 1.0)
    play.member.acknowledge_assigned(event.rebalance_id, NOW + 1.0)
    assert owned(only_request(play.member, NOW + 1.0)) == [0, 1]


def test_a_smaller_assignment_is_acknowledged_when_the_application_has_let_go() -> None:
    play = Play()
    play.join()
    play.respond(only_request(play.member, NOW + 5.0), NOW + 5.0, partitions="0")
    (event,) = play.events(NOW + 5.0)
    assert isinstance(event, RevokePartitions)
    assert event.partitions == {P1}
    beat = only_request(play.member, NOW + 10.0)
    assert owned(beat) is None, "heartbeats go on, and say nothing of it"
    play.respond(beat, NOW + 10.0)
    play.member.acknowledge_revoked(frozenset({P1}))
    play.settled = False
    no_request(play.member, NOW + 11.0)
    play.settled = True
    expected = play.member.poll(NOW + 11.5)
    assert owned(expected.requests[0]) == [0]
    (assigned,) = expected.events
    assert (assigned.assigned, assigned.added, play.flow.state) == ({P0}, NOTHING, State.ASSIGNING_PARTITIONS)


def test_an_acknowledgement_without_a_response_is_sent_again() -> None:
    play = Play()
    play.join()
    play.respond(only_request(play.member, NOW + 5.0), NOW + 5.0, partitions="0")
    play.events(NOW + 5.0)
    play.member.acknowledge_revoked(frozenset({P1}))
    request = only_request(play.member, NOW + 5.0)
    play.member.on_response(request, LOST, NOW + 6.0)
    play.member._coordinator.node_id = 1
    again = only_request(play.member, NOW + 6.1)
    assert owned(again) == [0]
    assert again.message.subscribed_topic_names == ["p"], "nor is it known whether that was heard"


def test_topics_that_are_not_known_by_their_id_are_requested() -> None:
    play = Play()
    play.respond(only_request(play.member), topic="q", partitions="0")
    assert play.events() == []
    on_topics(play.metadata, only_request(play.metadata, NOW + 1.0), p=2, q=1)
    (event,) = play.events(NOW + 1.0)
    assert event.assigned == {TopicPartition("q", 0)}


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_has_lost_everything_and_joins_immediately_under_its_id(code: ErrorCode) -> None:
    play = Play()
    play.join()
    (event,) = play.respond(only_request(play.member, NOW + 5.0), NOW + 5.0, code=code)
    assert isinstance(event, PartitionsLost)
    assert event.partitions == {P0, P1}
    request = only_request(play.member, NOW + 5.0)
    assert (request.message.member_id, request.message.member_epoch, owned(request)) == ("m", 0, [])


@pytest.mark.parametrize("code", [30, 35, 42, 81, 111, 112, 82, 128])
def test_a_permanent_refusal_of_the_group_is_reported_once(code: int) -> None:
    play = Play()
    (event,) = play.respond(only_request(play.member), code=code)
    assert isinstance(event, BackgroundError)
    assert ErrorCode(code).name in str(event.error)
    no_request(play.member, NOW + 100)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_retriable_errors_are_retried(code: int) -> None:
    play = Play()
    assert play.respond(only_request(play.member), code=code) == []
    no_request(play.member)
    play.member._coordinator.node_id = 1
    assert only_request(play.member, NOW + 0.1).message.member_epoch == 0


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_is_a_last_heartbeat(instance_id: str | None, epoch: int) -> None:
    play = Play(group_instance_id=instance_id)
    play.join()
    play.member.leave(NOW, "closed")
    assert play.member.is_leaving
    request = only_request(play.member)
    assert (request.message.member_epoch, request.message.instance_id) == (epoch, instance_id)
    assert play.member.is_leaving
    play.respond(request, epoch=epoch)
    assert not play.member.is_leaving
    no_request(play.member, NOW + 100)


def test_a_member_that_never_joined_leaves_without_a_request() -> None:
    play = Play()
    play.member.leave(NOW, "closed")
    assert not play.member.is_leaving


def test_another_subscription_is_sent_immediately() -> None:
    play = Play()
    play.join()
    play.member.subscribe(frozenset({"p", "q"}))
    assert only_request(play.member, NOW + 1.0).message.subscribed_topic_names == ["p", "q"]


def test_a_refused_commit_brings_the_next_heartbeat_forward() -> None:
    play = Play()
    play.join()
    no_request(play.member, NOW + 1.0)
    assert play.member.fenced(MemberIdentity("m", 0), ErrorCode.STALE_MEMBER_EPOCH, NOW) == []
    no_request(play.member, NOW + 1.0)
    assert play.member.fenced(play.member.identity, ErrorCode.STALE_MEMBER_EPOCH, NOW) == []
    only_request(play.member, NOW + 1.0)


def test_without_a_heartbeat_response_the_session_expires_here_too() -> None:
    play = Play(session_timeout_s=10.0)
    play.join()
    play.member.on_response(only_request(play.member, NOW + 5.0), LOST, NOW + 5.0)
    (event,) = play.events(NOW + 10.0)
    assert isinstance(event, PartitionsLost)
    assert play.member.holds == NOTHING


def test_authentication_that_fails_is_final() -> None:
    play = Play()
    (event,) = play.member.on_response(only_request(play.member), BARRED, NOW)
    assert str(event.error) == "ConsumerGroupHeartbeat: no such user"
