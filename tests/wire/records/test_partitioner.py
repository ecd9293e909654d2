"""Kafka's choice of a partition, by the rule of its Java partitioner."""

from __future__ import annotations

from kafka_share_proxy.wire.records.partitioner import partition_for


def test_partition_is_never_negative():
    """Java takes the sign bit away before it divides."""
    assert partition_for(b"foobar", 50) == (-790332482 & 0x7FFFFFFF) % 50
    assert {partition_for(str(n).encode(), 50) for n in range(2000)} == set(range(50))
