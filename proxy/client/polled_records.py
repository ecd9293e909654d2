"""Records as the application gets them: opened on its side of the channel, made when somebody looks at them.

Theory of operation. The network side keeps record batches as they came (`FetchedChunk`). `opened` finds the records of
a chunk, which checks checksums and opens what is compressed. A batch that is wrong ends its chunk: what stands before
it is good, and the position stays at the wrong one (client/README.md rule 15).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, overload

from proxy.consumer.events import ConsumerError
from proxy.consumer.fetch_requests import FetchedChunk
from proxy.consumer.key_filter import KeyFilter
from proxy.consumer.partitions import Flow, OffsetAndMetadata, Partitions
from proxy.wire.compression import CodecMissing
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.fetched_records import fetched_records
from proxy.wire.record_views import BUILT_AT_ONCE, LazyRecords
from proxy.wire.records import Record
from proxy.wire.values import TopicPartition

NO_EPOCH = -1


class RecordsUnreadable(ConsumerError):
    """A record batch cannot be read; `seek` behind it to go on without it."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str, flow: Flow = Flow.MAIN) -> None:
        self.partition = partition
        self.flow = flow
        self.offset = offset
        """The position, which is not moved on."""
        super().__init__(f"{partition} at offset {offset}: {reason}")


class ConsumerRecord(NamedTuple):
    """A record and where it came from (org.apache.kafka.clients.consumer.ConsumerRecord)."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    """Milliseconds since 1970."""
    offset: int
    timestamp_type: int
    """0: the producer set the timestamp, 1: the broker did when it appended."""

    @property
    def flow(self) -> Flow:
        """CHILD: it is of what a crash left behind (KIP-333)."""
        return Flow.MAIN


class LateRecord(ConsumerRecord):
    """One of what a crash left behind."""

    __slots__ = ()

    @property
    def flow(self) -> Flow:
        """Always CHILD."""
        return Flow.CHILD


_KINDS: Mapping[Flow, type[ConsumerRecord]] = {Flow.MAIN: ConsumerRecord, Flow.CHILD: LateRecord}


class PartitionRecords(NamedTuple):
    """What one poll brought of one partition, or a part of it."""

    partition: TopicPartition
    records: LazyRecords
    next_offset: int
    """Where to go on once they are processed: also past markers and what compaction took away."""
    leader_epoch: int
    flow: Flow = Flow.MAIN

    def cut(self, count: int) -> tuple[PartitionRecords | None, PartitionRecords | None]:
        """The first so many records, and the others; None where there are none."""
        if len(self.records) <= count:
            return self, None
        if count <= 0:
            return None, self
        later = self.records[count:]
        first = self._replace(records=self.records[:count], next_offset=later.positions.offsets[0])
        return first, self._replace(records=later)


class PolledRecords(Sequence[ConsumerRecord]):
    """The records of one poll, in order within each partition."""

    def __init__(self, parts: Iterable[PartitionRecords] = ()) -> None:
        self.parts: tuple[PartitionRecords, ...] = tuple(parts)
        """As they came; a partition may be in several of them."""
        self._count = sum(len(part.records) for part in self.parts)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        if isinstance(index, slice):
            return list(self)[index]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        for part in self.parts:
            if at < len(part.records):
                return _with_origin(part, part.records[at])
            at -= len(part.records)
        raise IndexError(index)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return chain.from_iterable(part.records.iterated(_KINDS[part.flow], part.partition) for part in self.parts)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {', '.join(map(str, sorted(self.partitions))) or 'no partition'}>"

    @property
    def partitions(self) -> Partitions:
        """Of which there are records."""
        return frozenset(part.partition for part in self.parts if len(part.records))

    def counts(self) -> Mapping[str, int]:
        """How many records of each flow, by its name."""
        child = sum(len(part.records) for part in self.parts if part.flow is Flow.CHILD)
        return {Flow.MAIN.value: len(self) - child, Flow.CHILD.value: child}

    def of(self, partition: TopicPartition) -> Iterator[Record]:
        """The records of one partition, without its name: the quickest way to read them."""
        return chain.from_iterable(part.records for part in self.parts if part.partition == partition)

    def pieces(self) -> Iterator[tuple[PartitionRecords, Sequence[ConsumerRecord]]]:
        """The records in lists that are made when they are asked for, each with the part that it is of."""
        for part in self.parts:
            first, rest = part.cut(BUILT_AT_ONCE)
            while first is not None:
                yield first, list(first.records.iterated(_KINDS[part.flow], part.partition))
                first, rest = (None, None) if rest is None else rest.cut(BUILT_AT_ONCE)

    def next_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What to commit once all of them are processed (KIP-1094)."""
        return {
            part.partition: OffsetAndMetadata(part.next_offset, leader_epoch=part.leader_epoch) for part in self.parts
        }


