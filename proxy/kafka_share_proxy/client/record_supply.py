"""Opened records that are not returned yet: the application's end of the fetch buffer (client/README.md rules 15 and
37).

Remaining records are kept for the next poll, and dropped if their position moves in the meantime. Records of partitions
that are paused or being revoked are kept for that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from kafka_share_proxy.client.polled_records import PartitionRecords, RecordsUnreadable, open_chunk
from kafka_share_proxy.consumer.core import ConsumerCore
from kafka_share_proxy.consumer.fetch.fetch_requests import FetchedChunk, FetchRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.wire.records.records import OPENED_BYTES_MAX
from kafka_share_proxy.wire.values import TopicPartition

POLL_BYTES_MAX = 1 << 20
"""Bytes of received batches that one poll takes. At least one chunk is taken."""

Room = Callable[[TopicPartition], int]
"""Function that returns the number of records of a partition that may be returned."""


class _ChunkReader:
    """A chunk whose batches are opened one by one."""

    __slots__ = ("_check_crcs", "_head", "_options", "_parts", "_position", "_source", "chunk", "opened_bytes")

    def __init__(self, chunk: FetchedChunk, options: ConsumerOptions, *, check_crcs: bool) -> None:
        self.chunk = chunk
        self.opened_bytes = 0
        """Bytes of the last part, in addition to those of the chunk."""
        self._options = options
        self._check_crcs = check_crcs
        self._position = chunk.first
        self._source = memoryview(chunk.records).obj
        self._head: PartitionRecords | None = None
        self._parts = self._opened()

    def _opened(self) -> Iterator[PartitionRecords]:
        return open_chunk(
            self.chunk._replace(first=self._position),
            read_committed=self._options.read_committed,
            check_crcs=self._check_crcs,
            key_filter=self._options.key_filter,
        )

    def part(self) -> PartitionRecords | None:
        """Return the next part, which stays until it is taken; None at the end. Raises RecordsUnreadable."""
        if self._head is None:
            self._head = head = next(self._parts, None)
            self.opened_bytes = 0 if head is None else head.records.extra_bytes(self._source)
        return self._head

    def advance(self, rest: PartitionRecords | None, next_offset: int) -> None:
        """Continue with the rest of the part, or after it.

        Args:
            rest: remaining records of the part. None if there are none.
            next_offset: position after the records taken.
        """
        self._head, self._position = rest, next_offset

    @property
    def held_bytes(self) -> int:
        """Bytes of memory of what is opened and not taken."""
        return 0 if self._head is None else self.opened_bytes

    def close(self) -> None:
        """Drop the opened batch. It is opened again on demand."""
        self._head = None
        self._parts = self._opened()


class RecordSupply:
    """Records for one flow of one consumer, built from its fetches."""

    def __init__(self, core: ConsumerCore, fetches: FetchRequests | None = None, *, check_crcs: bool = True) -> None:
        """Use the buffer of the main flow, unless another is passed."""
        self._core = core
        self._fetches = fetches or core.fetches
        self._check_crcs = check_crcs
        self._ready: deque[_ChunkReader] = deque()

    def take(
        self, records_max: int, room: Room, bytes_max: int = POLL_BYTES_MAX, *, may_raise: bool = True
    ) -> list[PartitionRecords]:
        """Return records as parts of batches. Positions do not change. A part may be empty, for example past control
        records.

        Raises:
            RecordsUnreadable: the next batch cannot be read. Its position stays, and it is read again. Without
                `may_raise`, a later call raises it.
        """
        parts = self._take_ready(records_max, room, may_raise)
        if not parts and records_max > 0:
            options = self._core.options
            chunks = self._fetches.take(bytes_max)
            self._ready.extend(_ChunkReader(each, options, check_crcs=self._check_crcs) for each in chunks)
            parts = self._take_ready(records_max, room, may_raise)
        return parts

    def _take_ready(self, records_max: int, room: Room, may_raise: bool) -> list[PartitionRecords]:
        collector = _PartCollector(records_max, room)
        retained: deque[_ChunkReader] = deque()
        try:
            while self._ready and not collector.is_full:
                reader = self._ready.popleft()
                if self._fetches.is_stale(reader.chunk):
                    continue
                if not self._fetches.may_return(reader.chunk) or not collector.add_from(reader, may_raise=may_raise):
                    retained.append(reader)
        finally:
            _close_beyond_budget(retained, keep_last=collector.is_full)
            self._ready.extendleft(reversed(retained))
        return collector.parts


class _PartCollector:
    """Parts of chunks that one poll takes."""

    def __init__(self, records_max: int, room: Room) -> None:
        self.parts: list[PartitionRecords] = []
        self._remaining = records_max
        self._room = room
        self._rooms: dict[TopicPartition, int] = {}
        self._partitions_with_rest: set[TopicPartition] = set()
        """Partitions with kept records, before any later ones."""
        self._opened = 0

    @property
    def is_full(self) -> bool:
        """True if the poll has all records that it needs, or has reached the limit of opened bytes."""
        return self._remaining <= 0 or self._opened >= OPENED_BYTES_MAX

    def add_from(self, reader: _ChunkReader, *, may_raise: bool) -> bool:
        """Take as many records of a chunk as allowed. Return True at its end. Raises RecordsUnreadable."""
        partition = reader.chunk.partition
        if partition in self._partitions_with_rest:
            return False
        room = self._rooms.get(partition)
        room = self._room(partition) if room is None else room
        while not self.is_full:
            try:
                part = reader.part()
            except RecordsUnreadable:
                if may_raise and not self.parts:
                    raise
                reader.close()
                break
            if part is None:
                self._rooms[partition] = room
                return True
            now, later = part.cut(min(self._remaining, room))
            if now is not None:
                self.parts.append(now)
                count = len(now.records)
                self._remaining -= count
                room -= count
                self._opened += reader.opened_bytes
                reader.advance(later, now.next_offset)
            if later is not None:
                break
        self._partitions_with_rest.add(partition)
        return False


def _close_beyond_budget(readers: deque[_ChunkReader], *, keep_last: bool) -> None:
    """Drop opened batches that no poll may return now, where they take too much memory together.

    Args:
        readers: chunks that this poll has passed over, or not taken to their end.
        keep_last: True if the poll was full: then it stopped at the last one, with which the next poll begins.
    """
    waiting = list(readers)[: -1 if keep_last else None]
    held_bytes = sum(each.held_bytes for each in waiting)
    for each in waiting:
        if held_bytes <= OPENED_BYTES_MAX:
            return
        held_bytes -= each.held_bytes
        each.close()
