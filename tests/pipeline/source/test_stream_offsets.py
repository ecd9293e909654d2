"""How far a stream is (pipeline/README.md rules 16 and 17)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.pipeline.source.stream_offsets import (
    BadStreamOffset,
    between,
    continued,
    decode_offsets,
    encode_offsets,
    limit_offsets,
    read_ids,
)
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

PLACES = [TopicPartition("orders", number) for number in range(4)]
ID, OTHER = bytes(range(16)), bytes(range(1, 17))
OFFSETS = st.dictionaries(st.sampled_from(PLACES), st.integers(0, 100))


@given(OFFSETS)
def test_stored_offsets_are_read_again(offsets: dict[TopicPartition, int]) -> None:
    stored = json.loads(json.dumps(encode_offsets(offsets, {"orders": ID, "other": ID})))
    assert decode_offsets(stored) == offsets
    assert read_ids(stored) == ({"orders": ID} if offsets else {})


def test_offsets_of_earlier_releases_and_of_brokers_without_topic_ids_are_read() -> None:
    stored = {"v": 1, "t": {"orders": {"0": 7}}}
    assert (decode_offsets(stored), read_ids(stored)) == ({PLACES[0]: 7}, {})
    assert read_ids(encode_offsets({PLACES[0]: 7}, {"orders": ZERO_UUID})) == {}


@pytest.mark.parametrize(
    "stored",
    [
        {"v": 2, "t": {}},
        {"v": 3, "t": {}, "ids": {}},
        {},
        {"v": 1},
        {"v": 1, "t": {"orders": 7}},
        {"v": 2, "t": {}, "ids": {"orders": "x"}},
    ],
)
def test_an_offset_of_another_source_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(BadStreamOffset, match="the checkpoint holds"):
        decode_offsets(stored)


@given(OFFSETS, OFFSETS, st.none() | st.integers(1, 200))
def test_a_batch_has_at_most_the_allowed_offsets_and_never_goes_back(
    start: dict[TopicPartition, int], latest: dict[TopicPartition, int], most: int | None
) -> None:
    end = limit_offsets(start, latest, most)
    offset_counts = {place: end[place] - start.get(place, latest[place]) for place in latest}
    lags = {place: max(0, latest[place] - start.get(place, latest[place])) for place in latest}
    assert end.keys() == latest.keys()
    assert all(0 <= offset_counts[place] <= lags[place] for place in latest)
    assert sum(offset_counts.values()) == (sum(lags.values()) if most is None else min(most, sum(lags.values())))


def test_a_small_partition_is_not_starved_by_a_large_one() -> None:
    end = limit_offsets(dict.fromkeys(PLACES[:2], 0), {PLACES[0]: 1_000_000, PLACES[1]: 1}, 10)
    assert end == {PLACES[0]: 9, PLACES[1]: 1}


def test_a_partition_that_is_new_begins_at_its_first_offset() -> None:
    spans = between({PLACES[0]: 5}, {PLACES[0]: 5, PLACES[1]: 9}, {PLACES[1]: 3})
    assert spans == [(PLACES[1], (3, 9))]


@pytest.mark.parametrize(
    ("ids", "end", "is_continued"),
    [
        ({"orders": ID}, {PLACES[0]: 9, PLACES[1]: 3}, True),
        ({"orders": OTHER}, {PLACES[0]: 9, PLACES[1]: 3}, False),
        ({}, {PLACES[0]: 9, PLACES[1]: 3}, True),
        ({}, {PLACES[0]: 9, PLACES[1]: 2}, False),  # one partition proves it for all
    ],
)
def test_a_batch_begins_anew_where_the_topic_is_another_one(
    ids: dict[str, bytes], end: dict[TopicPartition, int], is_continued: bool
) -> None:
    start = {PLACES[0]: 5, PLACES[1]: 3}
    assert continued(start, ids, end, {"orders": ID}) == (start if is_continued else {})
