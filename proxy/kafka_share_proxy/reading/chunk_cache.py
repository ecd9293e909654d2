"""Cache of chunks: record batches just read from brokers, kept for the clients that fetch them next.

A chunk is the result of one Fetch for one partition. Features add their own data to it, which is counted with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

from kafka_share_proxy.wire.records.batches import BatchOffsets, first_to


class BatchSpan(BatchOffsets, Protocol):
    """Header fields of `wire.records.batches.Batch` that a cache needs."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def position(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def compression(self) -> int:
        """0 if its records are not compressed."""


class ReadKey(NamedTuple):
    """Partition that is read. With read_committed, responses end at the last stable offset."""

    topic_id: bytes
    partition: int
    read_committed: bool
    holder: int = 0
    """Id of the proxy that holds the bytes (`far_records`). 0: this one."""


@dataclass(slots=True, eq=False, kw_only=True)
class Chunk:
    """Whole batches of one partition from one Fetch response."""

    key: ReadKey
    fetch_offset: int
    """`batches` has everything in the log from here to `next_offset`."""
    batches: Sequence[BatchSpan]
    """Batches in ascending order, at least one."""
    records: Sized
    """Bytes to which the batches' positions refer."""
    leader_epoch: int
    requested_epoch: int = -1
    """LastFetchedEpoch of the request, or -1."""
    read_at: float
    next_offset: int = field(init=False)
    """Offset after the last batch."""
    _end: int = field(init=False)
    """Position after the last batch."""

    def __post_init__(self) -> None:
        last = self.batches[-1]
        self.next_offset = last.last_offset + 1
        self._end = last.position + last.size

    @property
    def bytes(self) -> int:
        return len(self.records)

    def holds(self, offset: int) -> bool:
        return self.fetch_offset <= offset < self.next_offset

    def index_of(self, offset: int) -> int:
        """Return the index of the batch that contains the offset, or the next one."""
        return first_to(self.batches, offset)

    def continues(self, offset: int, last_fetched_epoch: int) -> bool:
        """True if a reader whose log ends in that epoch before `offset` can continue here (KIP-595). -1: unknown."""
        if last_fetched_epoch in (-1, self.leader_epoch):
            return True
        index = self.index_of(offset)
        batch = self.batches[index]
        before = batch if batch.base_offset < offset else self.batches[index - 1] if index else None
        epoch = self.requested_epoch if before is None else before.leader_epoch
        return last_fetched_epoch == epoch

    def shrink(self) -> None:
        """Release data that can be computed again."""

    def dropped(self) -> None:
        """Notify the proxy that holds the bytes. Not called for a chunk of this proxy."""


C = TypeVar("C", bound=Chunk)


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Limits of a cache."""

    bytes: int
    age_s: float
    """Age in seconds from which a chunk is read again (reading/README.md rule 9)."""
    chunks_per_partition: int


class ChunkCache(Generic[C]):
    """Chunks by partition and isolation level, bounded in bytes and age."""

    def __init__(self, limits: CacheLimits) -> None:
        self.limits = limits
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._chunks: dict[ReadKey, list[C]] = {}
        self._bytes_by_age: OrderedDict[C, int] = OrderedDict()
        """Counted bytes of each chunk, the oldest first."""
        self._holders: dict[int, None] = {0: None}
        """Ids of the proxies that hold bytes of chunks, 0 for this one."""

    def add(self, chunk: C) -> None:
        """Add a chunk. Evicts chunks that it covers, and the oldest beyond the limits."""
        self.drop_aged(chunk.read_at)
        for other in tuple(self._chunks.get(chunk.key, ())):
            is_stale = other.leader_epoch != chunk.leader_epoch
            if is_stale or (chunk.fetch_offset <= other.fetch_offset and other.next_offset <= chunk.next_offset):
                self._drop(other)
        chunks = self._chunks.setdefault(chunk.key, [])
        chunks.append(chunk)
        self._holders[chunk.key.holder] = None
        self._bytes_by_age[chunk] = 0
        if len(chunks) > self.limits.chunks_per_partition:
            self._drop(chunks[0])
        self.recount(chunk)

    def recount(self, chunk: C) -> None:
        """Count the bytes of a chunk again, and evict the oldest chunks above the limit."""
        if chunk not in self._bytes_by_age:
            return
        self._count(chunk)
        while self.bytes > self.limits.bytes and len(self._bytes_by_age) > 1:
            self._drop(next(iter(self._bytes_by_age)))
        if self.bytes > self.limits.bytes and chunk in self._bytes_by_age:
            chunk.shrink()
            self._count(chunk)

    def find(self, key: ReadKey, offset: int, leader_epoch: int, now: float, last_fetched_epoch: int = -1) -> C | None:
        """Return the newest chunk, read under this leader epoch, from which a reader can continue."""
        for chunk in reversed(self._chunks.get(key, ())):
            if chunk.leader_epoch != leader_epoch or now >= chunk.read_at + self.limits.age_s:
                continue
            if chunk.holds(offset) and (last_fetched_epoch == -1 or chunk.continues(offset, last_fetched_epoch)):
                self.hits += 1
                return chunk
        self.misses += 1
        return None

    def find_anywhere(self, key: ReadKey, offset: int, leader_epoch: int, now: float) -> bool:
        """True if any proxy holds the log's data from this offset on."""
        return any(
            self.find(key if not holder else key._replace(holder=holder), offset, leader_epoch, now) is not None
            for holder in self._holders
        )

    def newest(self, key: ReadKey, now: float) -> C | None:
        """Return the chunk that was read last, unless it is too old."""
        chunks = self._chunks.get(key)
        return chunks[-1] if chunks and now < chunks[-1].read_at + self.limits.age_s else None

    def drop_holder(self, holder: int) -> None:
        """Drop the chunks whose bytes a proxy held that is no longer connected."""
        self._holders.pop(holder, None)
        for chunk in [chunk for chunk in self._bytes_by_age if chunk.key.holder == holder]:
            self._drop(chunk)

    def drop_below(self, key: ReadKey, offset: int) -> None:
        """Drop the chunks that end before the offset."""
        for chunk in tuple(self._chunks.get(key, ())):
            if chunk.next_offset <= offset:
                self._drop(chunk)

    def drop_partition(self, topic_id: bytes, partition: int) -> None:
        for isolation in (False, True):
            for holder in self._holders:
                for chunk in tuple(self._chunks.get(ReadKey(topic_id, partition, isolation, holder), ())):
                    self._drop(chunk)

    def drop_aged(self, now: float) -> float:
        """Evict the chunks above the age limit. Return when the next one is due, or inf."""
        while self._bytes_by_age:
            drop_at = next(iter(self._bytes_by_age)).read_at + self.limits.age_s
            if now < drop_at:
                return drop_at
            self._drop(next(iter(self._bytes_by_age)))
        return inf

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self._bytes_by_age)

    def _count(self, chunk: C) -> None:
        size = chunk.bytes
        self.bytes += size - self._bytes_by_age[chunk]
        self._bytes_by_age[chunk] = size

    def _drop(self, chunk: C) -> None:
        self.bytes -= self._bytes_by_age.pop(chunk)
        chunks = self._chunks[chunk.key]
        chunks.remove(chunk)
        if not chunks:
            del self._chunks[chunk.key]
        if chunk.key.holder:
            chunk.dropped()
