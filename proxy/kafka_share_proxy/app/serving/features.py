"""The features of this proxy."""

from __future__ import annotations

from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.commits import log_events as commit_events
from kafka_share_proxy.commits.checks import CommitCheck
from kafka_share_proxy.feature.checks import FeatureCheck
from kafka_share_proxy.loop.log_levels import EventLevels
from kafka_share_proxy.sharegroups import log_events as share_group_events
from kafka_share_proxy.sharegroups.checks import ShareGroupCheck
from kafka_share_proxy.views import log_events as view_events
from kafka_share_proxy.views.checks import ViewCheck

EVENT_LEVELS: EventLevels = {
    **observe.EVENT_LEVELS,
    **share_group_events.EVENTS,
    **commit_events.EVENTS,
    **view_events.EVENTS,
}
"""Level of each event of the platform and of every feature."""


def checks(config: Config) -> tuple[FeatureCheck, ...]:
    """Return the parts of `check` about each feature, in the order in which they are reported."""
    return ShareGroupCheck(config.share_groups), CommitCheck(config.commits), ViewCheck(config.views)
