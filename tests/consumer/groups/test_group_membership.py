"""Common base of members of both group protocols."""

from __future__ import annotations

from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.groups.group_membership import GroupMembership

from tests.consumer.groups.test_rebalance_flow import A, B, stable
from tests.consumer.managers import NOW, OPTIONS, backoff, found_coordinator


def test_the_poll_interval_begins_with_the_first_poll() -> None:
    member = GroupMembership(OPTIONS, stable(), found_coordinator(), backoff(), lambda _: True)
    assert not member.is_polled
    member.on_poll(NOW)
    assert member.is_polled
    assert member._poll_deadline == NOW + OPTIONS.max_poll_interval_s
    assert member.fatal is None


def test_partitions_that_the_application_acknowledges_are_released() -> None:
    flow = stable(A, B)
    member = GroupMembership(OPTIONS, flow, found_coordinator(), backoff(), lambda _: True)
    flow.begin_revocation(frozenset({B}), RebalanceProtocol.COOPERATIVE, NOW, "assigned less")
    assert not flow.check_revoked(NOW)
    member.acknowledge_revoked(frozenset({A, B}))
    assert flow.check_revoked(NOW)
    assert flow.give_up_released() == {B}
