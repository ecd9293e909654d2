"""What one ShareFetch brought of one partition: records that were acquired, gaps, and what cannot be read.

An answer holds whole batches, and says which offsets were acquired (consumer/share_consumers.md rules 7 and 8).

Source: ShareCompletedFetch of Kafka's clients 4.3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from proxy.consumer.share_session import ShareSession
from proxy.wire.compression import CodecMissing
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.fetched_records import fetched_records
from proxy.wire.record_views import LazyRecords
from proxy.wire.records import iter_batches
from proxy.wire.values import TopicPartition


class Acquired(NamedTuple):
    """Neighbouring offsets that were acquired at once."""

    first: int
    last: int
    delivery_count: int


class AcquiredChunk(NamedTuple):
    """As it came."""

    partition: TopicPartition
    session: ShareSession
    records: Any
    """Bytes of whole batches."""
    acquired: tuple[Acquired, ...]
    """Ascending, without overlap."""
    lock_until: float
    """When the acquisition locks end, as far as we know; seconds, monotonic."""


class AcquiredRecords(NamedTuple):
    """Records that were delivered equally often."""

    records: LazyRecords
    delivery_count: int


class OpenedShareChunk(NamedTuple):
    """A chunk whose records were found."""

    parts: list[AcquiredRecords]
    gaps: list[int]
    """Acquired offsets at which there is no record: markers, and what compaction took away."""
    bad: list[int]
    """Acquired offsets in a batch that is wrong."""
    unread: list[int]
    """Acquired offsets that others may be able to read: a codec is missing here."""
    trouble: str = ""
    """What is wrong."""


def opened_share_chunk(chunk: AcquiredChunk, *, check_crcs: bool = True) -> OpenedShareChunk:
    """Find the acquired records of a chunk."""
    found = OpenedShareChunk([], [], [], [])
    data, first = memoryview(chunk.records), chunk.acquired[0].first
    troubles: list[str] = []
    while True:  # ends: each turn leaves at least one batch behind
        behind, trouble = _read(found, data, first, chunk.acquired, check_crcs)
        if trouble is None:
            found.gaps.extend(_offsets(chunk.acquired, behind, chunk.acquired[-1].last))
            return found._replace(trouble="; ".join(dict.fromkeys(troubles)))
        troubles.append(str(trouble))
        wrong = _batch_at(data, behind)
        last = chunk.acquired[-1].last if wrong is None else wrong[0]
        where = found.unread if wrong is None or isinstance(trouble, CodecMissing) else found.bad
        where.extend(_offsets(chunk.acquired, behind, last))
        if wrong is None or last >= chunk.acquired[-1].last:
            return found._replace(trouble="; ".join(dict.fromkeys(troubles)))
        data, first = data[wrong[1] :], last + 1


def _read(
    found: OpenedShareChunk, data: memoryview, first: int, acquired: tuple[Acquired, ...], check_crcs: bool
) -> tuple[int, RemoteProtocolError | CodecMissing | None]:
    """Read until something is wrong. Returns: the offset behind what was read, and what is wrong there."""
    if not len(data):
        return first, None
    try:
        for run in fetched_records(data, first, check_crcs=check_crcs):
            end = run.next_offset - 1
            _take(found, run.records, _within(acquired, first, end))
            first = max(first, run.next_offset)
    except (RemoteProtocolError, CodecMissing) as error:
        return first, error
    return first, None


def _take(found: OpenedShareChunk, records: LazyRecords, acquired: Iterable[Acquired]) -> None:
    offsets = records.positions.offsets
    for first, last, delivery_count in acquired:
        begin, end = bisect_left(offsets, first), bisect_right(offsets, last)
        if end > begin:
            found.parts.append(AcquiredRecords(records[begin:end], delivery_count))
        if end - begin < last - first + 1:
            found.gaps.extend(sorted({*range(first, last + 1)}.difference(offsets[begin:end])))


def _within(acquired: Iterable[Acquired], first: int, last: int) -> Iterator[Acquired]:
    """The parts of acquired offsets that lie in a range."""
    for each in acquired:
        begin, end = max(each.first, first), min(each.last, last)
        if begin <= end:
            yield Acquired(begin, end, each.delivery_count)


def _offsets(acquired: Iterable[Acquired], first: int, last: int) -> Iterator[int]:
    for each in _within(acquired, first, last):
        yield from range(each.first, each.last + 1)


def _batch_at(data: memoryview, offset: int) -> tuple[int, int] | None:
    """Last offset and end of the batch that holds the offset, or the next behind it; None: the bytes are no batches."""
    try:
        for header in iter_batches(data):
            if header.last_offset >= offset:
                return header.last_offset, header.end
    except RemoteProtocolError:
        pass
    return None
