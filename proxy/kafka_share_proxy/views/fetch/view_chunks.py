"""Chunks of base partitions that were read for views: the broker's batches, and their parts for the wanted slots.

Rules: views/README.md 28 and 41. Parts are counted with their chunk. They can be rebuilt and are therefore evicted
first when memory is short.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.reading.chunk_cache import CacheLimits, Chunk, ChunkCache, ReadKey
from kafka_share_proxy.views.kernel.slicing import BatchTooLarge, CorruptBatch, Slice, cost_estimate, split_counted
from kafka_share_proxy.views.model.scanning import Facts
from kafka_share_proxy.views.model.slots import Cut
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.batches import KEPT, AbortedTransaction, Batch, BatchTable
from kafka_share_proxy.wire.records.records import DECOMPRESSED_MAX

CHUNKS_PER_PARTITION = 32
"""Maximum number of chunks per isolation level."""

RUN_BYTES = 8 << 20
"""Bytes of parts after which a run ends and waiting requests continue."""

RUN_BATCHES = 2000
"""Maximum number of batches in a run, because each costs some time."""

RUN_OPENED_BYTES = 4 << 20
"""Decompressed bytes after which a run ends. A single larger batch is large work (interfaces.Workers)."""

INLINE_OPENED_BYTES = 256 << 10
"""Maximum decompressed size of a batch that is opened on the loop. A larger one is left to a worker thread."""

SLOT_S = 0.3e-6
"""Seconds that one slot of one batch costs."""

ROW_BYTES, SLOT_BYTES = 250, 110
"""Memory of a row in bytes, and of each slot, without parts."""

REQUESTED_S = 30.0
"""Seconds after the last request for a slot until batches are not split for it."""

REQUESTED_MAX = 10_000
"""Maximum number of divisions whose requested slots are remembered."""

TABLES_PER_CHUNK = 64
"""Maximum number of divisions: there may be any number of filters."""

NOTHING = Slice(None, -1, 0)


class Division(NamedTuple):
    """A cut with a cheap identity: the view's topic id, or the digest of a filter."""

    name: Hashable
    cut: Cut


class BatchParts(dict[int, Slice]):
    """Parts of one batch, by slot."""

    __slots__ = ("opened",)

    def __init__(self, parts: Iterable[tuple[int, Slice]], opened: int) -> None:
        super().__init__(parts)
        self.opened = opened
        """0 if the batch is not compressed."""

    def memory(self, source: object) -> int:
        """Return the bytes without those of the chunk."""
        own = [p.batch for p in self.values() if p.batch is not None and getattr(p.batch, "obj", None) is not source]
        return ROW_BYTES + SLOT_BYTES * len(self) + sum(map(len, own))


Row = BatchParts | ErrorCode


class PartsRun(NamedTuple):
    """Result of splitting consecutive batches, in order."""

    rows: Sequence[Row]
    bytes: int


@dataclass(slots=True, eq=False)
class Job:
    """Batches that are being split."""

    slots: frozenset[int]
    first: int
    done: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class DivisionTable:
    """Parts of a chunk's batches for one division, as far as they exist."""

    rows: dict[int, Row] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    bytes: int = 0
    counted: int = 0

    def has(self, index: int, slots: Iterable[int]) -> bool:
        row = self.rows.get(index)
        return isinstance(row, ErrorCode) or (row is not None and all(slot in row for slot in slots))


