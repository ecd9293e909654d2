"""Retries as in Kafka 4.4.0, without an end; transactions that adapt to what brokers accept."""

from __future__ import annotations

from kafka_share_proxy.sharegroups.dead_letters.pace import RECORDS_MAX, Pace


def test_retries_wait_from_one_second_to_thirty_and_go_on() -> None:
    pace = Pace(chance=lambda: 0.5)
    waits = []
    for _ in range(12):
        pace.failed(100.0)
        waits.append(pace.retry_at - 100.0)
    assert waits == [1, 2, 4, 8, 16, *[30] * 7]


def test_retries_are_jittered_by_a_fifth() -> None:
    early, late = Pace(chance=lambda: 0.0), Pace(chance=lambda: 1.0)
    early.failed(0)
    late.failed(0)
    assert (early.retry_at, late.retry_at) == (0.8, 1.2)


def test_success_resets_the_retries() -> None:
    pace = Pace(chance=lambda: 0.5)
    pace.failed(0)
    pace.failed(0)
    pace.succeeded()
    assert pace.retry_at == 0
    pace.failed(0)
    assert pace.retry_at == 1


def test_a_transaction_that_is_too_large_is_halved_down_to_one_record_and_grows_again() -> None:
    pace = Pace(records_max=5)
    sizes = []
    while pace.shrink():
        sizes.append(pace.records_max)
    assert sizes == [2, 1]
    for _ in range(20):
        pace.succeeded()
    assert pace.records_max == RECORDS_MAX
