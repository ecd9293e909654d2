"""Which records a consumer wants: the same ones as the proxy gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.consumer.fetch.key_filter import KeyFilter, slots_of
from kafka_share_proxy.views.fetch.key_filter import read_filter
from kafka_share_proxy.views.model.slots import EvenCut
from kafka_share_proxy.wire.key_filter import NullKeys
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.key_hash import SPACE, murmur2
from kafka_share_proxy.wire.records.record_views import LazyRecords
from kafka_share_proxy.wire.values import TopicPartition

HASHES = st.integers(0, SPACE - 1)
RANGES = st.lists(st.tuples(HASHES, HASHES).map(lambda two: (min(two), max(two))), min_size=1, max_size=5)
KEYS = st.one_of(st.none(), st.binary(max_size=9))


def of_keys(keys: list[bytes | None], base: int = 0) -> LazyRecords:
    """Return one record for each key, at consecutive offsets."""
    if not keys:
        return LazyRecords()
    batch = records.build_batch(base, [records.Record(key, b"value") for key in keys])
    (header,) = records.iter_batches(batch)
    return LazyRecords(*records.find_records(batch, header), header.timestamp_type)


@given(
    ranges=RANGES, keys=st.lists(st.binary(max_size=3), max_size=3), null_keys=st.sampled_from(NullKeys), data=st.data()
)
def test_a_key_filter_wants_the_records_that_the_proxy_gives_for_its_request_field(
    ranges: list[tuple[int, int]], keys: list[bytes], null_keys: NullKeys, data: st.DataObject
) -> None:
    key_filter = KeyFilter(tuple(ranges), tuple(keys), null_keys)
    proxys = read_filter(key_filter.content, b"").cut
    for base in (0, 77, 1 << 40):
        given_keys = data.draw(st.lists(KEYS, max_size=10)) + keys
        expected = [proxys.slot_of(key, base + number) == 0 for number, key in enumerate(given_keys)]
        assert key_filter.unwanted(of_keys(given_keys, base)) == [
            base + n for n, each in enumerate(expected) if not each
        ]


@given(of=st.integers(2, 1024), key=KEYS, offset=st.integers(0, 1 << 50), data=st.data())
def test_slots_are_those_of_the_view(of: int, key: bytes | None, offset: int, data: st.DataObject) -> None:
    slots = data.draw(st.sets(st.integers(0, of - 1), min_size=1, max_size=4))
    is_selected = EvenCut(of).slot_of(key, offset) in slots
    assert slots_of(of, slots).unwanted(of_keys([key], offset)) == ([] if is_selected else [offset])


def test_neighbours_touch_and_the_last_one_ends_with_the_space() -> None:
    first, second, third = slots_of(3, [0, 1, 2]).ranges
    assert (first[0], second[0], third[0], third[1]) == (0, first[1] + 1, second[1] + 1, SPACE - 1)
    edge = murmur2(b"21")
    assert KeyFilter(((edge, edge),)).unwanted(of_keys([b"21"])) == []
    assert KeyFilter(((edge + 1, SPACE - 1), (0, edge - 1))).unwanted(of_keys([b"21"])) == [0]


def test_slots_are_committed_under_the_views_name() -> None:
    expected = slots_of(8, [5, 2])
    assert expected.committed_as(TopicPartition("orders", 3)) == (
        TopicPartition("__view.r8.orders", 26),
        TopicPartition("__view.r8.orders", 29),
    )
    plain = KeyFilter(keys=(b"k",))
    assert plain.committed_as(TopicPartition("orders", 3)) == (TopicPartition("orders", 3),)


@pytest.mark.parametrize(("factory", "why"), [
    (lambda: KeyFilter(), "neither ranges nor keys"),
    (lambda: KeyFilter(((5, 4),)), "5 to 4 is no range"),
    (lambda: KeyFilter(((0, SPACE),)), "no range of hashes"),
    (lambda: KeyFilter(keys=(b"k",) * 65_537), "at most 65536"),
    (lambda: slots_of(1, [0]), "a view of 1 slots"),
    (lambda: slots_of(4, []), "name some of 0 to 3"),
    (lambda: slots_of(4, [4]), "name some of 0 to 3"),
])  # fmt: skip
def test_an_impossible_filter_is_refused(factory: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        factory()  # type: ignore[operator]
