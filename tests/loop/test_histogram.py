"""Values counted by ranges."""

from __future__ import annotations

from kafka_share_proxy.loop.histogram import SECONDS, Histogram, seconds_histogram


def test_values_up_to_each_bound_are_counted() -> None:
    """A bound is part of its range."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        histogram.observe(value)
    assert list(histogram.cumulative()) == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.total == 10.0


def test_value_may_count_several_times() -> None:
    histogram = seconds_histogram()
    histogram.observe(0.003, times=4)
    assert dict(histogram.cumulative())["0.0025"] == 0
    assert dict(histogram.cumulative())["0.005"] == 4
    assert len(list(histogram.cumulative())) == len(SECONDS) + 1
