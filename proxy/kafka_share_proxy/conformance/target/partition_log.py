"""Log of one partition: batches as they were produced, with their offsets and leader epochs.

There is one copy for all replicas, and the high watermark is the end of the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from kafka_share_proxy.conformance.target.producers import ProducerEntry, record_append
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import BatchHeader, Record
from kafka_share_proxy.wire.values import MIB

LOG_BYTES_MAX = 256 * MIB
"""Maximum bytes of one log. A Produce beyond it gets KAFKA_STORAGE_ERROR."""
UNDEFINED = -1

_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_EPOCH_AT = 12
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")

_last_offset = attrgetter("last_offset")


class LogFull(ProxyError):
    """The log has reached LOG_BYTES_MAX."""


@dataclass(slots=True)
class StoredBatch:
    """One batch of the log."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    data: bytes


@dataclass(slots=True)
class AbortedSpan:
    """An aborted transaction in this partition."""

    producer_id: int
    first_offset: int
    marker_offset: int
    stable_offset: int
    """Last stable offset after the marker."""


class EpochStart(NamedTuple):
    """First offset that a leader epoch wrote."""

    epoch: int
    offset: int


class PartitionLog:
    """Batches, producers and transactions of one partition."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.batches: list[StoredBatch] = []
        self.size = 0
        """Bytes of all batches."""
        self.epochs: list[EpochStart] = []
        self.producers: dict[int, ProducerEntry] = {}
        self.aborted: list[AbortedSpan] = []

    # Writing

    def begin_epoch(self, epoch: int) -> None:
        """Record the first offset of a leader epoch. An epoch that wrote nothing has no entry of that offset."""
        while self.epochs and self.epochs[-1].offset >= self.end:
            self.epochs.pop()
        self.epochs.append(EpochStart(epoch, self.end))

    def append(self, data: bytes, header: BatchHeader, leader_epoch: int) -> int:
        """Append one whole batch of a client. Return its base offset. Raises LogFull."""
        if self.size + len(data) > LOG_BYTES_MAX:
            raise LogFull(f"the log holds {self.size} bytes, the limit is {LOG_BYTES_MAX}: delete records or the topic")
        base, count = self.end, header.last_offset - header.base_offset + 1
        placed = _OFFSET.pack(base) + data[8:_EPOCH_AT] + _EPOCH.pack(leader_epoch) + data[_EPOCH_AT + 4 :]
        self.batches.append(StoredBatch(base, base + count - 1, header.max_timestamp, placed))
        self.size += len(placed)
        self.end = base + count
        if header.producer_id >= 0:
            entry = self.producers.setdefault(header.producer_id, ProducerEntry(header.producer_id))
            record_append(entry, header, base)
        return base

    def append_values(self, values: Sequence[bytes], key: bytes | None, *, leader_epoch: int, now_ms: int) -> int:
        """Append a batch of records. Return its base offset. Raises LogFull."""
        data = records.build_batch(0, [Record(key, value, timestamp=now_ms) for value in values])
        return self.append(data, records.read_header(data), leader_epoch)

    def append_marker(
        self, producer_id: int, epoch: int, *, commits: bool, coordinator_epoch: int, leader_epoch: int, now_ms: int
    ) -> None:
        """End the transaction of a producer with a control batch (EndTransactionMarker)."""
        record = Record(_MARKER_KEY.pack(0, int(commits)), _MARKER_VALUE.pack(0, coordinator_epoch), timestamp=now_ms)
        offset = self.end
        data = records.build_batch(
            offset,
            [record],
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
        )
        self.batches.append(StoredBatch(offset, offset, now_ms, data))
        self.size += len(data)
        self.end = offset + 1
        entry = self.producers.setdefault(producer_id, ProducerEntry(producer_id))
        first, entry.transaction_start = entry.transaction_start, -1
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.coordinator_epoch, entry.last_timestamp = coordinator_epoch, now_ms
        if not commits and first >= 0:
            self.aborted.append(AbortedSpan(producer_id, first, offset, self.stable_offset))

    def truncate(self, offset: int) -> None:
        """Drop all batches that end at or after `offset`, as an unclean leader election does."""
        keep = bisect_left(self.batches, offset, key=_last_offset)
        for batch in self.batches[keep:]:
            self.size -= len(batch.data)
        del self.batches[keep:]
        self.end = self.batches[-1].last_offset + 1 if self.batches else min(max(offset, self.start), self.end)
        self.epochs = [each for each in self.epochs if each.offset < self.end]
        self.aborted = [each for each in self.aborted if each.marker_offset < self.end]
        self._rebuild_producers()

    def delete_before(self, offset: int) -> None:
        """Move the start of the log to `offset`."""
        self.start = offset
        drop = bisect_left(self.batches, offset, key=_last_offset)
        self.size -= sum(len(batch.data) for batch in self.batches[:drop])
        del self.batches[:drop]
        self.aborted = [each for each in self.aborted if each.marker_offset >= offset]
        self._trim_epochs()

    def _trim_epochs(self) -> None:
        before = [each for each in self.epochs if each.offset <= self.start]
        if before:
            self.epochs = [EpochStart(before[-1].epoch, self.start), *self.epochs[len(before) :]]

    def _rebuild_producers(self) -> None:
        self.producers = {}
        for batch in self.batches:
            header = records.read_header(batch.data)
            if header.producer_id < 0:
                continue
            entry = self.producers.setdefault(header.producer_id, ProducerEntry(header.producer_id))
            if header.is_control:
                entry.transaction_start, entry.epoch = -1, header.producer_epoch
            else:
                record_append(entry, header, batch.base_offset)

    # Reading

    @property
    def stable_offset(self) -> int:
        """Last stable offset: before the first open transaction (KIP-98)."""
        return min((e.transaction_start for e in self.producers.values() if e.transaction_start >= 0), default=self.end)

    def read(self, offset: int, upto: int, bytes_max: int, *, at_least_one: bool) -> bytes:
        """Return the batches from the one with `offset` to the last one before `upto`.

        They are cut at `bytes_max` bytes, also within a batch, unless the first is larger and `at_least_one`.
        """
        pieces: list[bytes] = []
        size = 0
        for batch in self._from(offset):
            if batch.base_offset >= upto or size >= bytes_max:
                break
            pieces.append(batch.data)
            size += len(batch.data)
        if size <= bytes_max or not pieces:
            return b"".join(pieces)
        if len(pieces[0]) > bytes_max:
            return pieces[0] if at_least_one else b""
        return b"".join(pieces)[:bytes_max]

    def offset_after(self, offset: int, bytes_max: int, upto: int) -> int:
        """Return an offset after the batches of `read`, for the list of aborted transactions."""
        size = 0
        for batch in self._from(offset):
            size += len(batch.data)
            if size >= bytes_max:
                return min(batch.last_offset + 1, upto)
        return upto

    def whole_batches(self, offset: int, upto: int, bytes_max: int) -> bytes:
        """Return whole batches from the one with `offset` on, the first in any case."""
        pieces: list[bytes] = []
        size = 0
        for batch in self._from(offset):
            if batch.base_offset >= upto or (pieces and size + len(batch.data) > bytes_max):
                break
            pieces.append(batch.data)
            size += len(batch.data)
        return b"".join(pieces)

    def batches_between(self, offset: int, upto: int) -> Iterator[StoredBatch]:
        """Return the batches from the one with `offset` to the last one before `upto`."""
        return (batch for batch in self._from(offset) if batch.base_offset < upto)

    def bytes_between(self, offset: int, upto: int) -> int:
        """Return the bytes of the batches from the one with `offset` to the last one before `upto`."""
        return sum(len(batch.data) for batch in self.batches_between(offset, upto))

    def aborted_between(self, offset: int, upto: int) -> list[AbortedSpan]:
        """Return the aborted transactions whose records may be from `offset` to before `upto`."""
        return [each for each in self.aborted if each.marker_offset >= offset and each.first_offset < upto]

    def _from(self, offset: int) -> Iterator[StoredBatch]:
        for index in range(bisect_left(self.batches, offset, key=_last_offset), len(self.batches)):
            yield self.batches[index]

    # Epochs and timestamps

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch that wrote `offset`, UNDEFINED if there is none."""
        index = bisect_right(self.epochs, offset, key=attrgetter("offset")) - 1
        return self.epochs[index].epoch if index >= 0 else UNDEFINED

    def end_of_epoch(self, epoch: int) -> EpochStart:
        """Return the largest epoch up to `epoch` and the offset after its last record (LeaderEpochFileCache)."""
        if not self.epochs or epoch < 0:
            return EpochStart(UNDEFINED, UNDEFINED)
        if epoch == self.epochs[-1].epoch:
            return EpochStart(epoch, self.end)
        after = bisect_right(self.epochs, epoch, key=attrgetter("epoch"))
        if after == len(self.epochs):
            return EpochStart(UNDEFINED, UNDEFINED)
        if after == 0:
            return EpochStart(epoch, self.epochs[0].offset)
        return EpochStart(self.epochs[after - 1].epoch, self.epochs[after].offset)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record with this timestamp or a later one."""
        for batch in self.batches:
            if batch.max_timestamp >= timestamp:
                for record in records.decode_records(batch.data):
                    if record.timestamp >= timestamp and record.offset >= self.start:
                        return record.timestamp, record.offset
        return None

    def find_max_timestamp(self) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record with the largest timestamp (KIP-734)."""
        if not self.batches:
            return None
        batch = max(self.batches, key=attrgetter("max_timestamp"))
        return next(
            (r.timestamp, r.offset) for r in records.decode_records(batch.data) if r.timestamp == batch.max_timestamp
        )
