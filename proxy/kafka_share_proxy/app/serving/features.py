"""The features of this proxy."""

from __future__ import annotations

from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.commits import log_events as commit_events
from kafka_share_proxy.loop.log_levels import EventLevels
from kafka_share_proxy.sharegroups import log_events as share_group_events
from kafka_share_proxy.views import log_events as view_events

EVENT_LEVELS: EventLevels = {
    **observe.EVENT_LEVELS,
    **share_group_events.EVENTS,
    **commit_events.EVENTS,
    **view_events.EVENTS,
}
"""Level of each event of the platform and of every feature."""
