"""Durations of the requests that are served here, by API."""

from __future__ import annotations

from kafka_share_proxy.loop.histogram import Histogram, seconds_histogram


class ServedTimes:
    """Seconds from the arrival of a request that is served here until its response."""

    def __init__(self) -> None:
        self.by_api: dict[int, Histogram] = {}
        """Durations by API key."""

    def observe(self, key: int, took_s: float) -> None:
        """Count a request of this API."""
        histogram = self.by_api.get(key)
        if histogram is None:
            histogram = self.by_api[key] = seconds_histogram()
        histogram.observe(took_s)
