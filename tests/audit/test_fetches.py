"""Sums of the records that readers were given."""

from __future__ import annotations

from kafka_share_proxy.audit import fetches
from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.audit.fetches import Fetches, GivenRecords, Hashes, Reader

PLACE = Place(b"t", 0)


def json_value(sums: Fetches, reported: list) -> list:
    sums.report()
    return [reported.pop(0) for _ in range(len(reported))]


def test_responses_to_one_reader_are_summed_up() -> None:
    reported: list = []
    sums = Fetches(lambda *event: reported.append(event))
    reader = Reader("view", PLACE, None, "__view.r2.t", 1, "me", Hashes(5, 10))
    sums.add(reader, GivenRecords(100, 199, 100, 40, 1000, 400))
    sums.add(reader, GivenRecords(200, 249, 50, 10, 500, 100))
    sums.add(reader._replace(slot=0), GivenRecords(7, 9, 3, 3, 30, 30))
    assert json_value(sums, reported) == [
        (PLACE, None, ("view", "__view.r2.t", 1, "me", 5, 10, 1, 2, 100, 249, 150, 50, 1500, 500)),
        (PLACE, None, ("view", "__view.r2.t", 0, "me", 5, 10, 1, 1, 7, 9, 3, 3, 30, 30)),
    ]
    assert json_value(sums, reported) == []


def test_readers_beyond_the_remembered_number_are_reported_immediately(monkeypatch) -> None:
    """Nothing is lost, and memory is bounded."""
    monkeypatch.setattr(fetches, "READERS_MAX", 2)
    reported: list = []
    sums = Fetches(lambda *event: reported.append(event))
    for number in range(5):
        sums.add(Reader("share", Place(b"t", number), "g"), GivenRecords(0, 9, 10, 10, 100, 100))
    assert [event[0].partition for event in reported] == [0, 1, 2, 3]
    assert [event[0].partition for event in json_value(sums, reported[:0]) or reported] == [0, 1, 2, 3, 4]
