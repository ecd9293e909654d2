"""Load of partitions in one interval: totals, samples by bucket, heaviest keys; all of it bounded."""

from __future__ import annotations

from proxy.audit import loads
from proxy.audit.events import Place
from proxy.audit.loads import Loads
from proxy.wire.key_samples import ROW, KeySample

PLACE = Place(b"t", 0)


def sample(*rows: tuple[int, int], null: tuple[tuple[int, int], ...] = ()) -> KeySample:
    return KeySample(b"".join(ROW.pack(*row) for row in rows), b"".join(ROW.pack(*row) for row in null))


def events(found: Loads, now: float) -> list:
    return [
        (kind, place, tuple(value.told() if hasattr(value, "told") else value for value in values))
        for kind, place, values in found.take(now)
    ]


def test_totals_and_samples_of_an_interval() -> None:
    found = Loads(100.0)
    load = found.of(PLACE)
    load.rows, load.bytes, load.hold_ms = 50, 5000, 12.6
    found.add_sample(PLACE, [sample((1 << 20, 10), (1 << 20, 20)), sample((0, 5), null=((7, 1),))])
    assert events(found, 160.0) == [
        ("load", PLACE, (60000, 50, 5000, 13, 4, 36, 1, {"0": [2, 6], "1": [2, 30]})),
        ("hot_keys", PLACE, (60000, 4, 1, 0, [(1 << 20, 2), (0, 1)])),
    ]
    assert events(found, 161.0) == []


def test_of_a_large_sample_a_part_is_counted_by_hash(monkeypatch) -> None:
    """With what it is a part of, so that shares come out right; all of it is counted by bucket."""
    monkeypatch.setattr(loads, "HEAVY_RECORDS", 10)
    found = Loads(0.0)
    found.add_sample(PLACE, [sample(*[(7, 1), (8, 1), (7, 1), (7, 1)] * 20, null=((9, 1),) * 20)])
    load, hot = events(found, 1.0)
    assert load[2][4:] == (100, 100, 20, {"0": [100, 100]})
    assert hot[2] == (1000, 10, 2, 0, [(7, 6), (8, 2)])


def test_totals_without_a_sample_have_no_buckets() -> None:
    """As those of the owner of a group, whose member is connected to another proxy."""
    found = Loads(0.0)
    found.of(PLACE).rows = 5
    assert events(found, 1.0) == [("load", PLACE, (1000, 5, 0, 0, 0, 0, 0, {}))]


def test_samples_without_totals_are_told() -> None:
    """As those of the proxy that has the bytes, and not the group."""
    found = Loads(0.0)
    found.add_sample(PLACE, [sample((0, 5))])
    assert events(found, 1.0)[0] == ("load", PLACE, (1000, 0, 0, 0, 1, 5, 0, {"0": [1, 5]}))


def test_places_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(loads, "PLACES_MAX", 2)
    found = Loads(0.0)
    for number in range(4):
        found.of(Place(b"t", number)).rows += 1
    assert [place.partition for _, place, _ in events(found, 1.0)] == [0, 1]


def test_partitions_with_samples_are_bounded(monkeypatch) -> None:
    """The others' totals are told all the same."""
    monkeypatch.setattr(loads, "SAMPLED_PLACES_MAX", 1)
    found = Loads(0.0)
    for number in range(2):
        found.of(Place(b"t", number)).rows += 1
        found.add_sample(Place(b"t", number), [sample((0, 5))])
    told = events(found, 1.0)
    assert [(kind, place.partition) for kind, place, _ in told] == [("load", 0), ("hot_keys", 0), ("load", 1)]


def test_places_of_ids_and_of_names_are_told_in_one_order() -> None:
    found = Loads(0.0)
    for topic in (b"b", b"a"):
        found.of(Place(topic, 0)).rows += 1
    assert [place.topic for _, place, _ in events(found, 1.0)] == [b"a", b"b"]
