"""Records as returned to the application. Batches are opened on its side of the channel, records built on access.

A corrupt batch ends its chunk: the records before it are valid, and the position stays at the corrupt batch
(client/README.md rule 15).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple, overload

from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.consumer.fetch.fetch_requests import FetchedChunk
from kafka_share_proxy.consumer.fetch.key_filter import KeyFilter
from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata, Partitions
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.compression import CodecMissing
from kafka_share_proxy.wire.records.fetched_records import fetched_records
from kafka_share_proxy.wire.records.record_views import BUILT_AT_ONCE, LazyRecords
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import TopicPartition

NO_EPOCH = -1


class RecordsUnreadable(ConsumerError):
    """A record batch cannot be read. To continue without it, `seek` to an offset after it."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str, flow: Flow = Flow.MAIN) -> None:
        self.partition = partition
        self.flow = flow
        self.offset = offset
        """Position of the partition, which does not advance."""
        super().__init__(f"{partition} at offset {offset}: {reason}")


class ConsumerRecord(NamedTuple):
    """A record with its topic, partition and offset (org.apache.kafka.clients.consumer.ConsumerRecord)."""

    topic: str
    partition: int
    key: Any
    """bytes or None, unless a key deserializer made something else of it."""
    value: Any
    """bytes or None, unless a value deserializer made something else of it."""
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    """Milliseconds since 1970."""
    offset: int
    timestamp_type: int
    """0: the producer set the timestamp, 1: the broker did when it appended."""

    @property
    def flow(self) -> Flow:
        """Flow of the record. CHILD if a crash left it unread and it is caught up with (KIP-333)."""
        return Flow.MAIN


class LateRecord(ConsumerRecord):
    """Record of the second flow, which catches up after a crash."""

    __slots__ = ()

    @property
    def flow(self) -> Flow:
        """Always CHILD."""
        return Flow.CHILD


_KINDS: Mapping[Flow, type[ConsumerRecord]] = {Flow.MAIN: ConsumerRecord, Flow.CHILD: LateRecord}


