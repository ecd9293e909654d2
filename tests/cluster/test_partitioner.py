"""Kafka's hash of keys, by the values of its own test (UtilsTest.testMurmur2) and of its Java partitioner."""

from __future__ import annotations

import pytest

from proxy.cluster.partitioner import murmur2, partition_for

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_hash_is_that_of_the_java_client(key):
    assert murmur2(key) == KNOWN[key] % 2**32


def test_partition_is_never_negative():
    """Java takes the sign bit away before it divides."""
    assert partition_for(b"foobar", 50) == (-790332482 & 0x7FFFFFFF) % 50
    assert {partition_for(str(n).encode(), 50) for n in range(2000)} == set(range(50))
