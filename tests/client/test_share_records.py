"""Records as an application of a share group gets them."""

from __future__ import annotations

from kafka_share_proxy.client.share_records import share_records
from kafka_share_proxy.consumer.share.share_chunks import Acquired, AcquiredChunk, opened_share_chunk
from kafka_share_proxy.consumer.share.share_core import DeliveredRecords
from kafka_share_proxy.consumer.share.share_session import ShareSession
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

P3 = TopicPartition("p", 3)


def test_a_record_has_its_origin_and_delivery_count() -> None:
    data = records.build_batch(7, [Record(b"k", b"v", [("h", b"1")], 1700), Record(None, None, (), 1701)])
    chunk = AcquiredChunk(P3, ShareSession(1), data, (Acquired(7, 8, 2),), 0.0)
    (part,) = next(opened_share_chunk(chunk)).parts
    first, second = share_records([DeliveredRecords(P3, part.records, part.delivery_count, 41)])
    assert (first.topic, first.partition, first.offset, first.origin) == ("p", 3, 7, P3)
    assert (first.key, first.value, list(first.headers), first.timestamp) == (b"k", b"v", [("h", b"1")], 1700)
    assert (first.delivery_count, first.delivery, first.timestamp_type) == (2, 41, 0)
    assert (second.key, second.value, second.offset) == (None, None, 8)
