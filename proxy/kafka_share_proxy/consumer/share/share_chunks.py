"""Records of one partition in one ShareFetch response: acquired records, gaps, and unreadable batches.

Rules: consumer/share_consumers.md 7 and 8.

Source: ShareCompletedFetch of Kafka's clients 4.3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.share.share_session import ShareSession
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.compression import CodecMissing
from kafka_share_proxy.wire.records.fetched_records import fetched_records
from kafka_share_proxy.wire.records.record_views import LazyRecords
from kafka_share_proxy.wire.records.records import iter_batches
from kafka_share_proxy.wire.values import TopicPartition


class Acquired(NamedTuple):
    """Consecutive offsets that were acquired together."""

    first: int
    last: int
    delivery_count: int


class AcquiredChunk(NamedTuple):
    """Response data of one partition, not parsed yet."""

    partition: TopicPartition
    session: ShareSession
    records: Any
    acquired: tuple[Acquired, ...]
    """Ascending, without overlap."""
    lock_until: float
    """Expected end of the acquisition locks; seconds, monotonic."""


class AcquiredRecords(NamedTuple):
    """Records with the same delivery count."""

    records: LazyRecords
    delivery_count: int


class OpenedShareBatch(NamedTuple):
    """Contents of one batch of a chunk, or of several small batches."""

    parts: Sequence[AcquiredRecords] = ()
    gaps: Sequence[int] = ()
    """Acquired offsets without a record: control records and compacted records."""
    bad: Sequence[int] = ()
    """Acquired offsets in a corrupt batch."""
    unread: Sequence[int] = ()
    """Acquired offsets of a batch without an installed codec."""
    trouble: str = ""


def opened_share_chunk(chunk: AcquiredChunk, *, check_crcs: bool = True) -> Iterator[OpenedShareBatch]:
    """Yield the acquired records of a chunk by batch. Each batch is opened only when requested."""
    data, first, end = memoryview(chunk.records), chunk.acquired[0].first, chunk.acquired[-1].last
    while True:  # terminates: each iteration consumes at least one batch
        trouble: RemoteProtocolError | CodecMissing | None = None
        try:
            for run in fetched_records(data, first, check_crcs=check_crcs) if len(data) else ():
                yield _opened(run.records, _within(chunk.acquired, first, run.next_offset - 1))
                first = max(first, run.next_offset)
        except (RemoteProtocolError, CodecMissing) as error:
            trouble = error
        if trouble is None:
            yield OpenedShareBatch(gaps=list(_offsets(chunk.acquired, first, end)))
            return
        bad_batch = _batch_at(data, first)
        last = end if bad_batch is None else bad_batch[0]
        offsets = list(_offsets(chunk.acquired, first, last))
        if bad_batch is None or isinstance(trouble, CodecMissing):
            yield OpenedShareBatch(unread=offsets, trouble=str(trouble))
        else:
            yield OpenedShareBatch(bad=offsets, trouble=str(trouble))
        if bad_batch is None or last >= end:
            return
        data, first = data[bad_batch[1] :], last + 1


def _opened(records: LazyRecords, acquired: Iterable[Acquired]) -> OpenedShareBatch:
    parts: list[AcquiredRecords] = []
    gaps: list[int] = []
    offsets = records.positions.offsets
    for first, last, delivery_count in acquired:
        begin, end = bisect_left(offsets, first), bisect_right(offsets, last)
        if end > begin:
            parts.append(AcquiredRecords(records[begin:end], delivery_count))
        if end - begin < last - first + 1:
            gaps.extend(sorted({*range(first, last + 1)}.difference(offsets[begin:end])))
    return OpenedShareBatch(parts, gaps)


def _within(acquired: Iterable[Acquired], first: int, last: int) -> Iterator[Acquired]:
    """Yield parts between two offsets, both inclusive."""
    for each in acquired:
        begin, end = max(each.first, first), min(each.last, last)
        if begin <= end:
            yield Acquired(begin, end, each.delivery_count)


def _offsets(acquired: Iterable[Acquired], first: int, last: int) -> Iterator[int]:
    for each in _within(acquired, first, last):
        yield from range(each.first, each.last + 1)


def _batch_at(data: memoryview, offset: int) -> tuple[int, int] | None:
    """Return last offset and end of the batch with an offset, or None if the bytes are not batches."""
    try:
        for header in iter_batches(data):
            if header.last_offset >= offset:
                return header.last_offset, header.end
    except RemoteProtocolError:
        pass
    return None
