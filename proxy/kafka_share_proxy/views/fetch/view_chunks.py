"""Chunks of base partitions that were read for views: the broker's batches, and their parts for the requested slots.

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
from kafka_share_proxy.views.model.scanning import LogOffsets
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

RUN_DECOMPRESSED_BYTES = 4 << 20
"""Decompressed bytes after which a run ends. A single larger batch is large work (interfaces.Workers)."""

INLINE_DECOMPRESSED_BYTES = 256 << 10
"""Maximum decompressed size of a batch that is split on the loop. A larger one is left to a worker thread."""

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

NO_RECORDS = Slice(None, -1, 0)
"""Part of a batch without records for a slot. One object for all of them."""


class Division(NamedTuple):
    """A cut with a cheap identity: the view's topic id, or the digest of a filter."""

    name: Hashable
    cut: Cut


class BatchParts(dict[int, Slice]):
    """Parts of one batch, by slot."""

    __slots__ = ("decompressed_bytes",)

    def __init__(self, parts: Iterable[tuple[int, Slice]], decompressed_bytes: int) -> None:
        super().__init__(parts)
        self.decompressed_bytes = decompressed_bytes
        """0 if the batch is not compressed."""

    def memory(self, source: object) -> int:
        """Return the bytes in memory, without parts that are views of `source`, the records of the chunk."""
        built = [p.batch for p in self.values() if p.batch is not None and getattr(p.batch, "obj", None) is not source]
        return ROW_BYTES + SLOT_BYTES * len(self) + sum(map(len, built))


Row = BatchParts | ErrorCode
"""Parts of one batch, or the error of a batch that cannot be split."""


class PartsRun(NamedTuple):
    """Result of splitting consecutive batches, in order."""

    rows: Sequence[Row]
    bytes: int


@dataclass(slots=True, eq=False)
class Job:
    """Batches that are being split."""

    slots: frozenset[int]
    first: int
    """Index of the first batch."""
    done: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class DivisionTable:
    """Parts of a chunk's batches for one division, as far as they exist."""

    rows: dict[int, Row] = field(default_factory=dict)
    """Rows by index of the batch."""
    jobs: list[Job] = field(default_factory=list)
    bytes: int = 0
    counted_bytes: int = 0
    """Value of `bytes` that is included in the size of the cache."""

    def has(self, index: int, slots: Iterable[int]) -> bool:
        """Return True if the batch has a part for each of these slots, or an error."""
        row = self.rows.get(index)
        return isinstance(row, ErrorCode) or (row is not None and all(slot in row for slot in slots))


@dataclass(slots=True, eq=False, kw_only=True)
class ViewChunk(Chunk):
    """Whole batches of one Fetch response, and their parts."""

    batches: Sequence[Batch]
    records: memoryview
    fates: bytes
    """Fate of each batch: 0 (`batches.KEPT`) for those to be split."""
    log_offsets: LogOffsets
    tables: dict[Hashable, DivisionTable] = field(default_factory=dict)

    def table(self, name: Hashable) -> DivisionTable:
        """Return the parts for a division, which replace those of the oldest division beyond `TABLES_PER_CHUNK`."""
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
            table.bytes = table.counted_bytes = 0

    def data(self, index: int) -> memoryview:
        """Return the bytes of one batch."""
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
        decompressed_max: int = DECOMPRESSED_MAX,
    ) -> Row:
        """Split one batch.

        Raises BatchTooLarge beyond `decompressed_max` bytes, if that is less than the limit for all batches.
        """
        batch, data = self.batches[index], self.data(index)
        if self.fates[index] != KEPT:
            return BatchParts(((slot, NO_RECORDS) for slot in slots), 0)
        if batch.is_control:
            whole = Slice(data, batch.last_offset, batch.records_count)
            return BatchParts(((slot, whole) for slot in slots), 0)
        try:
            parts, decompressed_bytes = split_counted(
                data, cut, slots, from_offset, codec=codec, decompressed_max=decompressed_max
            )
        except BatchTooLarge as error:
            if decompressed_max < DECOMPRESSED_MAX:
                raise
            return error.code
        except CorruptBatch as error:
            return error.code
        return BatchParts(
            ((s, part if part.records else NO_RECORDS) for s, part in zip(slots, parts, strict=True)),
            decompressed_bytes,
        )


