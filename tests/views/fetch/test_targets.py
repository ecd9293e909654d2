"""Partitions of one Fetch of views, and the entries for those that are refused."""

from __future__ import annotations

from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.views.fetch.targets import Target, refusal, unknown_partition
from kafka_share_proxy.views.model.scanning import BaseScan
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition


def test_a_target_is_one_partition_of_the_base_in_both_isolation_levels() -> None:
    for read_committed in (False, True):
        target = Target(ReadKey(b"b" * 16, 3, read_committed), "base", BaseScan([]), {})
        assert target.partition == TopicIdPartition(b"b" * 16, 3)


def test_an_entry_with_an_error_has_the_defaults_of_kafka() -> None:
    """FetchResponse.partitionResponse sets no offsets, no records, and an empty aborted list."""
    entry = refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (entry.error_code, entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (6, -1, -1, -1)
    assert (entry.aborted_transactions, entry.records, entry.preferred_read_replica) == ([], None, -1)
    assert unknown_partition() == refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
