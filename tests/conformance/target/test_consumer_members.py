"""Reconciliation of a member with its target."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.consumer_members import (
    UNOWNED,
    ConsumerMember,
    MemberTarget,
    Reconciliation,
    reconcile,
)
from kafka_share_proxy.wire.values import TopicIdPartition

A = b"a" * 16
ZERO, ONE = TopicIdPartition(A, 0), TopicIdPartition(A, 1)


def test_a_member_revokes_before_it_moves_to_the_next_epoch() -> None:
    member = ConsumerMember("m", epoch=1, assigned={ZERO: 1, ONE: 1})
    target = MemberTarget(2, {ZERO}, {A})
    reconcile(member, target, None, lambda _: UNOWNED, is_changed=False)
    assert (member.state, member.epoch, member.revoking) == (Reconciliation.UNREVOKED, 1, {ONE: 1})
    reconcile(member, target, {ZERO, ONE}, lambda _: UNOWNED, is_changed=False)
    assert member.epoch == 1
    reconcile(member, target, {ZERO}, lambda _: UNOWNED, is_changed=False)
    assert (member.state, member.epoch, member.previous_epoch) == (Reconciliation.STABLE, 2, 1)


def test_a_partition_that_another_member_has_is_awaited() -> None:
    member = ConsumerMember("m", epoch=1)
    target = MemberTarget(2, {ZERO, ONE}, {A})
    reconcile(member, target, None, lambda each: 1 if each == ONE else UNOWNED, is_changed=False)
    assert (member.state, member.assigned) == (Reconciliation.UNRELEASED, {ZERO: 2})
    reconcile(member, target, None, lambda _: UNOWNED, is_changed=False)
    assert (member.state, member.assigned) == (Reconciliation.STABLE, {ZERO: 2, ONE: 2})


def test_unsubscribed_topics_are_dropped_immediately() -> None:
    member = ConsumerMember("m", epoch=2, assigned={ZERO: 2})
    reconcile(member, MemberTarget(2, {ZERO}, set()), None, lambda _: UNOWNED, is_changed=True)
    assert (member.state, member.assigned) == (Reconciliation.UNREVOKED, {})
