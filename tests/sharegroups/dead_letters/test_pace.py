"""Retries as in Kafka 4.4.0, without an end; transactions that adapt to what brokers accept."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.dead_letters.pace import GATHER_MAX_S, RECORDS_MAX, LetterPace, TransactionTime


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


def begins(took_s: float, seconds: float, *, is_full: bool = False) -> list[float]:
    """Return when transactions begin that always wait for the next."""
    spent, at, begin_times = TransactionTime(), 0.0, []
    while at < seconds:
        begin_times.append(at)
        at = max(spent.next_at(at, at + took_s, is_full=is_full), at + took_s)
    return begin_times


def test_transactions_take_at_most_three_percent_of_the_time_after_the_first_ones() -> None:
    begin_times = begins(0.009, 60)
    assert [round(at, 3) for at in begin_times[:5]] == [0, 0.05, 0.1, 0.15, 0.2], "the credit of some transactions"
    assert 0.028 <= 0.009 * len([at for at in begin_times if 30 <= at < 60]) / 30 <= 0.0305


def test_slow_transactions_begin_at_most_the_longest_pause_after_the_last() -> None:
    begin_times = begins(2.0, 60)
    assert begin_times[-1] - begin_times[-2] == pytest.approx(2.0 + GATHER_MAX_S)


def test_full_transactions_and_quick_ones_begin_twenty_times_a_second() -> None:
    assert len(begins(0.009, 10, is_full=True)) == pytest.approx(200, abs=1)
    assert len(begins(0.001, 10)) == pytest.approx(200, abs=1)


def test_after_some_seconds_without_transactions_the_next_ones_do_not_wait() -> None:
    spent = TransactionTime()
    for at in (0.0, 0.05, 0.1):
        spent.next_at(at, at + 0.03, is_full=False)
    assert spent.next_at(0.15, 0.18, is_full=False) > 0.6
    assert spent.next_at(5.0, 5.03, is_full=False) == 5.05
