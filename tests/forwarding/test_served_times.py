"""Durations of served requests."""

from kafka_share_proxy.forwarding.served_times import ServedTimes


def test_durations_are_kept_by_api() -> None:
    times = ServedTimes()
    for key, took_s in ((78, 0.2), (78, 0.4), (1, 3.0)):
        times.observe(key, took_s)
    assert {key: histogram.total for key, histogram in times.by_api.items()} == {78: 0.2 + 0.4, 1: 3.0}
