"""What one partition of a Fetch answer holds for a consumer.

Source: CompletedFetch of Kafka's clients 4.3 (wire/README.md rules 15, 16, 26 and 27). Nothing here waits or keeps: one
compressed batch or one run of others is open at a time, and what the aborted list needs is a byte for each batch and an
entry for each producer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from proxy.wire import legacy, record_runs, records
from proxy.wire.batches import KEPT, AbortedTransaction, Batch, BatchTable, split_complete
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.primitives import Buffer
from proxy.wire.record_views import LazyRecords
from proxy.wire.records import DECOMPRESSED_MAX
from proxy.wire.values import MIB

RUN_BYTES = MIB // 4
"""Neighbouring batches whose records are found at once: a row of 40 bytes is kept for each, of at least 7."""


class FetchedRecords(NamedTuple):
    """A batch of an answer, or several neighbours of one kind, as a consumer at some position sees them."""

    records: LazyRecords
    """From the position on; none of markers and aborted transactions."""
    next_offset: int
    """The position behind them: past gaps, and past what compaction took away at the end."""
    leader_epoch: int
    """Of the leader that wrote them; -1: not known."""


@dataclass
class _Answer:
    """What stays the same while it is read, and the position, which does not."""

    data: Buffer
    position: int
    check_crcs: bool
    decompressed_max: int

    def run(self, run: BatchTable) -> tuple[FetchedRecords | None, RemoteProtocolError | None]:
        """What neighbours hold that are not compressed; None: they end below the position, or the first is wrong."""
        first, last = run[0], run[-1]
        found, behind, wrong = record_runs.find_run(self.data, first.position, last.end, check_crcs=self.check_crcs)
        good = len(run) if wrong is None else bisect_left(run, behind, key=attrgetter("position"))
        if good == 0 or run[good - 1].last_offset < self.position:
            return None, wrong
        return self._fetched(LazyRecords(self.data, found, first.timestamp_type), run[good - 1]), wrong

    def single(self, batch: Batch, fate: int) -> FetchedRecords | None:
        """What any other batch holds; None: it ends below the position. Raises RemoteProtocolError, CodecMissing."""
        source = memoryview(self.data)[batch.position : batch.end]
        if self.check_crcs and batch.magic == 2 and not records.has_valid_checksum(source):
            raise RemoteProtocolError(f"the checksum of the record batch at offset {batch.base_offset} is wrong")
        if batch.last_offset < self.position:
            return None
        found = self._opened(source, batch) if fate == KEPT else LazyRecords()
        return self._fetched(found, batch)

    def _opened(self, source: memoryview, batch: Batch) -> LazyRecords:
        whole: Buffer = source if batch.magic == 2 else legacy.as_batch(source, self.decompressed_max)
        header = records.read_header(whole)
        return LazyRecords(*records.find_records(whole, header, self.decompressed_max), header.timestamp_type)

    def _fetched(self, found: LazyRecords, last: Batch) -> FetchedRecords:
        kept = found.from_offset(self.position)
        self.position = max(self.position, last.last_offset + 1)
        return FetchedRecords(kept, self.position, last.leader_epoch)


def fetched_records(
    data: Buffer,
    position: int,
    aborted: Iterable[AbortedTransaction] | None = None,
    *,
    check_crcs: bool = True,
    decompressed_max: int = DECOMPRESSED_MAX,
) -> Iterator[FetchedRecords]:
    """What one partition of a Fetch answer holds from the position on, batch by batch, in order.

    Small neighbours come together. Batches are opened when it is their turn, and what is wrong with one raises then:
    those in front of it are good. A last one that is cut off is left out.

    Args:
        data: the records field; must not change while records are made of it.
        position: the offset that was asked for.
        aborted: the aborted list of the answer; None under read_uncommitted.
        check_crcs: whether checksums are compared (`check.crcs`); messages of magic 0 and 1 always are.
        decompressed_max: bytes that one batch may have when opened.

    Raises:
        RemoteProtocolError: a batch or record that is wrong, or bytes without one whole batch.
        compression.CodecMissing: a batch is compressed by a codec that is not installed.
    """
    answer = _Answer(data, position, check_crcs, decompressed_max)
    table, wrong = _whole_batches(data)
    for fate, batches in _runs(table, table.fates(aborted)):
        if fate is None:
            found, fault = answer.run(batches)
        else:
            found, fault = answer.single(batches[0], fate), None
        if found is not None:
            yield found
        if fault is not None:
            raise fault
    if wrong is not None:
        raise wrong
    if len(data) and not len(table):
        raise RemoteProtocolError(f"{len(data)} bytes of records for offset {position} without one whole batch")


def _whole_batches(data: Buffer) -> tuple[BatchTable, RemoteProtocolError | None]:
    """The batches, and what is wrong behind them."""
    try:
        return split_complete(data)[0], None
    except RemoteProtocolError as error:
        end = 0
        with suppress(RemoteProtocolError):
            for header in records.iter_batches(data):
                end = header.end
        return split_complete(memoryview(data)[:end])[0], error


def _runs(table: BatchTable, fates: bytes) -> Iterator[tuple[int | None, BatchTable]]:
    """Runs of batches that can be read as they are, without a fate; any other alone, with its own."""
    begin = end = 0
    for (fate, (magic, attributes)), group in groupby(zip(fates, table.kinds, strict=True)):
        end += sum(1 for _ in group)
        is_plain = fate == KEPT and magic == 2 and not attributes & records.COMPRESSION_MASK
        while begin < end:
            stop = _end_of_run(table, begin, end) if is_plain else begin + 1
            yield None if is_plain else fate, table[begin:stop]
            begin = stop


def _end_of_run(table: BatchTable, begin: int, end: int) -> int:
    """Where the neighbours end that are of one leader, and no more than RUN_BYTES."""
    first = table[begin]

    def is_beyond(index: int) -> bool:
        batch = table[index]
        return batch.end - first.position > RUN_BYTES or batch.leader_epoch != first.leader_epoch

    return begin + 1 + bisect_left(range(begin + 1, end), True, key=is_beyond)
