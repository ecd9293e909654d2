"""Fetch as the proxy asks it of brokers, whoever the records are for: which version, and what its errors say."""

from __future__ import annotations

from proxy.forwarding.offered_versions import EffectiveVersions
from proxy.wire.errors import ErrorCode

FETCH = 1
FETCH_VERSION_MAX = 17
"""v18 adds nothing for a consumer."""
FETCH_VERSION_WITH_IDS = 13
"""Topics are named by id from here on (KIP-516)."""

SMALL_PART = 2
"""A chunk less than 1/SMALL_PART of the answer it came in is copied, so that it does not keep the rest in memory."""

VIEW_IS_OLD = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Answers that say the broker knows better than the cluster view."""


def fetch_version(versions: EffectiveVersions) -> int:
    """The highest version of Fetch that every broker has and that is of use here."""
    return min(FETCH_VERSION_MAX, versions.upstream.get(FETCH, (0, FETCH_VERSION_WITH_IDS))[1])
