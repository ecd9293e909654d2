"""Records as the application gets them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from kafka_share_proxy.client import polled_records
from kafka_share_proxy.client.polled_records import ConsumerRecord, PartitionRecords, PolledRecords, RecordsUnreadable
from kafka_share_proxy.consumer.fetch.fetch_requests import FetchedChunk
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.records.records import Record, build_batch
from kafka_share_proxy.wire.values import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def batch(first: int, count: int, epoch: int = 3) -> bytes:
    return build_batch(first, [Record(value=b"%d" % n) for n in range(first, first + count)], leader_epoch=epoch)


def chunk(data: bytes, first: int, next_offset: int, partition: TopicPartition = A0) -> FetchedChunk:
    return FetchedChunk(
        partition=partition,
        records=memoryview(data),
        first=first,
        next_offset=next_offset,
        aborted=(),
        high_watermark=next_offset,
        last_stable_offset=next_offset,
        moves=0,
    )


class Opened(NamedTuple):
    """All parts of a chunk, and the error after them."""

    parts: list[PartitionRecords]
    error: RecordsUnreadable | None


def opened(source: FetchedChunk, **settings: Any) -> Opened:
    parts: list[PartitionRecords] = []
    try:
        parts.extend(polled_records.open_chunk(source, **settings))
    except RecordsUnreadable as error:
        return Opened(parts, error)
    return Opened(parts, None)


def test_records_begin_at_the_offset_that_was_requested() -> None:
    opened_chunk = opened(chunk(batch(0, 5) + batch(5, 5), 3, 10), read_committed=False)
    assert opened_chunk.error is None
    records = PolledRecords(opened_chunk.parts)
    assert [record.offset for record in records] == list(range(3, 10))
    assert records.next_offsets() == {A0: OffsetAndMetadata(10, leader_epoch=3)}


def test_polled_records_are_a_sequence() -> None:
    parts = [*opened(chunk(batch(0, 3), 0, 3), read_committed=False).parts]
    parts += opened(chunk(batch(7, 2), 7, 9, A1), read_committed=False).parts
    records = PolledRecords(parts)
    assert len(records) == 5
    assert isinstance(records[0], ConsumerRecord)
    assert [(each.partition, each.offset) for each in (records[0], records[3], records[-1])] == [(0, 0), (1, 7), (1, 8)]
    assert [each.offset for each in records[1:4]] == [1, 2, 7]
    assert [each.offset for each in records.of(A1)] == [7, 8]
    assert records.partitions == {A0, A1}
    assert repr(records) == "<5 records of a-0, a-1>"
    with pytest.raises(IndexError):
        records[5]
    assert not PolledRecords()


def test_a_corrupt_batch_ends_a_chunk_and_names_partition_and_offset() -> None:
    broken = bytearray(batch(3, 2))
    broken[-1] ^= 1
    opened_chunk = opened(chunk(batch(0, 3) + bytes(broken) + batch(5, 1), 0, 6), read_committed=False)
    assert [record.offset for record in PolledRecords(opened_chunk.parts)] == [0, 1, 2]
    assert opened_chunk.error is not None
    assert (opened_chunk.error.partition, opened_chunk.error.offset) == (A0, 3)
    assert "a-0 at offset 3: the checksum" in str(opened_chunk.error)


def test_checksums_are_compared_by_default() -> None:
    data = bytearray(batch(3, 2))
    data[17] ^= 1  # of the checksum itself
    assert opened(chunk(bytes(data), 3, 5), read_committed=False).error is not None
    assert opened(chunk(bytes(data), 3, 5), read_committed=False, check_crcs=False).error is None


def test_the_position_goes_past_a_chunk_without_records() -> None:
    opened_chunk = opened(chunk(batch(0, 3), 3, 3), read_committed=False)
    assert len(PolledRecords(opened_chunk.parts)) == 0
