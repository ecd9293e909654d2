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
    INLINE_OPENED_BYTES,
    RUN_BATCHES,
    RUN_OPENED_BYTES,
    BatchParts,
    Division,
    DivisionTable,
    Job,
    PartsRun,
    Row,
    ViewCache,
    ViewChunk,
    is_quick,
    take_apart,
)
from kafka_share_proxy.views.model.readers import ViewReaders
from kafka_share_proxy.views.model.scanning import Facts
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
    heads: Mapping[ReadKey, PartitionRead]
    chunks: dict[ReadKey, ViewChunk]
    facts: dict[ReadKey, Facts]
    refusals: dict[ReadKey, PartitionResponse]
    wait_s: float


class LatestRead(NamedTuple):
    """Figures of the latest read of a partition, by which the next one is planned."""

    facts: Facts
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
    _minding: bool = False

    def note_read(self, key: ReadKey, facts: Facts, batches: Sequence[BatchSpan]) -> None:
        if batches:
            size = batches[0].size
        else:
            before = self.latest.get(key)
            size = READ_BYTES_MIN if before is None else before.batch_bytes
        if len(self.latest) >= LATEST_MAX:
            self.latest.clear()
        self.latest[key] = LatestRead(facts, size)

    def least_bytes(self, key: ReadKey, offset: int) -> int:
        """Return the memory of the smallest read from this offset: a batch and its parts. 0 if none is known there."""
        latest = self.latest.get(key)
        return 2 * latest.batch_bytes if latest is not None and offset < latest.facts.high_watermark else 0

    def mind_age(self, timers: Timers) -> None:
        """Evict old chunks, which no further request may trigger."""
        if self._minding:
            return
        self._minding = True

        def due() -> None:
            self._minding = False
            self.cache.drop_aged(timers.now())
            if self.cache.chunks:
                self.mind_age(timers)

        timers.call_at(timers.now() + self.cache.limits.age_s, due)

    def flight(self, key: ReadKey, offset: int, leader_epoch: int, wait_s: float, now: float) -> Flight | None:
        """Return a read in flight that will return the records, without a longer wait than requested."""
        for read in self.flights.of(key):
            head = read.heads[key]
            if head.leader_epoch != leader_epoch or (wait_s == 0 and read.wait_s > 0):
                continue
            if head.offset == offset or head.offset < offset < head.offset + self._span(key, head.max_bytes, now):
                return read
        return None

    def stands_at_end(self, key: ReadKey, offset: int, leader_epoch: int) -> bool:
        return any(
            read.heads[key].offset == offset and read.heads[key].leader_epoch == leader_epoch and read.wait_s > 0
            for read in self.flights.of(key)
        )

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
        """Return None if the batch is split, otherwise a promise to wait for, which fails with WorkersBusy."""
        table = chunk.table(division.name)
        if table.has(index, slots):
            return None
        for job in table.jobs:
            if job.first <= index < job.first + RUN_BATCHES and job.slots.issuperset(slots):
                return job.done
        requested_slots = tuple(self.cache.want(chunk.key, division, slots, timers.now()))
        job = Job(frozenset(requested_slots), index)
        work = partial(take_apart, chunk, division.cut, requested_slots, index, codec=self.codec)
        if is_quick(chunk.batches, index, len(requested_slots), INLINE_S):
            run = work(opened_max=INLINE_OPENED_BYTES)
            if run.rows:
                self._store_rows(table, job, run)
                return None
        table.jobs.append(job)

        async def split_in_thread() -> None:
            self._store_rows(table, job, await self.in_thread(work, workers, owner))

        def ended(task: Task[None]) -> None:
            table.jobs.remove(job)
            if task.error is not None:
                job.done.fail(task.error)
            job.done.set(None)

        Task(split_in_thread(), ended).start()
        return None if table.has(index, slots) else job.done

    async def in_thread(self, work: Callable[..., PartsRun], workers: Workers, owner: Hashable) -> PartsRun:
        """Split in a thread, a large batch in the lane for large work."""
        self.figures.threaded += 1
        run = await workers.run(partial(work, opened_max=RUN_OPENED_BYTES), owner)
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
        work = partial(take_apart, chunk, cut, slots, index, offset, codec=self.codec)
        run = PartsRun((), 0)
        if is_quick(chunk.batches[index : index + 1], 0, len(slots), INLINE_S):
            run = work(opened_max=INLINE_OPENED_BYTES, batches_max=1)
        if not run.rows:
            run = await self.in_thread(partial(work, batches_max=1), workers, owner)
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
