"""Log events of views, with their levels."""

from __future__ import annotations

from kafka_share_proxy.loop.log_levels import DEBUG, ERROR, INFO, WARNING, EventLevels

EVENTS: EventLevels = {
    "key-filter-refused": DEBUG,
    "view-batch-unreadable": WARNING,
    "view-created": INFO,
    "view-grown": INFO,
    "view-replaced": WARNING,
    "view-refused": WARNING,
    "view-not-grown": ERROR,
    "view-produce-refused": WARNING,
    "view-binding-not-stored": WARNING,
    "view-topic-created": INFO,
    "view-state-off": WARNING,
    "view-state-on": INFO,
    "view-state-not-read": WARNING,
    "view-state-read": INFO,
    "view-state-ignored": WARNING,
    "views-not-watched": WARNING,
    "views-watched": INFO,
}
"""Level of each event."""
