"""A member of a classic group alone: its requests, and the effect of each response."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.assignors.range_assignor import RangeAssignor
from kafka_share_proxy.consumer.assignors.sticky_assignor import CooperativeStickyAssignor
from kafka_share_proxy.consumer.events import AssignPartitions, BackgroundError, PartitionsLost, RevokePartitions
from kafka_share_proxy.consumer.groups.classic_membership import ClassicMembership
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.groups.group_protocol import GroupAssignment, read_subscription, write_assignment
from kafka_share_proxy.consumer.groups.rebalance_flow import RebalanceFlow
from kafka_share_proxy.consumer.groups.states import RebalanceState, rebalance_trace
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import NOTHING
from kafka_share_proxy.consumer.requests import Lane, UnsentRequest
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.managers import (
    BARRED,
    LOST,
    NOW,
    backoff,
    found_coordinator,
    known_topics,
    no_request,
    only_request,
    respond,
)

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
State = RebalanceState


class Play:
    """A member, its coordinator, and its application."""

    def __init__(self, cooperative: bool = False, **options: Any) -> None:
        self.options = ConsumerOptions(group_id="g", **options)
        self.flow = RebalanceFlow(rebalance_trace(), self.options.delay_limits)
        self.coordinator = found_coordinator()
        self.settled = True
        self.member = ClassicMembership(
            self.options,
            self.flow,
            self.coordinator,
            [CooperativeStickyAssignor() if cooperative else RangeAssignor()],
            known_topics(p=2),
            backoff(),
            lambda _: self.settled,
        )
        self.member.subscribe(frozenset({"p"}))
        self.member.on_poll(NOW)

    def join(self, now: float = NOW, *, owned: str = "01", generation: int = 1) -> None:
        """Join, be led by another, and be assigned."""
        self.joined(only_request(self.member, now), now, generation)
        (event,) = self.synced(only_request(self.member, now), now, owned)
        assert isinstance(event, AssignPartitions)
        self.member.acknowledge_assigned(event.rebalance_id, now)
        assert self.flow.state is State.STABLE

    def joined(self, request: UnsentRequest, now: float, generation: int = 1) -> None:
        assert request.api == "JoinGroup"
        name = request.message.protocols[0].name
        fields = {"generation_id": generation, "protocol_name": name, "leader": "other", "member_id": "m"}
        assert respond(self.member, request, now, **fields) == []

    def synced(self, request: UnsentRequest, now: float, owned: str = "01") -> list[Any]:
        assert request.api == "SyncGroup"
        partitions = tuple(TopicPartition("p", int(each)) for each in owned)
        return respond(self.member, request, now, assignment=write_assignment(GroupAssignment(partitions=partitions)))

    def events(self, now: float = NOW) -> list[Any]:
        return list(self.member.poll(now).events)


def test_a_new_member_takes_the_id_it_is_given_and_joins_immediately() -> None:
    play = Play()
    request = only_request(play.member)
    assert (request.message.member_id, request.lane) == ("", Lane.JOINING)
    assert request.timeout_s == 305.0
    assert respond(play.member, request, error_code=79, member_id="m-1", protocol_name="") == []
    assert only_request(play.member).message.member_id == "m-1"


def test_the_leader_assigns_and_the_others_send_nothing() -> None:
    play = Play()
    request = only_request(play.member)
    fields = {"generation_id": 3, "protocol_name": "range", "leader": "m", "member_id": "m"}
    members = [{"member_id": "m", "metadata": request.message.protocols[0].metadata}]
    respond(play.member, request, members=members, **fields)
    sync = only_request(play.member)
    assert [each.member_id for each in sync.message.assignments] == ["m"]
    assert (sync.message.generation_id, sync.message.protocol_name) == (3, "range")
    play = Play()
    play.joined(only_request(play.member), NOW)
    assert only_request(play.member).message.assignments == []


def test_heartbeats_go_out_at_their_interval_one_at_a_time() -> None:
    play = Play()
    play.join()
    assert no_request(play.member) == NOW + 3.0
    beat = only_request(play.member, NOW + 3.0)
    assert (beat.api, beat.lane) == ("Heartbeat", Lane.COORDINATOR)
    no_request(play.member, NOW + 4.0)
    respond(play.member, beat, NOW + 4.0)
    assert no_request(play.member, NOW + 4.0) == NOW + 6.0, "counted from when it was sent"


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    play = Play()
    play.join()
    respond(play.member, only_request(play.member, NOW + 3.0), NOW + 3.0, error_code=27)
    (event,) = play.events(NOW + 3.0)
    assert isinstance(event, RevokePartitions)
    assert event.partitions == {P0, P1}
    respond(play.member, only_request(play.member, NOW + 6.0), NOW + 6.0, error_code=27)
    play.settled = False
    play.member.acknowledge_revoked(frozenset({P0, P1}))
    no_request(play.member, NOW + 7.0)
    assert (play.flow.state, play.member.holds) == (State.PARTITION_REVOKED, {P0, P1}), "commits are under way"
    play.settled = True
    request = only_request(play.member, NOW + 7.1)
    assert (request.api, play.flow.state, play.member.holds) == ("JoinGroup", State.PREPARING_REBALANCE, NOTHING)
    assert request.message.member_id == "m"


def test_commits_that_do_not_get_through_hold_the_rebalance_up_for_one_request_timeout() -> None:
    play = Play(request_timeout_s=1.0, max_poll_interval_s=60.0)
    play.join()
    respond(play.member, only_request(play.member, NOW + 3.0), NOW + 3.0, error_code=27)
    play.events(NOW + 3.0)
    play.settled = False
    play.member.acknowledge_revoked(frozenset({P0, P1}))
    assert no_request(play.member, NOW + 3.0) == NOW + 4.0
    assert only_request(play.member, NOW + 4.0).api == "JoinGroup"


def test_a_cooperative_member_joins_with_what_it_has_and_reads_on() -> None:
    play = Play(cooperative=True)
    play.join()
    respond(play.member, only_request(play.member, NOW + 3.0), NOW + 3.0, error_code=27)
    request = only_request(play.member, NOW + 3.0)
    assert (request.api, play.flow.state) == ("JoinGroup", State.STABLE)
    subscription = read_subscription("m", bytes(request.message.protocols[0].metadata))
    assert (set(subscription.owned), subscription.generation) == ({P0, P1}, 1)


def test_a_cooperative_member_that_delays_joins_another_rebalance_and_still_owns_the_partition() -> None:
    play = Play(cooperative=True)
    play.join()
    respond(play.member, only_request(play.member, NOW + 3.0), NOW + 3.0, error_code=27)
    play.joined(only_request(play.member, NOW + 3.0), NOW + 3.0, 2)
    (event,) = play.synced(only_request(play.member, NOW + 3.0), NOW + 3.0, "0")
    assert event.partitions == {P1}
    respond(play.member, only_request(play.member, NOW + 6.0), NOW + 6.0, error_code=27)
    request = only_request(play.member, NOW + 6.0)
    subscription = read_subscription("m", bytes(request.message.protocols[0].metadata))
    assert (set(subscription.owned), subscription.generation) == ({P0, P1}, 2)
    play.joined(request, NOW + 6.0, 3)
    (again,) = play.synced(only_request(play.member, NOW + 6.0), NOW + 6.0, "0")
    assert (again.partitions, play.flow.state) == ({P1}, State.REVOKING_PARTITION)
    play.member.acknowledge_revoked(frozenset({P1}))
    (assigned,) = play.events(NOW + 7.0)
    assert assigned.assigned == {P0}
    play.member.acknowledge_assigned(assigned.rebalance_id, NOW + 7.0)
    assert only_request(play.member, NOW + 7.0).api == "JoinGroup", "so that others get what was released"


def test_a_partition_that_is_released_during_a_join_is_given_up_after_the_sync() -> None:
    """The response may give it back: it is then read on, and nothing completes."""
    for given_back in (True, False):
        play = Play(cooperative=True)
        play.join()
        respond(play.member, only_request(play.member, NOW + 3.0), NOW + 3.0, error_code=27)
        play.joined(only_request(play.member, NOW + 3.0), NOW + 3.0, 2)
        play.synced(only_request(play.member, NOW + 3.0), NOW + 3.0, "0")
        respond(play.member, only_request(play.member, NOW + 6.0), NOW + 6.0, error_code=27)
        request = only_request(play.member, NOW + 6.0)
        play.member.acknowledge_revoked(frozenset({P1}))
        no_request(play.member, NOW + 6.1)
        assert play.flow.state is State.REVOKING_PARTITION
        play.joined(request, NOW + 6.2, 3)
        play.synced(only_request(play.member, NOW + 6.2), NOW + 6.2, "01" if given_back else "0")
        (assigned,) = play.events(NOW + 6.3)
        assert assigned.assigned == ({P0, P1} if given_back else {P0})
        assert play.flow.released == NOTHING
        play.member.acknowledge_assigned(assigned.rebalance_id, NOW + 6.3)
        expected = play.member.poll(NOW + 6.3).requests
        assert [each.api for each in expected] == ([] if given_back else ["JoinGroup"])


def test_of_several_delayed_partitions_those_that_are_released_go_to_others_first() -> None:
    play = Play(cooperative=True)
    play.join()
    respond(play.member, only_request(play.member, NOW + 3.0), NOW + 3.0, error_code=27)
    play.joined(only_request(play.member, NOW + 3.0), NOW + 3.0, 2)
    play.synced(only_request(play.member, NOW + 3.0), NOW + 3.0, "")
    play.member.acknowledge_revoked(frozenset({P0}))
    request = only_request(play.member, NOW + 4.0)
    subscription = read_subscription("m", bytes(request.message.protocols[0].metadata))
    assert (subscription.owned, play.flow.state) == ((P1,), State.REVOKING_PARTITION)


@pytest.mark.parametrize(("code", "keeps_id"), [(25, False), (22, True)])
@pytest.mark.parametrize("api", ["Heartbeat", "JoinGroup", "SyncGroup"])
def test_a_member_that_the_group_has_forgotten_has_lost_everything_and_joins_again(
    api: str, code: int, keeps_id: bool
) -> None:
    play = Play(cooperative=True)
    play.join()
    request = only_request(play.member, NOW + 3.0)
    if api != "Heartbeat":
        respond(play.member, request, NOW + 3.0, error_code=27)
        request = only_request(play.member, NOW + 3.0)
    if api == "SyncGroup":
        play.joined(request, NOW + 3.0, 2)
        request = only_request(play.member, NOW + 3.0)
    (event,) = respond(play.member, request, NOW + 3.0, error_code=code)
    assert isinstance(event, PartitionsLost)
    assert event.partitions == {P0, P1}
    assert only_request(play.member, NOW + 3.0).message.member_id == ("m" if keeps_id else "")


@pytest.mark.parametrize("code", [24, 23, 26, 30, 35, 81, 82])
def test_a_permanent_refusal_of_the_group_is_reported_once_and_not_retried(code: int) -> None:
    play = Play(group_instance_id="i")
    (event,) = respond(play.member, only_request(play.member), error_code=code, protocol_name="")
    assert isinstance(event, BackgroundError)
    assert ErrorCode(code).name in str(event.error)
    assert play.member.fatal is event.error
    no_request(play.member, NOW + 100)
    assert play.flow.state is State.UNJOINED


@pytest.mark.parametrize("trouble", [LOST, 14, 15, 16, 27])
def test_a_join_that_fails_for_now_is_repeated(trouble: Any) -> None:
    play = Play()
    request = only_request(play.member)
    if trouble is LOST:
        assert play.member.on_response(request, LOST, NOW) == []
    else:
        assert respond(play.member, request, error_code=trouble, protocol_name="") == []
    no_request(play.member)
    if play.coordinator.node_id is None:
        respond(
            play.coordinator, only_request(play.coordinator), coordinators=[{"key": "g", "node_id": 2, "host": "h"}]
        )
    assert only_request(play.member, NOW + 0.1).api == "JoinGroup"


def test_a_sync_without_a_response_begins_anew_with_a_join() -> None:
    play = Play()
    play.joined(only_request(play.member), NOW)
    assert play.member.on_response(only_request(play.member), LOST, NOW) == []
    assert play.flow.state is State.PREPARING_REBALANCE


def test_without_a_heartbeat_response_the_session_expires_here_too() -> None:
    play = Play(session_timeout_s=10.0)
    play.join()
    play.member.on_response(only_request(play.member, NOW + 3.0), LOST, NOW + 3.0)
    assert play.events(NOW + 9.9) == []
    (event,) = play.events(NOW + 10.0)
    assert isinstance(event, PartitionsLost)
    assert play.coordinator.node_id is None
    assert play.events(NOW + 30.0) == [], "once"


@pytest.mark.parametrize("code", [22, 25])
def test_a_heartbeat_that_a_join_has_overtaken_is_no_loss(code: int) -> None:
    """They go by two connections: the response to the old generation may come when the new one is known."""
    for responded_first in (True, False):
        play = Play(cooperative=True)
        play.join()
        beat = only_request(play.member, NOW + 3.0)
        play.member.subscribe(frozenset({"p", "q"}))
        join = only_request(play.member, NOW + 3.0)
        if responded_first:
            play.joined(join, NOW + 4.0, 2)
        assert respond(play.member, beat, NOW + 4.0, error_code=code) == []
        assert play.member.identity.member_id == "m"


def test_while_it_waits_for_others_to_join_the_session_does_not_count() -> None:
    play = Play(cooperative=True, session_timeout_s=10.0)
    play.join()
    respond(play.member, only_request(play.member, NOW + 3.0), NOW + 3.0, error_code=27)
    request = only_request(play.member, NOW + 3.0)
    assert play.events(NOW + 200.0) == []
    play.member.on_response(request, LOST, NOW + 200.0)
    assert play.events(NOW + 201.0) == []
    assert len(play.events(NOW + 211.0)) == 1


def test_leaving_says_so_unless_the_member_is_static() -> None:
    for instance_id, reported in ((None, True), ("i", False)):
        play = Play(group_instance_id=instance_id)
        play.join()
        play.member.leave(NOW, "closed")
        assert play.member.is_leaving is reported
        if reported:
            request = only_request(play.member)
            assert (request.api, request.message.members[0].member_id) == ("LeaveGroup", "m")
            respond(play.member, request)
        assert not play.member.is_leaving
        no_request(play.member, NOW + 1000)
        assert (play.flow.state, play.member.holds) == (State.UNJOINED, NOTHING)


def test_responses_to_a_member_that_has_left_are_ignored() -> None:
    play = Play()
    request = only_request(play.member)
    play.member.leave(NOW, "closed")
    play.joined(request, NOW)
    assert play.member.identity == MemberIdentity()
    no_request(play.member)


def test_another_subscription_joins_again() -> None:
    play = Play(cooperative=True)
    play.join()
    play.member.subscribe(frozenset({"p"}))
    no_request(play.member, NOW + 1.0)
    play.member.subscribe(frozenset({"q"}))
    request = only_request(play.member, NOW + 1.0)
    assert read_subscription("m", bytes(request.message.protocols[0].metadata)).topics == ("q",)
    assert request.message.reason == "the subscription has changed"


def test_a_malformed_subscription_of_another_member_is_reported_and_tried_again() -> None:
    play = Play()
    fields = {"generation_id": 1, "protocol_name": "range", "leader": "m", "member_id": "m"}
    members = [{"member_id": "broken", "metadata": b"\0"}]
    (event,) = respond(play.member, only_request(play.member), members=members, **fields)
    assert "member broken of the group" in str(event.error)
    no_request(play.member)
    assert only_request(play.member, NOW + 0.1).api == "JoinGroup"


def test_a_malformed_assignment_is_reported_and_tried_again() -> None:
    play = Play()
    play.joined(only_request(play.member), NOW)
    (event,) = respond(play.member, only_request(play.member), assignment=b"\0\0\0")
    assert "leader of the group" in str(event.error)
    assert only_request(play.member, NOW + 0.1).api == "JoinGroup"


def test_a_refusal_of_another_request_counts_only_for_who_the_member_is_now() -> None:
    play = Play()
    play.join()
    assert play.member.fenced(MemberIdentity("m", 0), ErrorCode.ILLEGAL_GENERATION, NOW) == []
    assert play.member.fenced(play.member.identity, ErrorCode.STALE_MEMBER_EPOCH, NOW) == []
    (event,) = play.member.fenced(play.member.identity, ErrorCode.UNKNOWN_MEMBER_ID, NOW)
    assert isinstance(event, PartitionsLost)


def test_authentication_that_fails_is_final() -> None:
    play = Play()
    (event,) = play.member.on_response(only_request(play.member), BARRED, NOW)
    assert str(event.error) == "JoinGroup: no such user"
    assert play.member.fatal
