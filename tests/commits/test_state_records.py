"""Records of `__individual_commit_offsets`: keys and values there and back, as the generated codecs have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.commits import state_records
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS, GroupKey, RangeKey, RangePartition, RangeValue
from kafka_share_proxy.durable.partition_log import OwnerEpoch
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.records import Record

ID = bytes(range(16))
KEY = RangeKey("gruppe-ü", "orders", 3, 43, 45)
VALUE = RangeValue(ID, 7, 41, 1_700_000_000_000, "member-1", None)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
LONG = st.integers(0, (1 << 63) - 1)


@pytest.mark.parametrize("key", [KEY, GroupKey("g"), GroupKey("g" * 600), RangeKey("g" * 600, "t", 0, 5, 5)])
def test_key_there_and_back(key):
    stored = state_records.encode_key(key)
    assert state_records.decode_key(stored) == key
    assert state_records.is_range_key(stored) == isinstance(key, RangeKey)
    assert INDIVIDUAL_COMMITS.owner_epoch_of(stored) is None
    assert INDIVIDUAL_COMMITS.partition_of(key) == state_partition(key.group_id)


NUMBER = st.integers(-1, (1 << 63) - 1)


@given(st.integers(-1, (1 << 31) - 1), NUMBER, NUMBER, TEXT, st.none() | TEXT)
def test_value_is_written_as_the_generated_codec_writes_it(epoch, mark, time_ms, member_id, metadata):
    """Written by hand where the member id is short, as nearly all are."""
    stored = registry.message("CommittedRangeValue")(
        topic_id=ID, leader_epoch=epoch, committed_offset=mark, time_ms=time_ms, member_id=member_id, metadata=metadata
    )
    expected = b"\0\0" + registry.codec("CommittedRangeValue", 0).encode(stored)
    assert state_records.range_value(RangeValue(ID, epoch, mark, time_ms, member_id, metadata)) == expected


@pytest.mark.parametrize("length", [0, 126, 127, 128, 300])
def test_value_of_a_member_with_an_id_of_any_length_is_read_again(length):
    value = VALUE._replace(member_id="m" * length)
    assert state_records.decode_range_value(state_records.range_value(value)) == value


def test_bytes_are_those_that_were_chosen():
    """The format stays: a later release reads what this one wrote."""
    offsets = (43).to_bytes(8, "big") + (45).to_bytes(8, "big")
    assert state_records.encode_key(RangeKey("g", "to", 3, 43, 45)) == b"\0\0\0\1g\0\2to\0\0\0\3" + offsets
    assert state_records.encode_key(GroupKey("g")) == b"\0\1\0\1g"
    assert state_records.range_value(RangeValue(ID, 7, 41, 99, "m")) == (
        b"\0\0" + ID + b"\0\0\0\7" + (41).to_bytes(8, "big") + (99).to_bytes(8, "big") + b"\2m" + b"\0" + b"\0"
    )
    assert state_records.group_value(5) == b"\0\0" + (5).to_bytes(8, "big") + b"\0"
    assert INDIVIDUAL_COMMITS.keep_alive() == Record(b"\0\3", None)


@given(TEXT, TEXT, st.integers(0, (1 << 31) - 1), LONG, LONG)
def test_range_keys_are_those_of_the_generated_codec(group_id, topic, partition, one, other):
    first, last = sorted((one, other))
    fields = {"group_id": group_id, "topic": topic, "partition": partition, "first": first, "last": last}
    codec, message = registry.codec("CommittedRangeKey", 0), registry.message("CommittedRangeKey")
    stored = state_records.encode_key(RangeKey(**fields))
    assert stored == b"\0\0" + codec.encode(message(**fields))
    assert state_records.decode_key(stored) == RangeKey(**fields)
    assert state_records.split_range_key(stored) == (RangePartition(group_id, topic, partition), first, last)


@given(
    st.builds(RangeValue, st.binary(min_size=16, max_size=16), st.integers(-1, 9), LONG, LONG, TEXT, st.none() | TEXT)
)
def test_values_there_and_back(value):
    assert state_records.decode_range_value(state_records.range_value(value)) == value


def test_since_when_a_group_commits_ranges_is_read_again():
    assert state_records.group_time_ms(state_records.group_value(123)) == 123


def test_ranges_of_a_partition_share_their_place_and_those_of_a_commit_their_value():
    """A million ranges do not hold a million names of groups, topics and members."""
    one, other = (state_records.encode_key(KEY._replace(first=first, last=first)) for first in (1, 5))
    assert state_records.split_range_key(one)[0] is state_records.split_range_key(other)[0]
    stored = state_records.range_value(VALUE)
    assert state_records.decode_range_value(stored) is state_records.decode_range_value(bytes(bytearray(stored)))


def test_long_names_are_not_remembered():
    """Clients may send ids of 32 KiB."""
    remembered = (state_records._known_prefix, state_records._known_partition)
    before = [cache.cache_info().currsize for cache in remembered]
    state_records.decode_key(state_records.encode_key(RangeKey("g" * 32_000, "t", 0, 1, 2)))
    assert [cache.cache_info().currsize for cache in remembered] == before


def test_takeover_record_contains_its_owner_epoch():
    record = INDIVIDUAL_COMMITS.takeover("proxy:9092", 1234, 7, 3)
    assert record.key == b"\0\2" + (7).to_bytes(8, "big") + b"\0\3"
    assert INDIVIDUAL_COMMITS.owner_epoch_of(record.key) == OwnerEpoch(7, 3)
    with pytest.raises(RemoteProtocolError):
        state_records.decode_key(record.key)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\4", b"\xff\xff", b"\0\7abc"])
def test_unknown_record_types_are_refused(key):
    """A newer proxy wrote what this one would lose."""
    with pytest.raises(RemoteProtocolError):
        INDIVIDUAL_COMMITS.owner_epoch_of(key)
    with pytest.raises(RemoteProtocolError):
        state_records.decode_key(key)


@pytest.mark.parametrize(
    "key",
    [
        b"\0\0",
        state_records.encode_key(KEY)[:-1],
        state_records.encode_key(KEY) + b"\0",
        state_records.encode_key(KEY._replace(first=46)),
        state_records.encode_key(KEY._replace(first=-1)),
        b"\0\1\0\2g",
    ],
)
def test_keys_that_cannot_be_read_are_refused(key):
    with pytest.raises(RemoteProtocolError):
        state_records.decode_key(key)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\1" + bytes(40), state_records.range_value(VALUE)[:-2]])
def test_values_of_another_version_are_refused(value):
    with pytest.raises(RemoteProtocolError):
        state_records.decode_range_value(value)
