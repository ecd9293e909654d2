"""Durations of the requests that are served here, by API."""

from __future__ import annotations

from collections import defaultdict

from kafka_share_proxy.loop.histogram import Histogram, seconds_histogram


class ServedTimes:
    """Seconds from the arrival of a request that is served here until its response."""

    def __init__(self) -> None:
        self.by_api = defaultdict[int, Histogram](seconds_histogram)
        """Durations by API key."""

    def observe(self, key: int, took_s: float) -> None:
        """Count a request of this API."""
        self.by_api[key].observe(took_s)
