"""A member of a share group alone: what each heartbeat says, and what each response does."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.events import BackgroundError
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure, UnsentRequest
from kafka_share_proxy.consumer.share.share_membership import ShareMembership, ShareMemberState
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
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
    respond,
)

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
State = ShareMemberState


class Play:
    """A member and its coordinator."""

    def __init__(self, **options: Any) -> None:
        self.coordinator = found_coordinator()
        self.metadata = known_topics(p=2)
        self.member = ShareMembership(
            ShareConsumerOptions(group_id="g", **options), self.coordinator, self.metadata, backoff(), "m"
        )
        self.member.subscribe(frozenset({"p"}))
        self.member.on_poll(NOW)

    def respond(self, request: UnsentRequest, now: float = NOW, *, epoch: int = 2, **fields: Any) -> list[Any]:
        return assign(self.member, request, now, epoch=epoch, **fields)

    def join(self) -> None:
        self.respond(only_request(self.member), partitions="01")
        no_request(self.member)
        assert self.member.trace.state is State.STABLE


def reported(request: UnsentRequest) -> tuple[int, str | None, list[str] | None]:
    message = request.message
    return message.member_epoch, message.rack_id, message.subscribed_topic_names


def test_joining_says_everything_and_what_follows_only_what_has_changed() -> None:
    play = Play(rack="r")
    first = only_request(play.member)
    assert reported(first) == (0, "r", ["p"])
    assert (first.message.member_id, first.message.group_id, first.node_id) == ("m", "g", 1)
    play.respond(first, partitions="01")
    assert no_request(play.member) == NOW + 5
    assert play.member.assigned == {P0, P1}
    second = only_request(play.member, NOW + 5)
    assert reported(second) == (2, None, None)
    play.respond(second, NOW + 5)
    play.member.subscribe(frozenset({"p", "q"}))
    assert reported(only_request(play.member, NOW + 5)) == (2, None, ["p", "q"])
    assert play.member.assigned == {P0, P1}


def test_no_member_joins_before_the_first_poll() -> None:
    play = Play()
    play.member = ShareMembership(ShareConsumerOptions(group_id="g"), play.coordinator, play.metadata, backoff(), "m")
    play.member.subscribe(frozenset({"p"}))
    no_request(play.member)


def test_an_empty_first_assignment_is_followed_by_heartbeats_with_growing_pauses() -> None:
    """Brokers assign what is initialised, which takes them a moment."""
    play = Play()
    play.respond(only_request(play.member), partitions="")
    now = NOW
    for pause in (0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0):
        assert no_request(play.member, now) == now + pause
        now += pause
        play.respond(only_request(play.member, now), now)
    play.respond(only_request(play.member, now + 5), now + 5, partitions="1")
    assert no_request(play.member, now + 5) == now + 10
    assert play.member.assigned == {P1}


def test_an_assignment_waits_for_the_name_of_its_topic() -> None:
    play = Play()
    play.respond(only_request(play.member), partitions="0", topic="q")
    no_request(play.member)
    assert play.member.assigned == frozenset()
    on_topics(play.metadata, only_request(play.metadata, NOW + 1), p=2, q=1, now=NOW + 1)
    no_request(play.member, NOW + 1)
    assert play.member.assigned == {TopicPartition("q", 0)}


@pytest.mark.parametrize("code", [25, 110, 69])
def test_a_member_that_is_not_known_joins_again_and_continues_reading(code: int) -> None:
    play = Play()
    play.join()
    play.respond(only_request(play.member, NOW + 5), NOW + 5, code=code)
    assert play.member.trace.state is State.JOINING
    assert play.member.assigned == {P0, P1}
    again = only_request(play.member, NOW + 5)
    assert reported(again) == (0, None, ["p"])
    play.respond(again, NOW + 5, epoch=9)
    assert (play.member.epoch, play.member.trace.state) == (9, State.STABLE)


@pytest.mark.parametrize("code", [69, 81, 42, 30])
def test_a_group_that_refuses_it_is_reported_once_and_not_requested_again(code: int) -> None:
    """69 at joining: the id is that of a group of another kind."""
    play = Play()
    (event,) = play.respond(only_request(play.member), code=code)
    assert isinstance(event, BackgroundError)
    assert play.member.fatal is event.error
    assert play.member.trace.state is State.REFUSED
    no_request(play.member, NOW + 100)


def test_a_topic_without_rights_is_reported_and_the_member_continues() -> None:
    play = Play()
    (event,) = play.respond(only_request(play.member), code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(event, BackgroundError)
    assert no_request(play.member) == pytest.approx(NOW + 0.1)
    only_request(play.member, NOW + 0.1)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_is_none_is_looked_up_again(code: int) -> None:
    play = Play()
    assert play.respond(only_request(play.member), code=code) == []
    no_request(play.member)
    if code != 14:
        no_request(play.member, NOW + 0.2)
        again = only_request(play.coordinator, NOW + 0.2)
        respond(play.coordinator, again, coordinators=[{"key": "g", "node_id": 2, "host": "h", "port": 1}])
    assert reported(only_request(play.member, NOW + 0.2)) == (0, None, ["p"])


def test_a_heartbeat_without_a_response_is_repeated_with_everything() -> None:
    play = Play()
    play.join()
    play.member.on_response(only_request(play.member, NOW + 5), LOST, NOW + 5)
    no_request(play.member, NOW + 5.2)
    respond(
        play.coordinator,
        only_request(play.coordinator, NOW + 5.2),
        coordinators=[{"key": "g", "node_id": 1, "host": "h", "port": 1}],
    )
    assert reported(only_request(play.member, NOW + 5.2)) == (2, None, ["p"])


def test_a_broker_without_share_groups_and_a_wrong_password_are_final() -> None:
    for failure in (BARRED, RequestFailure(FailureKind.UNSUPPORTED_VERSION, "no such API")):
        play = Play()
        (event,) = play.member.on_response(only_request(play.member), failure, NOW)
        assert play.member.fatal is event.error


def test_a_member_that_does_not_poll_leaves_and_joins_with_the_next_poll() -> None:
    play = Play(max_poll_interval_s=3.0)
    play.join()
    leaving = only_request(play.member, NOW + 3)
    assert reported(leaving) == (-1, None, None)
    assert play.member.assigned == frozenset()
    play.respond(leaving, NOW + 3)
    assert play.member.trace.state is State.OUTSIDE
    no_request(play.member, NOW + 100)
    play.member.on_poll(NOW + 100)
    assert reported(only_request(play.member, NOW + 100)) == (0, None, ["p"])


def test_leaving_is_sent_once_despite_errors() -> None:
    play = Play()
    play.join()
    play.member.leave(NOW + 1, "closed")
    assert play.member.is_leaving
    play.member.on_response(only_request(play.member, NOW + 1), LOST, NOW + 1)
    assert not play.member.is_leaving
    no_request(play.member, NOW + 100)


def test_a_response_to_a_request_before_leaving_is_ignored() -> None:
    play = Play()
    old = only_request(play.member)
    play.member.leave(NOW, "closed")
    assert play.respond(old, partitions="01") == []
    assert play.member.assigned == frozenset()
    assert reported(only_request(play.member)) == (-1, None, None)


def test_a_member_without_a_coordinator_leaves_without_a_request() -> None:
    play = Play()
    play.join()
    play.coordinator.mark_unknown(NOW, "a test")
    respond(play.coordinator, only_request(play.coordinator), coordinators=[
        {"key": "g", "node_id": -1, "host": "", "port": -1, "error_code": 30, "error_message": None},
    ])  # fmt: skip
    play.member.leave(NOW, "closed")
    no_request(play.member)
    assert play.member.trace.state is State.OUTSIDE
