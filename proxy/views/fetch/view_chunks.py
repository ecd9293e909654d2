"""Base partitions just read for views: batches as the broker sent them, and their parts for the slots that want them.

One Fetch of one client brings a chunk; every slot of every view of that partition that has a reader with the right to
read the base is served from it (views/README.md rule 41). A batch is taken apart once for all slots that were asked
for lately. What is taken apart is kept with the chunk and counted with it; it can be made again, so it goes first when
room is short. A chunk belongs to one leader epoch, has an age limit, and the oldest goes when all are too large
together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from proxy.loop.promise import Promise
from proxy.reading.chunk_cache import CacheLimits, Chunk, ChunkCache, ReadKey
from proxy.views.kernel.slicing import BatchTooLarge, CorruptBatch, Slice, cost_estimate, split_counted
from proxy.views.model.scanning import Facts
from proxy.views.model.slots import Cut
from proxy.wire import compression
from proxy.wire.batches import KEPT, AbortedTransaction, Batch, BatchTable
from proxy.wire.errors import ErrorCode
from proxy.wire.records import DECOMPRESSED_MAX

CHUNKS_PER_PARTITION = 32
"""Chunks kept of one partition and isolation: readers at that many places of one log are served from here at once."""

RUN_BYTES = 8 << 20
"""Batches are taken apart until their parts have so many bytes, then whoever waits goes on."""

RUN_BATCHES = 2000
"""Or until they are so many: each is some work, however small it is."""

RUN_OPENED_BYTES = 4 << 20
"""Or until so many bytes were opened: compressed batches may be many thousand times larger when opened. One that is
larger by itself is large work (interfaces.Workers)."""

INLINE_OPENED_BYTES = 256 << 10
"""Bytes that are opened in the loop at most: what becomes larger is given up, and left to a worker thread."""

SLOT_S = 0.3e-6
"""What one slot of one batch costs, however little of it lies there."""

ROW_BYTES, SLOT_BYTES = 250, 110
"""What a row takes in memory beside the bytes of its parts, for itself and for each slot."""

WANTED_S = 30.0
"""A slot that nobody asked for so long is left out when batches are taken apart for others."""

WANTED_MAX = 10_000
"""Divisions of partitions of which it is remembered who asks for what; past it all is forgotten."""

TABLES_PER_CHUNK = 64
"""Divisions that one chunk is taken apart for; one more takes the place of the first. Filters come in any number."""

NOTHING = Slice(None, -1, 0)


class Division(NamedTuple):
    """A cut, and what tells it from others cheaply: the view's topic id, or the bytes of a filter."""

    name: Hashable
    cut: Cut


class BatchParts(dict[int, Slice]):
    """Of one batch: slot -> its part."""

    __slots__ = ("opened",)

    def __init__(self, parts: Iterable[tuple[int, Slice]], opened: int) -> None:
        super().__init__(parts)
        self.opened = opened
        """Bytes that were opened for it; 0 where the batch is not compressed."""

    def memory(self, source: object) -> int:
        """Bytes that it takes, beside those of the chunk with these records."""
        own = [p.batch for p in self.values() if p.batch is not None and getattr(p.batch, "obj", None) is not source]
        return ROW_BYTES + SLOT_BYTES * len(self) + sum(map(len, own))


Row = BatchParts | ErrorCode
"""Of one batch: its parts; or why there are none."""


class PartsRun(NamedTuple):
    """What was made of some batches, in order."""

    rows: Sequence[Row]
    bytes: int
    """Memory that the rows take."""


@dataclass(slots=True, eq=False)
class Job:
    """Batches that are being taken apart."""

    slots: frozenset[int]
    first: int
    done: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class DivisionTable:
    """What one division made of a chunk's batches so far."""

    rows: dict[int, Row] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    bytes: int = 0
    counted: int = 0
    """Of these, what the cache knows of."""

    def has(self, index: int, slots: Iterable[int]) -> bool:
        """Whether the parts of that batch for these slots are there."""
        row = self.rows.get(index)
        return isinstance(row, ErrorCode) or (row is not None and all(slot in row for slot in slots))


