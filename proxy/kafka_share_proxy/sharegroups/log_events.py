"""Log events of share groups, with their levels."""

from __future__ import annotations

from kafka_share_proxy.loop.log_levels import INFO, WARNING, EventLevels
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE

EVENTS: EventLevels = {
    **SHARE_STATE.levels,
    "share-groups-undecided": WARNING,
    "share-groups-decided": INFO,
    "share-groups-served": INFO,
    "share-groups-belong-here": INFO,
    "share-groups-need-restart": WARNING,
    "share-groups-of-brokers-noticed": INFO,
    "commit-refused": WARNING,
    "share-fetch-at-bootstrap": WARNING,
    "share-group-deleted": INFO,
    "share-group-move": INFO,
    "share-group-moved": INFO,
    "share-group-stays": WARNING,
    "share-group-id-taken": WARNING,
    "share-group-not-served": WARNING,
    "share-group-offsets-altered": INFO,
    "share-group-offsets-deleted": INFO,
    "share-group-settings-changed": INFO,
    "share-locks-released": INFO,
    "share-order-keys-unreadable": WARNING,
    "share-renewal-refused": WARNING,
    "share-topics-deleted": INFO,
    "share-topics-not-checked": WARNING,
    "dead-letters-not-written": WARNING,
    "dead-letters-written-again": INFO,
    "dead-letter-not-copied": WARNING,
    "log-end-not-known": WARNING,
    "share-state-refused": WARNING,
}
"""Level of each event."""
