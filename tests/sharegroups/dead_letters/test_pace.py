"""Retries as in Kafka 4.4.0, without an end; transactions that adapt to what brokers accept."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.dead_letters.pace import GATHER_MAX_S, GATHER_S, RECORDS_MAX, LetterPace


def test_retries_wait_from_one_second_to_thirty_and_go_on() -> None:
    pace = LetterPace("q")
    waits = []
    for _ in range(12):
        pace.failed(100.0)
        waits.append(pace.retry_at - 100.0)
    expected = [1, 2, 4, 8, 16, *[30] * 7]
    assert all(0.8 * each <= wait <= 1.2 * each for each, wait in zip(expected, waits, strict=True))


def test_queues_are_not_retried_together() -> None:
    paces = [LetterPace(f"dlq.t {number}") for number in range(50)]
    for pace in paces:
        pace.failed(0)
    waits = sorted(pace.retry_at for pace in paces)
    assert waits[0] < 0.9
    assert waits[-1] > 1.1
    assert len(set(waits)) == 50


def test_success_resets_the_retries() -> None:
    pace = LetterPace("q")
    pace.failed(0)
    first = pace.retry_at
    pace.failed(0)
    pace.succeeded()
    assert pace.retry_at == 0
    pace.failed(0)
    assert pace.retry_at == first


def test_a_transaction_that_is_too_large_is_halved_down_to_one_record_and_grows_again() -> None:
    pace = LetterPace("q", records_max=5)
    sizes = []
    while pace.shrink():
        sizes.append(pace.records_max)
    assert sizes == [2, 1]
    for _ in range(20):
        pace.succeeded()
    assert pace.records_max == RECORDS_MAX


def test_transactions_take_at_most_three_percent_of_the_time_unless_they_are_full() -> None:
    pace = LetterPace("q")
    assert pace.pause_s(0.0, 1) == GATHER_S
    assert pace.pause_s(0.009, 499) == pytest.approx(0.3)
    assert pace.pause_s(10.0, 499) == GATHER_MAX_S
    assert pace.pause_s(0.009, 500) == GATHER_S
