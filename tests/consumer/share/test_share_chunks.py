"""Acquired records of the batches of a response."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.share.share_chunks import Acquired, AcquiredChunk, OpenedShareBatch, opened_share_chunk
from kafka_share_proxy.consumer.share.share_session import ShareSession
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

P0 = TopicPartition("p", 0)


def batch(first: int, count: int, **options: Any) -> bytes:
    return records.build_batch(first, [Record(value=b"%d" % n) for n in range(first, first + count)], **options)


def opened(data: bytes, *acquired: tuple[int, int, int]) -> OpenedShareBatch:
    """Open all batches of a chunk. Return them as one."""
    chunk = AcquiredChunk(P0, ShareSession(1), data, tuple(Acquired(*each) for each in acquired), 0.0)
    batches = list(opened_share_chunk(chunk))
    return OpenedShareBatch(
        [part for each in batches for part in each.parts],
        [offset for each in batches for offset in each.gaps],
        [offset for each in batches for offset in each.bad],
        [offset for each in batches for offset in each.unread],
        "; ".join(each.trouble for each in batches if each.trouble),
    )


def offsets(batch_opened: OpenedShareBatch) -> list[tuple[list[int], int]]:
    return [(list(part.records.positions.offsets), part.delivery_count) for part in batch_opened.parts]


def test_only_what_was_acquired_is_found() -> None:
    opened_batch = opened(batch(0, 10) + batch(10, 10), (3, 4, 1), (8, 11, 2))
    assert offsets(opened_batch)[0] == ([3, 4], 1)
    assert [each for part, count in offsets(opened_batch)[1:] for each in part if count == 2] == [8, 9, 10, 11]
    assert (opened_batch.gaps, opened_batch.bad, opened_batch.unread, opened_batch.trouble) == ([], [], [], "")
    assert [record.value for record in opened_batch.parts[0].records] == [b"3", b"4"]


def test_offsets_without_a_record_are_gaps() -> None:
    """Compaction took away 3 to 6, and the acquired range continues after the last batch."""
    opened_batch = opened(batch(0, 3) + batch(7, 2), (0, 10, 1))
    assert [each for part, _ in offsets(opened_batch) for each in part] == [0, 1, 2, 7, 8]
    assert sorted(opened_batch.gaps) == [3, 4, 5, 6, 9, 10]


def test_a_response_without_batches_has_only_gaps() -> None:
    opened_batch = opened(b"", (4, 6, 1))
    assert (opened_batch.parts, opened_batch.gaps) == ([], [4, 5, 6])


def test_markers_are_gaps() -> None:
    marker = records.build_batch(3, [Record(value=b"")], is_control=True, is_transactional=True)
    assert opened(batch(0, 3) + marker, (0, 3, 1)).gaps == [3]


def test_a_batch_with_a_wrong_checksum_is_rejected_and_the_next_one_read() -> None:
    broken = bytearray(batch(5, 5))
    broken[-1] ^= 1
    opened_batch = opened(batch(0, 5) + bytes(broken) + batch(10, 5), (0, 14, 1))
    assert [each for part, _ in offsets(opened_batch) for each in part] == [*range(5), *range(10, 15)]
    assert opened_batch.bad == list(range(5, 10))
    assert opened_batch.gaps == []
    assert "checksum" in opened_batch.trouble


def test_bytes_that_are_no_batches_are_left_to_others() -> None:
    opened_batch = opened(batch(0, 3) + b"\0" * 40, (0, 6, 1))
    assert [each for part, _ in offsets(opened_batch) for each in part] == [0, 1, 2]
    assert sorted(opened_batch.unread) == [3, 4, 5, 6]
    assert opened_batch.trouble


def test_records_of_a_batch_whose_codec_is_missing_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = batch(0, 3, codec=compression.GZIP)

    def missing(*_: object) -> bytes:
        raise compression.CodecMissing("gzip is not installed")

    monkeypatch.setattr(compression, "decompress", missing)
    opened_batch = opened(packed + batch(3, 2), (0, 4, 1))
    assert [each for part, _ in offsets(opened_batch) for each in part] == [3, 4]
    assert opened_batch.unread == [0, 1, 2]
    assert "gzip" in opened_batch.trouble
