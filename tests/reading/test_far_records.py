"""Records that stay where they were read: batches there and back, references, bounds."""

from __future__ import annotations

from kafka_share_proxy.reading.far_records import (
    ELSEWHERE,
    Elsewhere,
    FarSlice,
    HeldRecords,
    encoded_slice,
    holder_of,
)
from kafka_share_proxy.reading.upstream_fetch import whole_batches
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.batches import split_complete
from kafka_share_proxy.wire.records.records import Record

from tests.support.manual_timers import ManualTimers
from tests.support.scripted_cluster import Cluster, Connection


def respond_with(*data: bytes):
    message = registry.message("FetchResponse")
    parts = [message.PartitionData(partition_index=n, records=each) for n, each in enumerate(data)]
    return message(responses=[message.FetchableTopicResponse(topic="t", partitions=parts)])


def batch(offset: int, count: int = 3) -> bytes:
    return bytes(records.build_batch(offset, [Record(b"k", b"v" * 50) for _ in range(count)], producer_id=7))


def far_connection(forgotten: list[int]) -> Connection:
    connection = Connection(Cluster(ManualTimers()), 1)
    ELSEWHERE.put(connection, Elsewhere(9, forgotten.append))
    return connection


def test_references_of_the_owner_are_replaced_by_the_bytes_of_the_batches():
    data = batch(10) + batch(13) + batch(20)[:-5]
    held, forgotten = HeldRecords(1 << 20), list[int]()
    response = respond_with(data, b"")
    held.hold(response, 0)
    here, there = response.responses[0].partitions
    assert not there.records
    connection = far_connection(forgotten)
    batches, far = whole_batches(connection, here.records, 10, 0)
    whole, size = split_complete(memoryview(data))
    rows = [(b.base_offset, b.last_offset, b.position, b.size, b.producer_id, b.records_count) for b in batches]
    assert rows == [(b.base_offset, b.last_offset, b.position, b.size, b.producer_id, b.records_count) for b in whole]
    assert len(far) == size == held.bytes
    part = far[batches[1].position : batches[1].end]
    assert isinstance(part, FarSlice)
    assert len(part) == batches[1].size
    assert bytes(held.records_of(encoded_slice(part))) == batch(13)
    far.forget()
    assert forgotten == [1]
    held.forget(forgotten)
    held.forget(forgotten)
    assert held.bytes == 0
    assert held.records_of(encoded_slice(part)) is None


def test_records_read_by_this_proxy_stay_bytes():
    connection = Connection(Cluster(ManualTimers()), 1)
    batches, retained_bytes = whole_batches(connection, batch(0) + b"cut off", 0, 0)
    assert (len(batches), bytes(retained_bytes), holder_of(connection)) == (1, batch(0), 0)
    assert holder_of(far_connection([])) == 9
    assert len(whole_batches(far_connection([]), b"", 0, 0)[0]) == 0
    assert encoded_slice(b"bytes") == b"bytes"


def test_small_parts_of_large_responses_do_not_keep_them():
    data = memoryview(batch(0) + batch(3, 30)[:-1])
    retained_bytes = whole_batches(Connection(Cluster(ManualTimers()), 1), data, 0, 10_000)[1]
    assert isinstance(retained_bytes, memoryview)
    assert len(retained_bytes.obj) == len(batch(0))


def test_the_oldest_records_are_evicted_above_the_limit():
    held = HeldRecords(len(batch(0)))
    response = respond_with(batch(0), batch(0))
    held.hold(response, 0)
    first, second = (
        whole_batches(far_connection([]), p.records, 0, 0)[1][0:10] for p in response.responses[0].partitions
    )
    assert held.records_of(encoded_slice(first)) is None
    assert held.records_of(encoded_slice(second)) is not None
    assert held.bytes == len(batch(0))


def test_response_without_whole_batches_keeps_nothing():
    held = HeldRecords(1000)
    response = respond_with(batch(0)[:-1])
    held.hold(response, 0)
    assert (held.bytes, response.responses[0].partitions[0].records) == (0, b"")