@dataclass(slots=True, eq=False, kw_only=True)
class ViewChunk(Chunk):
    """Whole batches of one Fetch response, and their parts."""

    batches: Sequence[Batch]
    records: memoryview
    fates: bytes
    """0 (`batches.KEPT`) for batches to be split."""
    facts: Facts
    tables: dict[Hashable, DivisionTable] = field(default_factory=dict)

    def table(self, name: Hashable) -> DivisionTable:
        table = self.tables.get(name)
        if table is None:
            if len(self.tables) >= TABLES_PER_CHUNK:
                del self.tables[next(iter(self.tables))]
            table = self.tables[name] = DivisionTable()
        return table

    @property
    def bytes(self) -> int:
        return len(self.records) + sum(table.bytes for table in self.tables.values())

    def shrink(self) -> None:
        for table in self.tables.values():
            table.rows.clear()
            table.bytes = table.counted = 0

    def data(self, index: int) -> memoryview:
        batch = self.batches[index]
        return self.records[batch.position : batch.position + batch.size]

    def row(
        self,
        index: int,
        cut: Cut,
        slots: Sequence[int],
        from_offset: int = 0,
        *,
        codec: int = compression.NONE,
        opened_max: int = DECOMPRESSED_MAX,
    ) -> Row:
        """Raises BatchTooLarge beyond `opened_max`, if that is less than the limit for all batches."""
        batch, data = self.batches[index], self.data(index)
        if self.fates[index] != KEPT:
            return BatchParts(((slot, NOTHING) for slot in slots), 0)
        if batch.is_control:
            whole = Slice(data, batch.last_offset, batch.records_count)
            return BatchParts(((slot, whole) for slot in slots), 0)
        try:
            parts, opened = split_counted(data, cut, slots, from_offset, codec=codec, decompressed_max=opened_max)
        except BatchTooLarge as error:
            if opened_max < DECOMPRESSED_MAX:
                raise
            return error.code
        except CorruptBatch as error:
            return error.code
        return BatchParts(
            ((s, part if part.records else NOTHING) for s, part in zip(slots, parts, strict=True)), opened
        )


def fates(batches: BatchTable, aborted: Iterable[AbortedTransaction] | None, committed: bool) -> bytes:
    """Return 0 for batches with records for a consumer. Under read_uncommitted all are 0, markers included."""
    return batches.fates(aborted) if committed else bytes(len(batches))


def take_apart(
    chunk: ViewChunk,
    cut: Cut,
    slots: Sequence[int],
    first: int,
    from_offset: int = 0,
    *,
    codec: int = compression.NONE,
    opened_max: int = DECOMPRESSED_MAX,
    batches_max: int = RUN_BATCHES,
) -> PartsRun:
    """Split the batches from `first` on until a limit is reached, in any thread.

    Returns no row if the first batch alone exceeds `opened_max`.
    """
    rows: list[Row] = []
    memory, source = 0, chunk.records.obj
    for index in range(first, min(len(chunk.batches), first + batches_max)):
        try:
            row = chunk.row(index, cut, slots, from_offset, codec=codec, opened_max=opened_max)
        except BatchTooLarge:
            break
        rows.append(row)
        if isinstance(row, ErrorCode):
            break  # no reader can advance beyond it
        memory += row.memory(source)
        opened_max -= row.opened
        if memory >= RUN_BYTES or opened_max <= 0:
            break
    return PartsRun(rows, memory)


def is_quick(batches: Sequence[Batch], first: int, slots: int, limit_s: float) -> bool:
    predicted = 0.0
    for index in range(first, len(batches)):
        predicted += cost_estimate(batches[index]) + slots * SLOT_S
        if predicted > limit_s:
            return False
    return True


class ViewCache(ChunkCache[ViewChunk]):
    """Cache of chunks with their parts, and of which slots are wanted."""

    def __init__(self, limit_bytes: int, age_s: float) -> None:
        super().__init__(CacheLimits(limit_bytes, age_s, CHUNKS_PER_PARTITION))
        self._requested: dict[tuple[ReadKey, Hashable], dict[int, float]] = {}

    def grown(self, chunk: ViewChunk) -> None:
        for table in chunk.tables.values():
            table.counted = table.bytes
        self.recount(chunk)

    def note(self, key: ReadKey, division: Division, slots: Iterable[int], now: float) -> None:
        if len(self._requested) >= REQUESTED_MAX:
            self._requested.clear()
        self._requested.setdefault((key, division.name), {}).update(dict.fromkeys(slots, now))

    def want(self, key: ReadKey, division: Division, slots: Iterable[int], now: float) -> list[int]:
        """Record a request. Return all slots that were requested recently, in order."""
        self.note(key, division, slots, now)
        times = self._requested[key, division.name]
        late = [slot for slot, requested_at in times.items() if now - requested_at > REQUESTED_S]
        for slot in late:
            del times[slot]
        return sorted(times)

    def drop_aged(self, now: float) -> float:
        """Evict old chunks, and forget slots that were not requested again."""
        due = super().drop_aged(now)
        if due == inf:
            for name in [name for name, slots in self._requested.items() if now - max(slots.values()) > REQUESTED_S]:
                del self._requested[name]
        return due
