"""Until when a revoke may be held back."""

from __future__ import annotations

import math

import pytest
from kafka_share_proxy.consumer.groups.deadlines import DelayLimits, RebalanceProtocol, margin, revoke_deadline

EAGER, COOPERATIVE, CONSUMER = RebalanceProtocol


@pytest.mark.parametrize(("timeout", "set_to", "expected"), [
    (300.0, None, 30.0),
    (6.0, None, 0.6),
    (4.0, None, 0.5),
    (0.6, None, 0.3),
    (300.0, 2.0, 2.0),
    (300.0, 0.0, 0.0),
    (1.0, 5.0, 0.5),
])  # fmt: skip
def test_the_margin_is_a_tenth_at_least_half_a_second_at_most_half_the_timeout(
    timeout: float, set_to: float | None, expected: float
) -> None:
    assert margin(DelayLimits(rebalance_timeout_s=timeout, margin_s=set_to)) == pytest.approx(expected)


@pytest.mark.parametrize("protocol", [EAGER, CONSUMER])
@pytest.mark.parametrize(("delay", "timeout", "expected"), [
    (math.inf, 60.0, 54.0),
    (20.0, 60.0, 20.0),
    (53.9, 60.0, 53.9),
    (57.0, 60.0, 54.0),
    (90.0, 60.0, 54.0),
    (1.0, 60.0, 1.0),
    (20.0, 300.0, 20.0),
    (30.0, 300.0, 30.0),
    (0.2, 0.6, 0.2),
    (0.5, 0.6, 0.3),
])  # fmt: skip
def test_the_rebalance_timeout_bounds_the_deadline_of_an_eager_and_a_kip_848_member(
    protocol: RebalanceProtocol, delay: float, timeout: float, expected: float
) -> None:
    """learned + min(max_revoke_delay, rebalance_timeout - margin): the margin never shortens the own limit."""
    limits = DelayLimits(max_revoke_delay_s=delay, rebalance_timeout_s=timeout)
    assert revoke_deadline(protocol, 1000.0, limits) == pytest.approx(1000.0 + expected)


def test_in_a_cooperative_group_only_the_own_limit_counts() -> None:
    limits = DelayLimits(max_revoke_delay_s=900.0, rebalance_timeout_s=60.0)
    assert revoke_deadline(COOPERATIVE, 1000.0, limits) == 1900.0
    assert revoke_deadline(COOPERATIVE, 1000.0, DelayLimits()) == math.inf
