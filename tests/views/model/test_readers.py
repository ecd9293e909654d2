"""Positions of the readers of views: the slowest recent one counts."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views.model import readers as view_readers
from kafka_share_proxy.views.model.readers import FORGOTTEN_S, SLOWEST_S, ViewReaders

AT = (b"v" * 16, 3)


def test_the_position_of_one_reader_moves_both_ways_and_its_records_add_up() -> None:
    readers = ViewReaders()
    for position in (10, 20, 5):
        readers.note(AT, 1, position, 2, 100, now=0.0)
        assert readers.known[AT].position == position
    assert (readers.known[AT].records, readers.known[AT].bytes) == (6, 300)


def test_the_slowest_of_several_readers_counts_while_it_fetches() -> None:
    readers = ViewReaders()
    readers.note(AT, 1, 10, 0, 0, now=0.0)
    readers.note(AT, 2, 500, 0, 0, now=1.0)
    assert readers.known[AT].position == 10
    readers.note(AT, 2, 500, 0, 0, now=1.0 + SLOWEST_S)
    assert readers.known[AT].position == 500
    readers.note(AT, 1, 20, 0, 0, now=2.0 + SLOWEST_S)
    assert readers.known[AT].position == 20


def test_readers_are_forgotten_after_an_hour_and_with_their_view() -> None:
    readers, other = ViewReaders(), (b"w" * 16, 0)
    readers.note(AT, 1, 10, 0, 0, now=0.0)
    readers.note(other, 1, 10, 0, 0, now=FORGOTTEN_S)
    readers.forget(FORGOTTEN_S, lambda _: False)
    assert set(readers.known) == {AT, other}
    readers.forget(FORGOTTEN_S + 1, lambda _: False)
    assert set(readers.known) == {other}
    readers.forget(FORGOTTEN_S + 1, lambda topic_id: topic_id == other[0])
    assert not readers.known


def test_beyond_the_limit_those_read_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_readers, "READERS_MAX", 2)
    readers = ViewReaders()
    for partition in (0, 1, 0, 2):
        readers.note((AT[0], partition), 1, 10, 0, 0, now=0.0)
    assert [partition for _, partition in readers.known] == [0, 2]