class MadeRecords(PolledRecords):
    """Records that were made already, all or some of their parts, and perhaps changed."""

    def __init__(self, parts: Iterable[PartitionRecords], records: Iterable[ConsumerRecord]) -> None:
        super().__init__(parts)
        self._records = tuple(records)

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        return list(self._records[index]) if isinstance(index, slice) else self._records[index]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self._records)

    @property
    def partitions(self) -> Partitions:
        """Of which there are records."""
        return frozenset(TopicPartition(each.topic, each.partition) for each in self._records)

    def counts(self) -> Mapping[str, int]:
        """How many records of each flow, by its name."""
        child = sum(1 for each in self._records if each.flow is Flow.CHILD)
        return {Flow.MAIN.value: len(self) - child, Flow.CHILD.value: child}

    def of(self, partition: TopicPartition) -> Iterator[Record]:
        """The records of one partition, without its name."""
        return (Record(*each[2:]) for each in self._records if (each.topic, each.partition) == partition)

    def pieces(self) -> Iterator[tuple[PartitionRecords, Sequence[ConsumerRecord]]]:
        """The records of each part; one that no part has comes with the first part."""
        of_part: list[list[ConsumerRecord]] = [[] for _ in self.parts]
        ends: dict[tuple[TopicPartition, Flow], list[tuple[int, int]]] = {}
        for number, part in enumerate(self.parts):
            ends.setdefault((part.partition, part.flow), []).append((part.next_offset, number))
        for record in self._records:
            known = ends.get((TopicPartition(record.topic, record.partition), record.flow), ())
            of_part[next((number for end, number in known if record.offset < end), 0)].append(record)
        return zip(self.parts, of_part, strict=True)


class OpenedChunk(NamedTuple):
    """A chunk whose records were found."""

    parts: tuple[PartitionRecords, ...]
    error: RecordsUnreadable | None = None
    """What is wrong behind them; the position stays there."""


def opened(
    chunk: FetchedChunk, *, read_committed: bool, check_crcs: bool = True, key_filter: KeyFilter | None = None
) -> OpenedChunk:
    """Find the records of a chunk, from its first offset on, to where it is to end.

    Args:
        chunk: as it came.
        read_committed: leave out what was aborted.
        check_crcs: compare checksums.
        key_filter: what is wanted; it has been looked at where the proxy has filtered.
    """
    found = _opened(chunk, read_committed=read_committed, check_crcs=check_crcs)
    if key_filter is None or chunk.is_filtered:
        return found
    return found._replace(parts=tuple(wanted for part in found.parts for wanted in _wanted(part, key_filter)))


def _opened(chunk: FetchedChunk, *, read_committed: bool, check_crcs: bool) -> OpenedChunk:
    parts: list[PartitionRecords] = []
    until = math.inf if chunk.until is None else chunk.until
    aborted = chunk.aborted if read_committed else None
    position, epoch = chunk.first, NO_EPOCH
    try:
        for found in fetched_records(chunk.records, chunk.first, aborted, check_crcs=check_crcs):
            position, epoch = found.next_offset, found.leader_epoch
            if position > until:
                records = found.records.before_offset(chunk.next_offset)
                parts.append(PartitionRecords(chunk.partition, records, chunk.next_offset, epoch, chunk.flow))
                break
            parts.append(PartitionRecords(chunk.partition, found.records, position, epoch, chunk.flow))
    except (RemoteProtocolError, CodecMissing) as error:
        return OpenedChunk(tuple(parts), RecordsUnreadable(chunk.partition, position, str(error), chunk.flow))
    if position < chunk.next_offset:
        parts.append(PartitionRecords(chunk.partition, LazyRecords(), chunk.next_offset, epoch, chunk.flow))
    return OpenedChunk(tuple(parts))


def _wanted(part: PartitionRecords, key_filter: KeyFilter) -> list[PartitionRecords]:
    """What a broker does not leave out; the last part goes as far as the whole did."""
    unwanted = [(offset, offset) for offset in key_filter.unwanted(part.records)]
    if not unwanted:
        return [part]
    runs = part.records.outside(unwanted)
    found = [part._replace(records=run, next_offset=run[-1].offset + 1) for run in runs]
    return [*found, part._replace(records=part.records[:0])]


def _with_origin(part: PartitionRecords, record: Record) -> ConsumerRecord:
    return _KINDS[part.flow](part.partition.topic, part.partition.partition, *record)
