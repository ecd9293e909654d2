"""Load of partitions in one interval: totals, samples by bucket, heaviest keys; all of it bounded."""

from __future__ import annotations

import random

import pytest
from kafka_share_proxy.audit import loads
from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.audit.loads import Loads
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.records.key_samples import ROW, KeySample

PLACE = Place(b"t", 0)


def sample(*rows: tuple[int, int], null: tuple[tuple[int, int], ...] = ()) -> KeySample:
    return KeySample(b"".join(ROW.pack(*row) for row in rows), b"".join(ROW.pack(*row) for row in null))


def events(totals: Loads, now: float) -> list:
    return [
        (kind, place, tuple(value.json_value() if hasattr(value, "json_value") else value for value in values))
        for kind, place, values in totals.take(now)
    ]


def test_totals_and_samples_of_an_interval() -> None:
    totals = Loads(100.0)
    key = murmur2(b"k")
    load = totals.of(PLACE)
    load.rows, load.bytes, load.hold_ms = 50, 5000, 12.6
    one = KeySample(ROW.pack(key, 10) + ROW.pack(key, 20), b"", b"k")
    totals.add_sample(PLACE, [one, sample((0, 5), null=((7, 1),))], 4)
    totals.add_sample(PLACE, [sample((0, 5))], 3)
    assert events(totals, 160.0) == [
        ("load", PLACE, (60000, 50, 5000, 13, 7, 51, 1, 2, 5, 4, {"0": [5, 21], str(key >> 20): [2, 30]})),
        ("hot_keys", PLACE, (60000, 7, 5, 1, 0, [(0, 4), (key, 2)], {str(key): "k"})),
    ]
    assert events(totals, 161.0) == []


def test_only_a_part_of_a_large_sample_is_counted_by_hash(monkeypatch) -> None:
    """With what it is a part of, so that shares come out right; all of it is counted by bucket."""
    monkeypatch.setattr(loads, "HEAVY_RECORDS", 10)
    totals = Loads(0.0)
    totals.add_sample(PLACE, [sample(*[(7, 1), (8, 1), (7, 1), (7, 1)] * 20, null=((9, 1),) * 20)], 300)
    load, hot = events(totals, 1.0)
    assert load[2][4:9] == (300, 300, 60, 1, 100)
    assert load[2][10] == {"0": [300, 300]}
    assert hot[2] == (1000, 300, 10, 60, 0, [(7, 180), (8, 60)], {})


def test_totals_without_a_sample_have_no_buckets() -> None:
    """For example from the owner of a group whose member is connected to another proxy."""
    totals = Loads(0.0)
    totals.of(PLACE).rows = 5
    assert events(totals, 1.0) == [("load", PLACE, (1000, 5, 0, 0, 0, 0, 0, 0, 0, 0, {}))]


def test_samples_without_totals_are_reported() -> None:
    """For example from the proxy that has the bytes but not the group."""
    totals = Loads(0.0)
    totals.add_sample(PLACE, [sample((0, 5))], 1)
    assert events(totals, 1.0)[0] == ("load", PLACE, (1000, 0, 0, 0, 1, 5, 0, 1, 1, 1, {"0": [1, 5]}))


def test_places_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(loads, "PLACES_MAX", 2)
    totals = Loads(0.0)
    for number in range(4):
        totals.of(Place(b"t", number)).rows += 1
    assert [place.partition for _, place, _ in events(totals, 1.0)] == [0, 1]


def test_partitions_with_samples_are_bounded(monkeypatch) -> None:
    """The totals of the other partitions are reported all the same."""
    monkeypatch.setattr(loads, "SAMPLED_PLACES_MAX", 1)
    totals = Loads(0.0)
    for number in range(2):
        totals.of(Place(b"t", number)).rows += 1
        totals.add_sample(Place(b"t", number), [sample((0, 5))], 1)
    json_value = events(totals, 1.0)
    assert [(kind, place.partition) for kind, place, _ in json_value] == [("load", 0), ("hot_keys", 0), ("load", 1)]


def test_places_of_ids_and_of_names_are_reported_in_one_order() -> None:
    totals = Loads(0.0)
    for topic in (b"b", b"a"):
        totals.of(Place(topic, 0)).rows += 1
    assert [place.topic for _, place, _ in events(totals, 1.0)] == [b"a", b"b"]


def test_weights_are_whole_numbers_that_are_right_on_average() -> None:
    totals, dice = Loads(0.0, draw=random.Random(1).random), random.Random(2)
    for _ in range(400):
        totals.add_sample(PLACE, [sample(*((dice.getrandbits(32), 1) for _ in range(10)))], 25.0)
    ((_, _, load), _) = events(totals, 1.0)
    assert load[4] == pytest.approx(400 * 25, rel=0.02)


@pytest.mark.parametrize(("run", "least", "most"), [(1, 0.7, 1.0), (8, 0.08, 0.2), (64, 0.0, 0.02)])
def test_equal_keys_within_one_sampling_are_a_smaller_sample(run: int, least: float, most: float) -> None:
    """Looks of 64 keys; each key is there `run` times in a row."""
    totals, dice = Loads(0.0), random.Random(run)
    for _ in range(200):
        keys = [dice.getrandbits(32) for _ in range(64 // run)]
        totals.add_sample(PLACE, [sample(*((key, 1) for key in keys for _ in range(run)))], 64)
    ((_, _, load), _) = events(totals, 1.0)
    assert least <= load[9] / load[8] <= most


def test_keys_that_count_unequally_are_a_smaller_sample() -> None:
    totals, dice = Loads(0.0), random.Random(5)
    for number in range(200):
        keys = [(dice.getrandbits(32), 1) for _ in range(64)]
        totals.add_sample(PLACE, [sample(*keys)], 64 if number % 2 else 64 * 99)
    ((_, _, load), _) = events(totals, 1.0)
    assert load[9] / load[8] == pytest.approx(0.5, rel=0.1), "half of the keys count for next to nothing"


def test_hot_keys_show_at_most_the_allowed_part_of_a_key() -> None:
    rows = KeySample(ROW.pack(murmur2(b"secret"), 1), b"", b"secret")
    shown = []
    for most in (0, 3, 64):
        totals = Loads(0.0, most)
        totals.add_sample(PLACE, [rows], 1)
        shown.append(list(events(totals, 1.0)[1][2][6].values()))
    assert shown == [[], ["sec..."], ["secret"]]
