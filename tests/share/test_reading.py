"""Which batches of a read were aborted (share-groups.md 4.8)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from proxy.share.reading import aborted_ranges


@dataclass
class B:
    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False


@dataclass
class A:
    producer_id: int
    first_offset: int


def data(first: int, last: int, producer: int) -> B:
    return B(first, last, producer, True)


def marker(offset: int, producer: int) -> B:
    return B(offset, offset, producer, True, True)


def test_without_aborted_transactions_nothing_is_aborted() -> None:
    assert aborted_ranges([data(0, 9, 1)], None) == ()
    assert aborted_ranges([data(0, 9, 1)], []) == ()


def test_data_up_to_the_marker_is_aborted_and_what_follows_is_not() -> None:
    log = [data(0, 4, 7), marker(5, 7), data(6, 9, 7), marker(10, 7)]
    assert aborted_ranges(log, [A(7, 0)]) == ((0, 4),)


def test_other_producers_and_plain_records_are_kept() -> None:
    log = [data(0, 1, 7), data(2, 3, 8), B(4, 5), B(6, 6, 7), data(7, 8, 7), marker(9, 7), marker(10, 8)]
    assert aborted_ranges(log, [A(7, 0)]) == ((0, 1), (7, 8))


def test_a_transaction_counts_from_its_own_first_offset() -> None:
    """The committed transaction of the same producer in front of it is delivered."""
    log = [data(0, 4, 7), marker(5, 7), data(6, 9, 7), marker(10, 7)]
    assert aborted_ranges(log, [A(7, 6)]) == ((6, 9),)


def test_a_transaction_that_began_before_the_read_is_known_by_its_list() -> None:
    assert aborted_ranges([data(50, 59, 7), marker(60, 7), data(61, 65, 7)], [A(7, 10)]) == ((50, 59),)


@pytest.mark.parametrize("order", [[A(7, 0), A(8, 10)], [A(8, 10), A(7, 0)]])
def test_neighbours_are_one_range_and_the_order_of_the_list_does_not_matter(order: list[A]) -> None:
    log = [data(0, 4, 7), data(5, 9, 7), data(10, 14, 8), marker(15, 7), marker(16, 8)]
    assert aborted_ranges(log, order) == ((0, 14),)


def test_a_producer_may_abort_twice() -> None:
    log = [data(0, 4, 7), marker(5, 7), data(6, 9, 7), marker(10, 7), data(11, 12, 7), marker(13, 7)]
    assert aborted_ranges(log, [A(7, 0), A(7, 11)]) == ((0, 4), (11, 12))
