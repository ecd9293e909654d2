"""Records of one partition of a Fetch response, as a consumer sees them.

Source: CompletedFetch of Kafka's clients 4.3 (wire/README.md rules 15, 16, 26 and 27). Only one compressed batch, or
one run of uncompressed batches, is open at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import compression, legacy, record_runs, records
from kafka_share_proxy.wire.records.batches import KEPT, AbortedTransaction, Batch, BatchTable, split_complete
from kafka_share_proxy.wire.records.record_views import LazyRecords
from kafka_share_proxy.wire.records.records import DECOMPRESSED_MAX
from kafka_share_proxy.wire.values import MIB

RUN_BYTES = MIB // 4
"""Maximum bytes of adjacent batches that are parsed together."""


class FetchedRecords(NamedTuple):
    """Batches of one kind, as a consumer sees them at its position."""

    records: LazyRecords
    """Empty for transaction markers and aborted transactions."""
    next_offset: int
    """Position after these batches, gaps included."""
    leader_epoch: int
    """-1 if unknown."""


@dataclass
class _Response:
    """Records field of one partition, read from a position on."""

    data: Buffer
    position: int
    """Offset of the next record for the consumer."""
    check_crcs: bool
    decompressed_max: int

    def run(self, run: BatchTable) -> tuple[FetchedRecords | None, RemoteProtocolError | None]:
        """Parse adjacent uncompressed batches. The first result is None if all end below the position."""
        first, last = run[0], run[-1]
        positions, end, error = record_runs.find_run(self.data, first.position, last.end, check_crcs=self.check_crcs)
        good = len(run) if error is None else bisect_left(run, end, key=attrgetter("position"))
        if good == 0 or run[good - 1].last_offset < self.position:
            return None, error
        return self._fetched(LazyRecords(self.data, positions, first.timestamp_type), run[good - 1]), error

    def single(self, batch: Batch, fate: int) -> FetchedRecords | None:
        """Return the batch, or None if it ends below the position. Raises RemoteProtocolError or CodecMissing."""
        if fate == KEPT and batch.magic == 2 and batch.last_offset >= self.position:
            payload = records.open_batch(
                self.data, batch.position, batch.end, self._open_payload, check_crcs=self.check_crcs
            )
            return self._fetched(LazyRecords(*payload, batch.timestamp_type), batch, batch.base_offset)
        return self._empty_or_legacy(batch, fate)

    def _open_payload(self, codec: int, payload: Buffer) -> Buffer:
        return compression.decompress(codec, payload, self.decompressed_max)

    def _empty_or_legacy(self, batch: Batch, fate: int) -> FetchedRecords | None:
        source = memoryview(self.data)[batch.position : batch.end]
        if self.check_crcs and batch.magic == 2 and not records.has_valid_checksum(source):
            raise RemoteProtocolError(f"the checksum of the record batch at offset {batch.base_offset} is wrong")
        if batch.last_offset < self.position:
            return None
        return self._fetched(self._converted(source) if fate == KEPT else LazyRecords(), batch)

    def _converted(self, source: memoryview) -> LazyRecords:
        whole = legacy.as_batch(source, self.decompressed_max)
        header = records.read_header(whole)
        return LazyRecords(*records.find_records(whole, header, self.decompressed_max), header.timestamp_type)

    def _fetched(self, lazy: LazyRecords, last: Batch, first_offset: int = -1) -> FetchedRecords:
        unread_records = lazy if first_offset >= self.position else lazy.from_offset(self.position)
        self.position = max(self.position, last.last_offset + 1)
        return FetchedRecords(unread_records, self.position, last.leader_epoch)


def fetched_records(
    data: Buffer,
    position: int,
    aborted: Iterable[AbortedTransaction] | None = None,
    *,
    check_crcs: bool = True,
    decompressed_max: int = DECOMPRESSED_MAX,
) -> Iterator[FetchedRecords]:
    """Yield the records from the position on, in order.

    A batch is opened when the iteration reaches it, and its error is raised only then.

    Args:
        data: the records field; must not change while records are built from it.
        position: the offset in the Fetch request.
        aborted: the aborted list of the response; None under read_uncommitted.
        check_crcs: verify checksums (`check.crcs`); messages of magic 0 and 1 are always verified.
        decompressed_max: maximum bytes of one batch after decompression.

    Raises RemoteProtocolError if a batch or record is invalid, or the bytes contain no complete batch, or CodecMissing.
    """
    response = _Response(memoryview(data), position, check_crcs, decompressed_max)
    table, error = _whole_batches(data)
    for fate, begin, end in _runs(table, table.fates(aborted)):
        if fate is None:
            fetched, fault = response.run(table[begin:end])
        else:
            fetched, fault = response.single(table[begin], fate), None
        if fetched is not None:
            yield fetched
        if fault is not None:
            raise fault
    if error is not None:
        raise error
    if len(data) and not len(table):
        raise RemoteProtocolError(f"{len(data)} bytes of records for offset {position} without one whole batch")


def _whole_batches(data: Buffer) -> tuple[BatchTable, RemoteProtocolError | None]:
    """Return the complete batches, and the error after them, if any."""
    try:
        return split_complete(data)[0], None
    except RemoteProtocolError as error:
        end = 0
        with suppress(RemoteProtocolError):
            for header in records.iter_batches(data):
                end = header.end
        return split_complete(memoryview(data)[:end])[0], error


def _runs(table: BatchTable, fates: bytes) -> Iterator[tuple[int | None, int, int]]:
    """Yield (None, begin, end) for runs of uncompressed batches to keep, and (fate, begin, end) for others."""
    begin = end = 0
    for (fate, (magic, attributes)), group in groupby(zip(fates, table.magics_and_attributes, strict=True)):
        end += sum(1 for _ in group)
        is_plain = fate == KEPT and magic == 2 and not attributes & records.COMPRESSION_MASK
        while begin < end:
            stop = _end_of_run(table, begin, end) if is_plain else begin + 1
            yield None if is_plain else fate, begin, stop
            begin = stop


def _end_of_run(table: BatchTable, begin: int, end: int) -> int:
    """End of the run with the same leader epoch and at most RUN_BYTES."""
    first = table[begin]

    def is_beyond(index: int) -> bool:
        batch = table[index]
        return batch.end - first.position > RUN_BYTES or batch.leader_epoch != first.leader_epoch

    return begin + 1 + bisect_left(range(begin + 1, end), True, key=is_beyond)
