"""Deadlines for delaying a revocation, by rebalance protocol (consumer/README.md rules 15 and 16)."""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

MARGIN_SHARE = 0.1
"""Fraction of the rebalance timeout for the requests that give partitions up."""
MARGIN_MIN_S = 0.5
MARGIN_SHARE_MAX = 0.5
"""Maximum margin as a fraction of the rebalance timeout."""


class RebalanceProtocol(Enum):
    """Rebalance protocol: which request a delayed revocation withholds, and which timeout ends the delay."""

    EAGER = "eager"
    """JoinGroup is withheld, until this member is removed after the rebalance timeout."""
    COOPERATIVE = "cooperative"
    """The follow-up JoinGroup is withheld, and no member waits for it. Another rebalance is joined immediately."""
    CONSUMER = "consumer"
    """The rebalance timeout fences this member (KIP-848)."""


class DelayLimits(NamedTuple):
    """Limits of a revocation delay, in seconds."""

    max_revoke_delay_s: float = math.inf
    """Maximum delay by the application; a consumer setting."""
    rebalance_timeout_s: float = 300.0
    """max.poll.interval.ms."""
    margin_s: float | None = None
    """Time before the broker's timeout at which partitions are given up."""


def margin(limits: DelayLimits) -> float:
    """Return the seconds before the rebalance timeout at which partitions are given up (consumer/README.md rule 16)."""
    margin_s = limits.margin_s
    if margin_s is None:
        margin_s = max(MARGIN_MIN_S, MARGIN_SHARE * limits.rebalance_timeout_s)
    return min(margin_s, MARGIN_SHARE_MAX * limits.rebalance_timeout_s)


def revoke_deadline(protocol: RebalanceProtocol, learned_at: float, limits: DelayLimits) -> float:
    """Return when partitions are given up as lost; monotonic seconds, infinite without a limit.

    `learned_at`: when the response that revokes them was received.
    """
    if protocol is RebalanceProtocol.COOPERATIVE:
        return learned_at + limits.max_revoke_delay_s
    return learned_at + min(limits.max_revoke_delay_s, limits.rebalance_timeout_s - margin(limits))
