"""Record batches just read, kept for the members of share groups that ask next (sharegroups/README.md rule 21).

One upstream Fetch reads far more than one ShareFetch takes; the rest waits here, whole batches byte for byte as the
broker sent them. A chunk is what one Fetch brought of one partition. It is never older than the age limit, belongs to
one leader epoch, and goes when every group's next fetch offset lies behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import Protocol

from proxy.reading.far_records import FarRecords, FarSlice, Records

CHUNKS_PER_PARTITION = 16
"""Chunks kept of one partition and isolation: groups at that many places of one log are served from here at once."""

_last_offset = attrgetter("last_offset")


class Batch(Protocol):
    """The header facts used here of `wire.batches.Batch`."""

    @property
    def base_offset(self) -> int:
        """First offset."""

    @property
    def last_offset(self) -> int:
        """Last offset, also when its record was compacted away."""

    @property
    def position(self) -> int:
        """Where it begins in the bytes of its chunk."""

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""


@dataclass(frozen=True, slots=True)
class CacheKey:
    """What was read and how: read_committed answers end at the last stable offset."""

    topic_id: bytes
    partition: int
    read_committed: bool
    holder: int = 0
    """Which proxy has the bytes (peer_records); 0: this one."""


@dataclass(slots=True, eq=False)
class Chunk:
    """Whole batches of one Fetch answer."""

    key: CacheKey
    fetch_offset: int
    """Everything the log holds from here to `next_offset` is in `batches`; holes included."""
    batches: Sequence[Batch]
    """Not empty, ascending."""
    records: Records
    """The bytes that the batches' positions refer to."""
    aborted: Sequence[tuple[int, int]]
    """(producer id, first offset) of transactions aborted in this range; only under read_committed."""
    leader_epoch: int
    read_at: float
    end_offset: int = -1
    """Where readable records ended at that time (high watermark or last stable offset)."""

    @property
    def next_offset(self) -> int:
        """The offset behind the last batch."""
        return self.batches[-1].last_offset + 1

    def index_of(self, offset: int) -> int:
        """The first batch that ends at or behind the offset."""
        return bisect_left(self.batches, offset, key=_last_offset)

    def bytes_from(self, index: int) -> int:
        """Bytes from that batch to the end."""
        last = self.batches[-1]
        return last.position + last.size - self.batches[index].position

    def slice(self, first: int, last: int) -> memoryview | FarSlice:
        """The bytes of batches first..last, both included."""
        end = self.batches[last]
        return self.records[self.batches[first].position : end.position + end.size]


class BatchCache:
    """Chunks by partition and isolation, bounded in bytes; the oldest goes first."""

    def __init__(self, limit_bytes: int, age_s: float) -> None:
        self._limit_bytes = limit_bytes
        self._age_s = age_s
        self._chunks: dict[CacheKey, list[Chunk]] = {}
        self._oldest: OrderedDict[Chunk, None] = OrderedDict()
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._holders: dict[int, None] = {0: None}

    def add(self, chunk: Chunk) -> None:
        """Keep a chunk; what it covers of the same partition goes, and the oldest until all fits."""
        for other in tuple(self._chunks.get(chunk.key, ())):
            stale = other.leader_epoch != chunk.leader_epoch
            if stale or (chunk.fetch_offset <= other.fetch_offset and other.next_offset <= chunk.next_offset):
                self._drop(other)
        self._chunks.setdefault(chunk.key, []).append(chunk)
        self._holders[chunk.key.holder] = None
        self._oldest[chunk] = None
        self.bytes += len(chunk.records)
        while len(self._chunks[chunk.key]) > CHUNKS_PER_PARTITION:
            self._drop(self._chunks[chunk.key][0])
        while self.bytes > self._limit_bytes and len(self._oldest) > 1:
            self._drop(next(iter(self._oldest)))

    def find(self, key: CacheKey, offset: int, leader_epoch: int, now: float) -> Chunk | None:
        """The newest chunk that holds what the log has from this offset on, read under this leader epoch."""
        for chunk in reversed(self._chunks.get(key, ())):
            if chunk.leader_epoch != leader_epoch or now >= chunk.read_at + self._age_s:
                continue
            if chunk.fetch_offset <= offset < chunk.next_offset:
                self.hits += 1
                return chunk
        self.misses += 1
        return None

    def find_anywhere(self, key: CacheKey, offset: int, leader_epoch: int, now: float) -> bool:
        """Whether any proxy has what the log has from this offset on; members that came through it are served."""
        return any(
            self.find(key if not holder else replace(key, holder=holder), offset, leader_epoch, now) is not None
            for holder in self._holders
        )

    def drop_holder(self, holder: int) -> None:
        """Let go of everything whose bytes that proxy had."""
        self._holders.pop(holder, None)
        for chunk in [chunk for chunk in self._oldest if chunk.key.holder == holder]:
            self._drop(chunk)

    def drop_below(self, key: CacheKey, offset: int) -> None:
        """Let go of chunks that lie wholly below the offset."""
        for chunk in tuple(self._chunks.get(key, ())):
            if chunk.next_offset <= offset:
                self._drop(chunk)

    def drop_partition(self, topic_id: bytes, partition: int) -> None:
        """Let go of everything of one partition: its leader or its log start has moved."""
        for isolation in (False, True):
            for holder in self._holders:
                for chunk in tuple(self._chunks.get(CacheKey(topic_id, partition, isolation, holder), ())):
                    self._drop(chunk)

    def drop_aged(self, now: float) -> float:
        """Let go of chunks past their age; when the next one is due, inf when nothing is left."""
        while self._oldest:
            chunk = next(iter(self._oldest))
            if now < chunk.read_at + self._age_s:
                return chunk.read_at + self._age_s
            self._drop(chunk)
        return inf

    def _drop(self, chunk: Chunk) -> None:
        del self._oldest[chunk]
        self.bytes -= len(chunk.records)
        kept = self._chunks[chunk.key]
        kept.remove(chunk)
        if not kept:
            del self._chunks[chunk.key]
        if isinstance(chunk.records, FarRecords):
            chunk.records.forget()
