"""Until when a revoke may be held back, for each protocol (consumer/README.md rules 15 and 16)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

MARGIN_SHARE = 0.1
"""Of the rebalance timeout: what is left for the requests that give partitions up."""
MARGIN_MIN_S = 0.5
MARGIN_SHARE_MAX = 0.5
"""A margin is never more than that of the timeout, however short it is."""


class RebalanceProtocol(Enum):
    """What holds a revoke back, and whose patience ends it."""

    EAGER = "eager"
    """JoinGroup is not sent; the whole group waits, until the rebalance timeout throws this member out."""
    COOPERATIVE = "cooperative"
    """The JoinGroup that would follow is not sent; the group is stable, and nobody waits. When another rebalance
    begins the member joins it at once, and still names what it holds back among what it owns."""
    CONSUMER = "consumer"
    """The partitions are still reported as owned (KIP-848); the rebalance timeout fences this member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayLimits:
    """What bounds a delay."""

    max_revoke_delay_s: float = math.inf
    """How long the application may hold back at most; a setting of the consumer."""
    rebalance_timeout_s: float = 300.0
    """How long the broker waits: max.poll.interval.ms."""
    margin_s: float | None = None
    """How long before the broker's patience ends partitions are given up; None means the default."""


def margin(limits: DelayLimits) -> float:
    """Seconds that are left for giving up: a tenth of the rebalance timeout, 0.5 s at least, half of it at most."""
    wanted = limits.margin_s
    if wanted is None:
        wanted = max(MARGIN_MIN_S, MARGIN_SHARE * limits.rebalance_timeout_s)
    return min(wanted, MARGIN_SHARE_MAX * limits.rebalance_timeout_s)


def revoke_deadline(protocol: RebalanceProtocol, learned_at: float, limits: DelayLimits) -> float:
    """When partitions to be revoked are given up as lost, if the application has not let go of them.

    Args:
        protocol: of the membership.
        learned_at: when the response came that asked for them: eager, the heartbeat's; cooperative, SyncGroup's;
            KIP-848, the heartbeat's with the smaller assignment.
        limits: settings.

    Returns: seconds, monotonic; infinity where only the application's own limit counts and it has none.
    """
    if protocol is RebalanceProtocol.COOPERATIVE:
        return learned_at + limits.max_revoke_delay_s
    return learned_at + max(0.0, min(limits.max_revoke_delay_s, limits.rebalance_timeout_s) - margin(limits))
