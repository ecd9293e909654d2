"""Kafka's hash of keys, by the values of its own test (UtilsTest.testMurmur2) and of another client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka_share_proxy.wire.records.key_hash import hash_of_record, murmur2, partition_for

VECTORS: dict[str, int] = json.loads((Path(__file__).parent / "hash_vectors.json").read_text())["vectors"]


@pytest.mark.parametrize("key", VECTORS)
def test_hash_is_that_of_the_java_client(key: str) -> None:
    """A view divides keys as every partitioner does."""
    assert murmur2(bytes.fromhex(key)) == VECTORS[key] % 2**32


def test_the_values_of_kafkas_own_test_are_among_the_vectors() -> None:
    """The file that other implementations compare with holds what Kafka itself promises."""
    assert VECTORS[b"21".hex()] == -973932308
    assert VECTORS[b"foobar".hex()] == -790332482


def test_a_record_without_a_key_is_hashed_by_its_offset() -> None:
    """It is spread, and the same record always has the same hash; an empty key is a key."""
    assert hash_of_record(None, 42) == murmur2((42).to_bytes(8, "big"))
    assert hash_of_record(b"", 42) == hash_of_record(b"", 43) == murmur2(b"")
    assert hash_of_record(b"foobar", 42) == murmur2(b"foobar")


def test_partition_is_never_negative() -> None:
    """Java takes the sign bit away before it divides."""
    assert partition_for(b"foobar", 50) == (-790332482 & 0x7FFFFFFF) % 50
    assert {partition_for(str(n).encode(), 50) for n in range(2000)} == set(range(50))
