"""Offsets and key hashes of records: every compression, control batches, both kernels, and the way between proxies."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import compression, order_keys, record_positions, records
from kafka_share_proxy.wire.records.key_hash import murmur64
from kafka_share_proxy.wire.records.order_keys import RecordKeys, keys_in
from kafka_share_proxy.wire.records.records import Record


def batch(base_offset: int, keys: list[bytes | None], **options: int) -> bytes:
    return records.build_batch(base_offset, [Record(key, b"v", timestamp=0) for key in keys], **options)


def listed(keys: RecordKeys) -> list[tuple[int, int]]:
    return list(zip(keys.offsets, keys.hashes, strict=True))


@pytest.mark.parametrize("codec", range(len(compression.NAMES)))
def test_records_with_a_key_have_their_offset_and_hash(codec: int) -> None:
    data = batch(5, [b"a", None, b"", b"a" * 100], codec=codec) + batch(20, [b"b"])
    expected = [(5, murmur64(b"a")), (7, murmur64(b"")), (8, murmur64(b"a" * 100)), (20, murmur64(b"b"))]
    assert listed(keys_in(memoryview(data), 0)) == expected
    assert listed(keys_in(memoryview(data), 0).between(7, 19)) == expected[1:3]


def test_records_below_the_first_offset_are_left_out() -> None:
    assert listed(keys_in(memoryview(batch(5, [b"a", b"b"])), 6)) == [(6, murmur64(b"b"))]


def test_transaction_markers_have_no_key() -> None:
    marker = bytearray(batch(5, [b"\0\0\0\1"]))
    marker[21:23] = (0x30).to_bytes(2, "big")
    data = records.seal(bytes(marker)) + batch(6, [b"a"])
    assert listed(keys_in(memoryview(data), 0)) == [(6, murmur64(b"a"))]


def test_a_broken_batch_is_an_error() -> None:
    data = bytearray(batch(5, [b"a", b"b"]))
    data[61] = 0xFF
    with pytest.raises(RemoteProtocolError):
        keys_in(memoryview(bytes(data)), 0)


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=20))
def test_both_kernels_compute_the_same(keys: list[bytes | None]) -> None:
    data = batch(0, keys)
    header = records.read_header(data)
    area, positions = records.find_records(data, header)
    columns = (area, positions.columns, 0, len(positions))
    offsets, hashes = record_positions._python_order_keys(*columns)
    assert positions.order_keys(area) == (offsets, hashes)
    assert list(array("Q", hashes)) == [murmur64(key) for key in keys if key is not None]


def test_positions_of_other_bytes_are_refused() -> None:
    data = batch(0, [b"a" * 50])
    _, positions = records.find_records(data, records.read_header(data))
    with pytest.raises(ValueError, match="not of these bytes"):
        positions.order_keys(b"short")


@pytest.mark.parametrize(("key", "expected"), [(b"", 0), (b"a", 0x071717D2D36B6B11)])
def test_hashes_are_those_of_murmurhash64a(key: bytes, expected: int) -> None:
    assert murmur64(key) == expected


def test_keys_survive_the_way_between_two_proxies() -> None:
    keys = RecordKeys(array("q", [1, 2**62]), array("Q", [0, 2**64 - 1]))
    offsets, hashes = order_keys.little_endian(keys)
    assert offsets == b"\1" + bytes(7) + (2**62).to_bytes(8, "little")
    assert listed(order_keys.from_little_endian(offsets, hashes)) == listed(keys)
    with pytest.raises(RemoteProtocolError, match="do not fit"):
        order_keys.from_little_endian(offsets, hashes[:-1])


@pytest.mark.parametrize("version", [12, 15])
def test_a_fetch_requests_keys_by_its_last_tagged_field(version: int) -> None:
    codec = registry.codec_of(messages.FetchRequest, version)
    assert order_keys.is_requested(codec.encode(messages.FetchRequest(unknown_tags=(order_keys.REQUESTED,))))
    assert not order_keys.is_requested(codec.encode(messages.FetchRequest()))
