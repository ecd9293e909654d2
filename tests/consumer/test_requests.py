"""Common parts of requests: retry backoff, and retriable failures."""

from __future__ import annotations

import math

import pytest
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure, RetryBackoff


def test_a_backoff_doubles_up_to_its_limit_and_ends_with_success() -> None:
    backoff = RetryBackoff(0.1, 1.0, lambda: 0.0)
    assert backoff.is_ready(-1e9)
    pauses = []
    for _ in range(6):
        backoff.failed(100.0)
        pauses.append(round(backoff.ready_at - 100.0, 6))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert not backoff.is_ready(100.9)
    assert backoff.is_ready(101.0)
    backoff.succeeded()
    assert (backoff.attempts, backoff.ready_at) == (0, -math.inf)


@pytest.mark.parametrize(("drawn", "pause"), [(-1.0, 0.08), (0.5, 0.11), (1.0, 0.12)])
def test_jitter_is_a_fifth_either_way(drawn: float, pause: float) -> None:
    backoff = RetryBackoff(0.1, 1.0, lambda: drawn)
    backoff.failed(0.0)
    assert backoff.ready_at == pytest.approx(pause)


def test_a_lost_connection_and_a_timeout_are_retriable() -> None:
    passing = {kind for kind in FailureKind if RequestFailure(kind).is_retriable}
    assert passing == {FailureKind.DISCONNECTED, FailureKind.TIMED_OUT}
