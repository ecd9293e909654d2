"""Reads for views shared by all requests of one process: cached chunks, Fetches in flight, and counters.

Rules: views/README.md 28, 43 and 45. Requests that need batches which a thread is splitting wait for the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from kafka_share_proxy.loop.interfaces import Timers, Workers
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.loop.waiting import SlicedWork
from kafka_share_proxy.reading.chunk_cache import BatchSpan, ReadKey
from kafka_share_proxy.reading.reads_under_way import ReadsUnderWay
from kafka_share_proxy.reading.upstream_fetch import PartitionRead, PartitionResponse
from kafka_share_proxy.views.audit_events import ViewAudit
from kafka_share_proxy.views.fetch.view_chunks import (
    INLINE_DECOMPRESSED_BYTES,
    RUN_BATCHES,
    RUN_DECOMPRESSED_BYTES,
    BatchParts,
    Division,
    DivisionTable,
    Job,
    PartsRun,
    Row,
    ViewCache,
    ViewChunk,
    is_quick,
    split_batches,
)
from kafka_share_proxy.views.model.readers import ViewReaders
from kafka_share_proxy.views.model.scanning import LogOffsets
from kafka_share_proxy.views.model.slots import Cut
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

INLINE_S = 0.001
"""Seconds above which a split is done by a worker thread."""

READ_BYTES_MIN = 64 << 10
"""Smallest read, however small the client's own limit is."""

LATEST_MAX = 10_000
"""Maximum number of partitions whose latest read is known. Beyond it all are forgotten."""


class Flight(Protocol):
    """An upstream Fetch in flight (`base_reads.ViewRead`)."""

    done: Promise[None]
    failure: ProxyError | None
    base_reads: Mapping[ReadKey, PartitionRead]
    chunks: dict[ReadKey, ViewChunk]
    log_offsets: dict[ReadKey, LogOffsets]
    refusals: dict[ReadKey, PartitionResponse]
    wait_s: float
    """MaxWait of the Fetch in seconds."""


class LatestRead(NamedTuple):
    """Results of the latest read of a partition, by which the size of the next one is chosen."""

    log_offsets: LogOffsets
    batch_bytes: int
    """Size of its first batch. A broker returns at least one, however small the limit of a read is (KIP-74)."""


@dataclass(slots=True)
class Figures:
    """Counters of what views cost, since the start of the process."""

    requests: int = 0
    reads: int = 0
    joined: int = 0
    read_bytes: int = 0
    scanned_bytes: int = 0
    kept_bytes: int = 0
    kept_records: int = 0
    corrupt: int = 0
    threaded: int = 0
    """Runs of batches split by a worker thread."""
    large: int = 0
    """Batches split in the lane for large work."""