class PartitionRecords(NamedTuple):
    """Records of one partition in one poll, or a part of them."""

    partition: TopicPartition
    records: LazyRecords
    next_offset: int
    """Offset to continue at after the records. It is also past control records and compacted records."""
    leader_epoch: int
    flow: Flow = Flow.MAIN

    def cut(self, count: int) -> tuple[PartitionRecords | None, PartitionRecords | None]:
        """Split into the first `count` records and the rest. Either is None if it is empty."""
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
        """Parts in the order received. A partition may be in several of them."""
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
        """Partitions with at least one record."""
        return frozenset(part.partition for part in self.parts if len(part.records))

    def counts(self) -> Mapping[str, int]:
        """Return the number of records of each flow, by its name."""
        child = sum(len(part.records) for part in self.parts if part.flow is Flow.CHILD)
        return {Flow.MAIN.value: len(self) - child, Flow.CHILD.value: child}

    def of(self, partition: TopicPartition) -> Iterator[Record]:
        """Return the records of one partition, without its name. This is the fastest way to read them."""
        return chain.from_iterable(part.records for part in self.parts if part.partition == partition)

    def pieces(self) -> Iterator[tuple[Sequence[PartitionRecords], Sequence[ConsumerRecord]]]:
        """Yield the records in pieces of one partition and flow, each with the parts that it consists of."""
        for _, parts in groupby(self.parts, attrgetter("partition", "flow")):
            piece, room = [], BUILT_AT_ONCE
            for part in parts:
                rest: PartitionRecords | None = part
                while rest is not None:
                    first, rest = rest.cut(room)
                    if first is not None:
                        piece.append(first)
                        room -= len(first.records)
                    if rest is not None:
                        yield piece, Piece(piece)
                        piece, room = [], BUILT_AT_ONCE
            if piece:
                yield piece, Piece(piece)

    def next_offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit once all records are processed (KIP-1094)."""
        return {
            part.partition: OffsetAndMetadata(part.next_offset, leader_epoch=part.leader_epoch) for part in self.parts
        }


class Piece(PolledRecords):
    """Records of one partition and flow, whose iterators know how many records are left."""

    def __iter__(self) -> Iterator[ConsumerRecord]:
        iterator: Iterator[ConsumerRecord] = iter(())
        for number, part in enumerate(reversed(self.parts)):
            records, kind = part.records, _KINDS[part.flow]
            after = iterator if number else None
            iterator = records.positions.iterate(records.area, kind, records.timestamp_type, part.partition, after)
        return iterator


class BuiltRecords(PolledRecords):
    """Records that are already built. They may be a selection of the records of their parts, and may be changed."""

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
        """Partitions with at least one record."""
        return frozenset(TopicPartition(each.topic, each.partition) for each in self._records)

    def counts(self) -> Mapping[str, int]:
        """Return the number of records of each flow, by its name."""
        child = sum(1 for each in self._records if each.flow is Flow.CHILD)
        return {Flow.MAIN.value: len(self) - child, Flow.CHILD.value: child}

    def of(self, partition: TopicPartition) -> Iterator[Record]:
        """Return the records of one partition, without its name."""
        return (Record(*each[2:]) for each in self._records if (each.topic, each.partition) == partition)

    def pieces(self) -> Iterator[tuple[Sequence[PartitionRecords], Sequence[ConsumerRecord]]]:
        """Return the records of each part. A record that belongs to no part is returned with the first part."""
        of_part: list[list[ConsumerRecord]] = [[] for _ in self.parts]
        ends: dict[tuple[TopicPartition, Flow], list[tuple[int, int]]] = {}
        for number, part in enumerate(self.parts):
            ends.setdefault((part.partition, part.flow), []).append((part.next_offset, number))
        for record in self._records:
            known = ends.get((TopicPartition(record.topic, record.partition), record.flow), ())
            of_part[next((number for end, number in known if record.offset < end), 0)].append(record)
        return zip(((part,) for part in self.parts), of_part, strict=True)


def open_chunk(
    chunk: FetchedChunk, *, read_committed: bool, check_crcs: bool = True, key_filter: KeyFilter | None = None
) -> Iterator[PartitionRecords]:
    """Return the records of a chunk, from its first offset up to its end.

    A batch is opened when its part is requested, so that only one opened batch is in memory.

    Args:
        chunk: data as received.
        read_committed: leave out aborted records.
        check_crcs: compare checksums.
        key_filter: keys to return. Not applied if the proxy has filtered the chunk.

    Raises:
        RecordsUnreadable: a batch is corrupt. All parts before it are valid.
    """
    parts = _open_batches(chunk, read_committed=read_committed, check_crcs=check_crcs)
    if key_filter is None or chunk.is_filtered:
        return parts
    return (selected for part in parts for selected in _select(part, key_filter))


def _open_batches(chunk: FetchedChunk, *, read_committed: bool, check_crcs: bool) -> Iterator[PartitionRecords]:
    until = math.inf if chunk.until is None else chunk.until
    aborted = chunk.aborted if read_committed else None
    position, epoch = chunk.first, NO_EPOCH
    try:
        for fetched in fetched_records(chunk.records, chunk.first, aborted, check_crcs=check_crcs):
            position, epoch = fetched.next_offset, fetched.leader_epoch
            if position > until:
                records = fetched.records.before_offset(chunk.next_offset)
                yield PartitionRecords(chunk.partition, records, chunk.next_offset, epoch, chunk.flow)
                return
            yield PartitionRecords(chunk.partition, fetched.records, position, epoch, chunk.flow)
    except (RemoteProtocolError, CodecMissing) as error:
        raise RecordsUnreadable(chunk.partition, position, str(error), chunk.flow) from error
    if position < chunk.next_offset:
        yield PartitionRecords(chunk.partition, LazyRecords(), chunk.next_offset, epoch, chunk.flow)


def _select(part: PartitionRecords, key_filter: KeyFilter) -> list[PartitionRecords]:
    """Return the records that match a filter, in parts. The last part has no records, but the next offset of all."""
    unwanted = [(offset, offset) for offset in key_filter.unwanted(part.records)]
    if not unwanted:
        return [part]
    runs = part.records.outside(unwanted)
    selected = [part._replace(records=run, next_offset=run[-1].offset + 1) for run in runs]
    return [*selected, part._replace(records=part.records[:0])]


def _with_origin(part: PartitionRecords, record: Record) -> ConsumerRecord:
    return _KINDS[part.flow](part.partition.topic, part.partition.partition, *record)
