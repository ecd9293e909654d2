"""What was read for views, what is being read, and what both cost: shared by all requests of one process.

Theory of operation. `flights` are upstream Fetches under way: whoever stands at the offset that one was asked from (or
so little behind that its answer will reach there) waits for it instead of asking the broker again. Their answers become
chunks of the cache, which are taken apart here once for all slots that are wanted: at once where that is quick, else by
a worker thread, and whoever needs the same batches meanwhile waits for the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from proxy.loop.interfaces import Timers, Workers
from proxy.loop.promise import Promise, Task
from proxy.loop.waiting import SlicedWork
from proxy.reading.chunk_cache import ReadKey
from proxy.reading.reads_under_way import ReadsUnderWay
from proxy.reading.upstream_fetch import PartitionAnswer, PartitionRead
from proxy.views.audit_events import ViewAudit
from proxy.views.fetch.view_chunks import (
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
from proxy.views.model.scanning import Facts
from proxy.views.model.slots import Cut
from proxy.wire.errors import ErrorCode, ProxyError

INLINE_S = 0.001
"""What is predicted to take longer is done by a worker thread."""


ENDS_MAX = 10_000
"""Partitions whose end is remembered; past it all are forgotten, and brokers asked."""


class Flight(Protocol):
    """An upstream Fetch under way (`base_reads.ViewRead`)."""

    done: Promise[None]
    failure: ProxyError | None
    heads: Mapping[ReadKey, PartitionRead]
    chunks: dict[ReadKey, ViewChunk]
    facts: dict[ReadKey, Facts]
    refusals: dict[ReadKey, PartitionAnswer]
    wait_s: float


@dataclass(slots=True)
class Figures:
    """What views cost; totals since the start."""

    requests: int = 0
    """Fetches answered here."""
    reads: int = 0
    """Fetches made upstream for them."""
    joined: int = 0
    """Waits for a Fetch that another client's request had made."""
    read_bytes: int = 0
    """Records of base partitions that came from brokers."""
    scanned_bytes: int = 0
    kept_bytes: int = 0
    kept_records: int = 0
    corrupt: int = 0
    """Batches that could not be taken apart."""
    threaded: int = 0
    """Runs of batches taken apart by a worker thread."""
    large: int = 0
    """Batches that were so large when opened that a thread of their own opened them."""


@dataclass(slots=True)
class ViewReads:
    """Cache, reads under way, and figures. One per process."""

    cache: ViewCache
    codec: int = 0
    """How parts are compressed."""
    flights: ReadsUnderWay[ReadKey, Flight] = field(default_factory=ReadsUnderWay)
    figures: Figures = field(default_factory=Figures)
    ends: dict[ReadKey, Facts] = field(default_factory=dict)
    """What brokers said last about partitions."""
    slices: SlicedWork = field(default_factory=SlicedWork)
    """All requests' work in the loop."""
    audit: ViewAudit | None = None
    """Told what was read and given to whom; None where audit is off, which is the default."""
    _minding: bool = False

    def note_end(self, key: ReadKey, facts: Facts) -> None:
        """A broker said where a partition stands."""
        if len(self.ends) >= ENDS_MAX:
            self.ends.clear()
        self.ends[key] = facts

    def mind_age(self, timers: Timers) -> None:
        """See to it that what is cached goes when it is too old, also when nobody asks any more."""
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
        """A read under way that will bring what the log has from this offset on, without waiting longer than asked."""
        for read in self.flights.of(key):
            head = read.heads[key]
            if head.leader_epoch != leader_epoch or (wait_s == 0 and read.wait_s > 0):
                continue
            if head.offset == offset or head.offset < offset < head.offset + self._span(key, head.max_bytes, now):
                return read
        return None

    def stands_at_end(self, key: ReadKey, offset: int, leader_epoch: int) -> bool:
        """Whether a read waits at the broker for what will come at this offset."""
        return any(
            read.heads[key].offset == offset and read.heads[key].leader_epoch == leader_epoch and read.wait_s > 0
            for read in self.flights.of(key)
        )

    def _span(self, key: ReadKey, max_bytes: int, now: float) -> int:
        """How many offsets a read of so many bytes brings, going by the last one."""
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
        """See to it that a batch is taken apart for these slots; None: it is. Else wait, and look again.

        `owner`: on whose account (interfaces.Workers). The promise fails with WorkersBusy.
        """
        table = chunk.table(division.name)
        if table.has(index, slots):
            return None
        for job in table.jobs:
            if job.first <= index < job.first + RUN_BATCHES and job.slots.issuperset(slots):
                return job.done
        wanted = tuple(self.cache.want(chunk.key, division, slots, timers.now()))
        job = Job(frozenset(wanted), index)
        work = partial(take_apart, chunk, division.cut, wanted, index, codec=self.codec)
        if is_quick(chunk.batches, index, len(wanted), INLINE_S):
            run = work(opened_max=INLINE_OPENED_BYTES)
            if run.rows:
                self._made(table, job, run)
                return None
        table.jobs.append(job)

        async def made() -> None:
            self._made(table, job, await self.in_thread(work, workers, owner))

        def ended(task: Task[None]) -> None:
            table.jobs.remove(job)
            if task.error is not None:
                job.done.fail(task.error)
            job.done.set(None)

        Task(made(), ended).start()
        return None if table.has(index, slots) else job.done

    async def in_thread(self, work: Callable[..., PartsRun], workers: Workers, owner: Hashable) -> PartsRun:
        """Take batches apart in a worker thread. One that becomes large when opened goes to a lane of its own."""
        self.figures.threaded += 1
        run = await workers.run(partial(work, opened_max=RUN_OPENED_BYTES), owner)
        if not run.rows:
            self.figures.large += 1
            run = await workers.run(partial(work, batches_max=1), owner, is_large=True)
        return run

    async def rest(
        self,
        chunk: ViewChunk,
        cut: Cut,
        slots: Sequence[int],
        index: int,
        offset: int,
        workers: Workers,
        owner: Hashable,
    ) -> Row:
        """The parts of one batch from an offset within it on: for one reader alone. Raises WorkersBusy."""
        work = partial(take_apart, chunk, cut, slots, index, offset, codec=self.codec)
        run = PartsRun((), 0)
        if is_quick(chunk.batches[index : index + 1], 0, len(slots), INLINE_S):
            run = work(opened_max=INLINE_OPENED_BYTES, batches_max=1)
        if not run.rows:
            run = await self.in_thread(partial(work, batches_max=1), workers, owner)
        return run.rows[0]

    def _made(self, table: DivisionTable, job: Job, run: PartsRun) -> None:
        for index, row in enumerate(run.rows, job.first):
            before = table.rows.get(index)
            if isinstance(before, BatchParts) and isinstance(row, BatchParts):
                row.update(before)
            table.rows[index] = row
            if isinstance(row, ErrorCode):
                self.figures.corrupt += 1
        table.bytes += run.bytes
