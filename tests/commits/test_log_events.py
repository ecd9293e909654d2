"""Log events of individual commits."""

from __future__ import annotations

from kafka_share_proxy.commits.log_events import EVENTS

from tests.support.noted_events import events_of_room


def test_events_of_the_room_have_a_level_there() -> None:
    """Events of internal errors belong to the platform."""
    noted = events_of_room("commits") - {"callback-failed", "handler-failed"}
    assert noted
    assert noted <= EVENTS.keys()