@dataclass(slots=True, eq=False, kw_only=True)
class ViewChunk(Chunk):
    """Whole batches of one Fetch answer, and what was made of them for the slots that want them."""

    batches: Sequence[Batch]
    records: memoryview
    fates: bytes
    """Of each batch: 0 (`batches.KEPT`) where its records are to be looked at."""
    facts: Facts
    tables: dict[Hashable, DivisionTable] = field(default_factory=dict)

    def table(self, name: Hashable) -> DivisionTable:
        """What a division made of this chunk so far."""
        found = self.tables.get(name)
        if found is None:
            if len(self.tables) >= TABLES_PER_CHUNK:
                del self.tables[next(iter(self.tables))]
            found = self.tables[name] = DivisionTable()
        return found

    @property
    def bytes(self) -> int:
        """In memory for it."""
        return len(self.records) + sum(table.bytes for table in self.tables.values())

    def shrink(self) -> None:
        """What was taken apart can be made again."""
        for table in self.tables.values():
            table.rows.clear()
            table.bytes = table.counted = 0

    def data(self, index: int) -> memoryview:
        """The bytes of one batch."""
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
        """Take one batch apart; the parts are compressed by `codec`.

        Raises BatchTooLarge: more than `opened_max` bytes, which is less than any batch may have, when opened.
        """
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
    """Of each batch of an answer 0 where a consumer gets records of it. Under read_uncommitted all, markers too."""
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
    """The rows of the batches from `first` on, until there is enough; may run in a thread of its own.

    No row: the first batch alone has more than `opened_max` bytes when opened.
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
            break  # nobody gets past it
        memory += row.memory(source)
        opened_max -= row.opened
        if memory >= RUN_BYTES or opened_max <= 0:
            break
    return PartsRun(rows, memory)


def is_quick(batches: Sequence[Batch], first: int, slots: int, limit_s: float) -> bool:
    """Whether taking these batches apart for so many slots, from the first on, is predicted to take less than that."""
    predicted = 0.0
    for index in range(first, len(batches)):
        predicted += cost_estimate(batches[index]) + slots * SLOT_S
        if predicted > limit_s:
            return False
    return True


class ViewCache(ChunkCache[ViewChunk]):
    """Chunks, what was made of them, and who wants which slots of what."""

    def __init__(self, limit_bytes: int, age_s: float) -> None:
        super().__init__(CacheLimits(limit_bytes, age_s, CHUNKS_PER_PARTITION))
        self._wanted: dict[tuple[ReadKey, Hashable], dict[int, float]] = {}

    def grown(self, chunk: ViewChunk) -> None:
        """Count what became of a chunk; the oldest go until all fits."""
        for table in chunk.tables.values():
            table.counted = table.bytes
        self.recount(chunk)

    def note(self, key: ReadKey, division: Division, slots: Iterable[int], now: float) -> None:
        """Somebody asks for these slots."""
        if len(self._wanted) >= WANTED_MAX:
            self._wanted.clear()
        self._wanted.setdefault((key, division.name), {}).update(dict.fromkeys(slots, now))

    def want(self, key: ReadKey, division: Division, slots: Iterable[int], now: float) -> list[int]:
        """Note who asks for these slots now; all that were asked for lately, in order."""
        self.note(key, division, slots, now)
        wanted = self._wanted[key, division.name]
        late = [slot for slot, seen in wanted.items() if now - seen > WANTED_S]
        for slot in late:
            del wanted[slot]
        return sorted(wanted)

    def drop_aged(self, now: float) -> float:
        """As every cache; where nothing is left, wishes go that nobody repeated."""
        due = super().drop_aged(now)
        if due == inf:
            for name in [name for name, slots in self._wanted.items() if now - max(slots.values()) > WANTED_S]:
                del self._wanted[name]
        return due