def fates(batches: BatchTable, aborted: Iterable[AbortedTransaction] | None, read_committed: bool) -> bytes:
    """Return the fate of each batch. Under read_uncommitted all are kept, markers included."""
    return batches.fates(aborted) if read_committed else bytes(len(batches))


def split_batches(
    chunk: ViewChunk,
    cut: Cut,
    slots: Sequence[int],
    first: int,
    from_offset: int = 0,
    *,
    codec: int = compression.NONE,
    decompressed_max: int = DECOMPRESSED_MAX,
    batches_max: int = RUN_BATCHES,
) -> PartsRun:
    """Split the batches from `first` on until a limit is reached, in any thread.

    Returns no row if the first batch alone exceeds `decompressed_max`.
    """
    rows: list[Row] = []
    memory, source = 0, chunk.records.obj
    for index in range(first, min(len(chunk.batches), first + batches_max)):
        try:
            row = chunk.row(index, cut, slots, from_offset, codec=codec, decompressed_max=decompressed_max)
        except BatchTooLarge:
            break
        rows.append(row)
        if isinstance(row, ErrorCode):
            break  # no reader can advance beyond it
        memory += row.memory(source)
        decompressed_max -= row.decompressed_bytes
        if memory >= RUN_BYTES or decompressed_max <= 0:
            break
    return PartsRun(rows, memory)


def is_quick(batches: Sequence[Batch], first: int, slots: int, limit_s: float) -> bool:
    """Return True if splitting all batches from `first` on probably takes at most `limit_s` seconds."""
    predicted_s = 0.0
    for index in range(first, len(batches)):
        predicted_s += cost_estimate(batches[index]) + slots * SLOT_S
        if predicted_s > limit_s:
            return False
    return True


class ViewCache(ChunkCache[ViewChunk]):
    """Cache of chunks with their parts, and of the slots that were requested recently."""

    def __init__(self, limit_bytes: int, age_s: float) -> None:
        super().__init__(CacheLimits(limit_bytes, age_s, CHUNKS_PER_PARTITION))
        self._requested: dict[tuple[ReadKey, Hashable], dict[int, float]] = {}
        """Time of the last request for each slot, by partition and name of the division."""

    def recount_parts(self, chunk: ViewChunk) -> None:
        """Count the parts that were added to a chunk."""
        for table in chunk.tables.values():
            table.counted_bytes = table.bytes
        self.recount(chunk)

    def note(self, key: ReadKey, division: Division, slots: Iterable[int], now: float) -> None:
        """Note a request for these slots."""
        if len(self._requested) >= REQUESTED_MAX:
            self._requested.clear()
        self._requested.setdefault((key, division.name), {}).update(dict.fromkeys(slots, now))

    def slots_to_split(self, key: ReadKey, division: Division, slots: Iterable[int], now: float) -> list[int]:
        """Note a request. Return all slots that were requested recently, ascending."""
        self.note(key, division, slots, now)
        times = self._requested[key, division.name]
        expired = [slot for slot, requested_at in times.items() if now - requested_at > REQUESTED_S]
        for slot in expired:
            del times[slot]
        return sorted(times)

    def drop_aged(self, now: float) -> float:
        """Evict old chunks, and forget slots that were not requested again."""
        due = super().drop_aged(now)
        if due == inf:
            for name in [name for name, slots in self._requested.items() if now - max(slots.values()) > REQUESTED_S]:
                del self._requested[name]
        return due
