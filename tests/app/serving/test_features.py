"""The features put together."""

from __future__ import annotations

from kafka_share_proxy.app.serving import features

from tests.support.noted_events import events_of_all


def test_every_event_of_every_room_has_its_level() -> None:
    """Each event has a deliberate level."""
    noted = events_of_all()
    assert len(noted) > 15
    assert noted - set(features.event_levels()) == set()
