"""How views are served."""

from __future__ import annotations

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.views.options import ViewOptions


def test_defaults_are_those_of_the_settings() -> None:
    """One place says what they are worth."""
    options, settings = ViewOptions(), Config().views
    assert options.slots_max == settings.slots_max
    assert options.partitions_max == settings.partitions_max
    assert options.views_max == settings.views_max
    assert options.create_wait_s == settings.create_wait_s