@dataclass(slots=True)
class ViewReads:
    """Reads of base partitions for all slots of their views. One per process."""

    cache: ViewCache
    codec: int = 0
    """Compression codec of split batches."""
    flights: ReadsUnderWay[ReadKey, Flight] = field(default_factory=ReadsUnderWay)
    figures: Figures = field(default_factory=Figures)
    latest: dict[ReadKey, LatestRead] = field(default_factory=dict)
    readers: ViewReaders = field(default_factory=ViewReaders)
    slices: SlicedWork = field(default_factory=SlicedWork)
    audit: ViewAudit | None = None
    """None if audit is off."""
    _eviction_is_scheduled: bool = False

    def note_read(self, key: ReadKey, log_offsets: LogOffsets, batches: Sequence[BatchSpan]) -> None:
        """Note the result of a read in `latest`."""
        if batches:
            size = batches[0].size
        else:
            before = self.latest.get(key)
            size = READ_BYTES_MIN if before is None else before.batch_bytes
        if len(self.latest) >= LATEST_MAX:
            self.latest.clear()
        self.latest[key] = LatestRead(log_offsets, size)

    def least_bytes(self, key: ReadKey, offset: int) -> int:
        """Return the memory of the smallest read from this offset: a batch and its parts. 0 if none is known there."""
        latest = self.latest.get(key)
        return 2 * latest.batch_bytes if latest is not None and offset < latest.log_offsets.high_watermark else 0

    def schedule_eviction(self, timers: Timers) -> None:
        """Evict old chunks when they are due, even if no further request arrives."""
        if self._eviction_is_scheduled:
            return
        self._eviction_is_scheduled = True

        def evict() -> None:
            self._eviction_is_scheduled = False
            self.cache.drop_aged(timers.now())
            if self.cache.chunks:
                self.schedule_eviction(timers)

        timers.call_at(timers.now() + self.cache.limits.age_s, evict)

    def flight(self, key: ReadKey, offset: int, leader_epoch: int, wait_s: float, now: float) -> Flight | None:
        """Return a read in flight that will return the records, without a longer wait than requested."""
        for flight in self.flights.of(key):
            read = flight.base_reads[key]
            if read.leader_epoch != leader_epoch or (wait_s == 0 and flight.wait_s > 0):
                continue
            if read.offset == offset or read.offset < offset < read.offset + self._span(key, read.max_bytes, now):
                return flight
        return None

    def waits_at_end(self, key: ReadKey, offset: int, leader_epoch: int) -> bool:
        """Return True if a read from this offset waits at the broker for new records."""
        waiting = (flight.base_reads[key] for flight in self.flights.of(key) if flight.wait_s > 0)
        return any(read.offset == offset and read.leader_epoch == leader_epoch for read in waiting)

    def _span(self, key: ReadKey, max_bytes: int, now: float) -> int:
        """Estimate the offsets of `max_bytes` from the last chunk."""
        chunk = self.cache.newest(key, now)
        if chunk is None:
            return 0
        return (chunk.next_offset - chunk.fetch_offset) * min(max_bytes, len(chunk.records)) // len(chunk.records)

    def parts(
        self,
        chunk: ViewChunk,
        division: Division,
        slots: Sequence[int],
        index: int,
        workers: Workers,
        timers: Timers,
        owner: Hashable = None,
    ) -> Promise[None] | None:
        """Split a batch and those after it, unless a thread must do it or does it already.

        Return None if the batch is split, otherwise a promise to wait for, which fails with WorkersBusy.
        """
        table = chunk.table(division.name)
        if table.has(index, slots):
            return None
        for job in table.jobs:
            if job.first <= index < job.first + RUN_BATCHES and job.slots.issuperset(slots):
                return job.done
        requested_slots = tuple(self.cache.slots_to_split(chunk.key, division, slots, timers.now()))
        job = Job(frozenset(requested_slots), index)
        work = partial(split_batches, chunk, division.cut, requested_slots, index, codec=self.codec)
        if is_quick(chunk.batches, index, len(requested_slots), INLINE_S):
            run = work(decompressed_max=INLINE_DECOMPRESSED_BYTES)
            if run.rows:
                self._store_rows(table, job, run)
                return None
        table.jobs.append(job)

        async def store_rows() -> None:
            self._store_rows(table, job, await self.split_in_thread(work, workers, owner))

        def ended(task: Task[None]) -> None:
            table.jobs.remove(job)
            if task.error is not None:
                job.done.fail(task.error)
            job.done.set(None)

        Task(store_rows(), ended).start()
        return None if table.has(index, slots) else job.done

    async def split_in_thread(self, work: Callable[..., PartsRun], workers: Workers, owner: Hashable) -> PartsRun:
        """Split in a thread, a large batch in the lane for large work."""
        self.figures.threaded += 1
        run = await workers.run(partial(work, decompressed_max=RUN_DECOMPRESSED_BYTES), owner)
        if not run.rows:
            self.figures.large += 1
            run = await workers.run(partial(work, batches_max=1), owner, is_large=True)
        return run

    async def parts_from(
        self,
        chunk: ViewChunk,
        cut: Cut,
        slots: Sequence[int],
        index: int,
        offset: int,
        workers: Workers,
        owner: Hashable,
    ) -> Row:
        """Return the parts from an offset on, for a single reader. Raises WorkersBusy."""
        work = partial(split_batches, chunk, cut, slots, index, offset, codec=self.codec)
        run = PartsRun((), 0)
        if is_quick(chunk.batches[index : index + 1], 0, len(slots), INLINE_S):
            run = work(decompressed_max=INLINE_DECOMPRESSED_BYTES, batches_max=1)
        if not run.rows:
            run = await self.split_in_thread(partial(work, batches_max=1), workers, owner)
        return run.rows[0]

    def _store_rows(self, table: DivisionTable, job: Job, run: PartsRun) -> None:
        for index, row in enumerate(run.rows, job.first):
            before = table.rows.get(index)
            if isinstance(before, BatchParts) and isinstance(row, BatchParts):
                row.update(before)
            table.rows[index] = row
            if isinstance(row, ErrorCode):
                self.figures.corrupt += 1
        table.bytes += run.bytes
