"""Parts of acquiring in key order; what it promises is in test_key_order."""

from __future__ import annotations

from kafka_share_proxy.sharegroups.model.offset_runs import AVAILABLE, BLOCKED
from kafka_share_proxy.sharegroups.model.ordered_acquiring import _without_aborted, block, spans

from tests.sharegroups.model.test_key_order import Ordered


def test_adjacent_blocked_offsets_are_one_span() -> None:
    assert spans([1, 2, 3, 5, 7, 8]) == [(1, 3), (5, 5), (7, 8)]
    assert spans([]) == []


def test_keys_of_aborted_records_are_left_out() -> None:
    keys = [(0, 7), (3, 7), (4, 8), (9, 7), (12, 9)]
    assert list(_without_aborted(iter(keys), [(1, 3), (5, 10)])) == [(0, 7), (4, 8), (12, 9)]
    assert list(_without_aborted(iter(keys), [])) == keys


def test_only_free_offsets_are_blocked() -> None:
    play = Ordered("abcd")
    play.poll(1, exact=True)
    block(play.partition, [(0, 2)])
    states = [(run.first, run.last, run.state) for run in play.partition.runs if run.state in (AVAILABLE, BLOCKED)]
    assert states == [(1, 2, BLOCKED), (3, 3, AVAILABLE)]


def test_new_in_flight_batches_begin_where_log_batches_begin() -> None:
    play = Ordered("abcdefgh", batch=3)
    play.poll(2)
    play.poll(2)
    assert [run.first for run in play.partition.runs] == [0, 3]


def test_keys_are_read_for_at_most_the_records_that_may_be_acquired() -> None:
    play = Ordered("aabcdefghi" * 10, batch=5)
    assert play.poll(4) == [0, 2, 3, 4]
    assert play.partition.end_offset == 4
    assert play.poll(2) == [5, 6, 7, 8, 9]
    assert play.partition.end_offset == 9
