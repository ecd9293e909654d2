"""Log events of individual commits, with their levels."""

from __future__ import annotations

from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS
from kafka_share_proxy.loop.log_levels import ERROR, INFO, WARNING, EventLevels

EVENTS: EventLevels = {
    **INDIVIDUAL_COMMITS.levels,
    "commit-refused": WARNING,
    "metadata-limit-lowered": WARNING,
    "ranges-not-shown": WARNING,
    "ranges-not-ended": WARNING,
    "ranges-not-checked": WARNING,
    "ranges-of-group-ended": INFO,
    "commit-groups-too-many": WARNING,
    "commit-groups-not-known": ERROR,
    "commit-groups-known": INFO,
}
"""Level of each event."""
