"""Each wanted offset is in each key range exactly once (pipeline/README.md rule 8)."""

from __future__ import annotations

import pickle
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.pipeline.source.key_ranges import KeyRanges
from kafka_share_proxy.pipeline.source.splits import SPANS_MAX, Split, make_splits
from kafka_share_proxy.wire.records.key_hash import murmur2
from kafka_share_proxy.wire.values import TopicPartition

PLACE = TopicPartition("orders", 0)
IDS = {"orders": bytes(16)}
SPANS = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: OffsetSpan(pair[0], pair[0] + pair[1]))
EXPECTED = st.lists(st.tuples(st.integers(0, 2).map(lambda each: TopicPartition("orders", each)), SPANS), max_size=6)


@given(EXPECTED, st.integers(1, 4), st.integers(1, 5))
def test_each_offset_is_read_once_in_each_range(
    requested: list[tuple[TopicPartition, OffsetSpan]], ranges: int, pieces: int
) -> None:
    splits = make_splits(requested, IDS, KeyRanges.even(ranges), pieces)
    read = Counter(
        (split.topic_partition, split.low, offset)
        for split in splits
        for start, end in split.spans
        for offset in range(start, end)
    )
    expected = {(place, offset) for place, span in requested for offset in range(*span)}
    assert read == Counter(
        {(place, low, offset): 1 for place, offset in expected for low, _ in KeyRanges.even(ranges).bounds}
    )
    assert max(Counter((split.topic_partition, split.low) for split in splits).values(), default=0) <= pieces
    assert all(split.is_only_here == (ranges > 1) for split in splits)


def test_keys_are_one_split_for_all_ranges() -> None:
    (split,) = make_splits([(PLACE, OffsetSpan(0, 9))], IDS, KeyRanges.even(4), keys=[b"a", b"b"])
    assert split.keys == (b"a", b"b")
    assert not split.is_only_here
    assert all(split.low <= murmur2(key) < split.high for key in split.keys)
    assert make_splits([(PLACE, OffsetSpan(0, 9))], IDS, KeyRanges.even(4), keys=[]) == []


def test_many_small_ranges_of_offsets_share_a_split_up_to_a_limit() -> None:
    requested = [(PLACE, OffsetSpan(2 * number, 2 * number + 1)) for number in range(SPANS_MAX + 1)]
    splits = make_splits(requested, IDS, KeyRanges())
    assert [len(split.spans) for split in splits] == [SPANS_MAX, 1]


def test_a_split_travels_as_plain_values() -> None:
    (split,) = make_splits([(PLACE, OffsetSpan(0, 9))], IDS, KeyRanges())
    plain = tuple(split)
    assert {type(each) for each in plain} <= {str, bytes, int, tuple, bool}
    assert Split(*pickle.loads(pickle.dumps(plain))) == split
