"""Owned, released and assigned partitions of a member."""

from __future__ import annotations

import math

import pytest
from kafka_share_proxy.consumer.events import AssignPartitions, PartitionsLost, RevokeCancelled, RevokePartitions
from kafka_share_proxy.consumer.groups.deadlines import DelayLimits, RebalanceProtocol
from kafka_share_proxy.consumer.groups.rebalance_flow import RebalanceFlow
from kafka_share_proxy.consumer.groups.states import RebalanceState, rebalance_trace
from kafka_share_proxy.consumer.partitions import NOTHING
from kafka_share_proxy.wire.values import TopicPartition

A, B, C = (TopicPartition("p", number) for number in range(3))
EAGER, COOPERATIVE, _ = RebalanceProtocol
LIMITS = DelayLimits(max_revoke_delay_s=100.0, rebalance_timeout_s=60.0)


def stable(*owned: TopicPartition) -> RebalanceFlow:
    flow = RebalanceFlow(rebalance_trace(), LIMITS)
    flow.trace.to(RebalanceState.PREPARING_REBALANCE, 0.0, "join")
    flow.trace.to(RebalanceState.COMPLETING_REBALANCE, 0.0, "joined")
    flow.target = frozenset(owned)
    (event,) = flow.begin_assignment(0.0, "synced")
    assert event == AssignPartitions(rebalance_id=1, assigned=frozenset(owned), added=frozenset(owned))
    assert flow.acknowledge_assigned(1, 0.0)
    return flow


def test_a_revocation_waits_for_the_application_then_gives_up() -> None:
    flow = stable(A, B)
    assert flow.begin_revocation(frozenset({B}), COOPERATIVE, 10.0, "assigned less") == [
        RevokePartitions(rebalance_id=2, partitions=frozenset({B}), deadline=110.0)
    ]
    assert not flow.check_revoked(10.0)
    assert flow.release({A, B, C}) == {B}, "the others were not asked for"
    assert flow.owned == {A, B}
    assert flow.check_revoked(11.0)
    assert flow.give_up_released() == {B}
    assert flow.owned == {A}


def test_a_second_rebalance_keeps_the_deadline_and_cancels_what_it_gives_back() -> None:
    flow = stable(A, B, C)
    flow.begin_revocation(frozenset({A, B}), COOPERATIVE, 10.0, "less")
    assert flow.begin_revocation(frozenset({B, C}), COOPERATIVE, 50.0, "other") == [
        RevokeCancelled(rebalance_id=3, partitions=frozenset({A})),
        RevokePartitions(rebalance_id=3, partitions=frozenset({B, C}), deadline=110.0),
    ]
    assert flow.expire(110.0) == [
        PartitionsLost(partitions=frozenset({B}), reason="not released before the deadline of the revoke")
    ]
    assert flow.deadline == 150.0
    assert flow.revoking == {C}
    assert flow.owned == {A, C}, "what is lost may not be committed, also before the others are released"


def test_released_and_given_back_is_owned_again() -> None:
    flow = stable(A, B)
    flow.begin_revocation(frozenset({A, B}), COOPERATIVE, 1.0, "less")
    flow.release({A})
    flow.begin_revocation(frozenset({B}), COOPERATIVE, 2.0, "other")
    flow.release({B})
    assert flow.check_revoked(3.0)
    assert flow.give_up_released() == {B}
    assert flow.owned == {A}


def test_eager_deadlines_come_from_the_rebalance_timeout() -> None:
    flow = stable(A)
    flow.begin_revocation(frozenset({A}), EAGER, 10.0, "rebalance")
    assert flow.deadline == pytest.approx(64.0)
    assert flow.expire(63.9) == []
    assert len(flow.expire(64.0)) == 1
    assert flow.deadline == math.inf
    assert flow.check_revoked(64.0)


def test_an_acknowledgement_of_an_older_rebalance_means_nothing() -> None:
    flow = stable(A)
    flow.target = frozenset({A, B})
    (event,) = flow.begin_assignment(1.0, "more")
    assert isinstance(event, AssignPartitions)
    assert event.added == {B}
    assert not flow.acknowledge_assigned(1, 2.0)
    assert flow.acknowledge_assigned(event.rebalance_id, 2.0)


def test_a_member_out_of_the_group_reports_its_loss_once() -> None:
    flow = stable(A, B)
    flow.begin_revocation(frozenset({B}), COOPERATIVE, 1.0, "less")
    assert flow.lose_everything(2.0, "fenced") == [PartitionsLost(partitions=frozenset({A, B}), reason="fenced")]
    assert flow.lose_everything(2.0, "fenced") == []
    assert (flow.owned, flow.state) == (NOTHING, RebalanceState.UNJOINED)
