"""Log events of views."""

from __future__ import annotations

from kafka_share_proxy.views.log_events import EVENTS

from tests.support.noted_events import events_of_room


def test_events_of_the_room_have_a_level_there() -> None:
    """Events of internal errors belong to the platform."""
    noted = events_of_room("views") - {"callback-failed", "handler-failed"}
    assert noted
    assert noted <= EVENTS.keys()
