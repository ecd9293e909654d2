"""Chunks: record batches just read from brokers, kept for the clients that ask for them next.

One upstream Fetch reads more than one client takes; the rest waits here, whole batches byte for byte as the broker sent
them. A chunk is what one Fetch brought of one partition. It belongs to one leader epoch, has an age limit, and the
oldest goes when all are too large together. Features add to a chunk what is theirs, and count it with the chunk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

_last_offset = attrgetter("last_offset")


class BatchSpan(Protocol):
    """The header facts of `wire.batches.Batch` that a cache needs."""

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""

    @property
    def last_offset(self) -> int:
        """Last offset, also when its record was compacted away."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that appended it."""

    @property
    def position(self) -> int:
        """Where it begins in the bytes of its chunk."""

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""


class ReadKey(NamedTuple):
    """What is read, and how: read_committed answers end at the last stable offset."""

    topic_id: bytes
    partition: int
    read_committed: bool
    holder: int = 0
    """Which proxy has the bytes (`far_records`); 0: this one."""


@dataclass(slots=True, eq=False, kw_only=True)
class Chunk:
    """Whole batches of one partition of one Fetch answer."""

    key: ReadKey
    fetch_offset: int
    """Everything that the log holds from here to `next_offset` is in `batches`; holes included."""
    batches: Sequence[BatchSpan]
    """Not empty, ascending."""
    records: Sized
    """The bytes that the batches' positions refer to."""
    leader_epoch: int
    """The leader was asked in this epoch."""
    asked_epoch: int = -1
    """LastFetchedEpoch of the question; -1 none. The log before `fetch_offset` ends in it."""
    read_at: float
    next_offset: int = field(init=False)
    """The offset behind the last batch."""

    def __post_init__(self) -> None:
        """Look at the last batch once."""
        self.next_offset = self.batches[-1].last_offset + 1

    @property
    def bytes(self) -> int:
        """In memory for it."""
        return len(self.records)

    def holds(self, offset: int) -> bool:
        """Whether what the log has from this offset on is here."""
        return self.fetch_offset <= offset < self.next_offset

    def index_of(self, offset: int) -> int:
        """The first batch that ends at or behind the offset."""
        return bisect_left(self.batches, offset, key=_last_offset)

    def bytes_from(self, index: int) -> int:
        """Bytes from that batch to the end."""
        last = self.batches[-1]
        return last.position + last.size - self.batches[index].position

    def continues(self, offset: int, last_fetched_epoch: int) -> bool:
        """Whether a reader whose log ends in that epoch before `offset` reads on here, as the broker would judge.

        Epoch and offset together name one history of a log (KIP-595). -1: the reader does not say.
        """
        if last_fetched_epoch in (-1, self.leader_epoch):
            return True
        index = self.index_of(offset)
        batch = self.batches[index]
        before = batch if batch.base_offset < offset else self.batches[index - 1] if index else None
        epoch = self.asked_epoch if before is None else before.leader_epoch
        return last_fetched_epoch == epoch

    def shrink(self) -> None:
        """Let go of what can be made again: this chunk alone is larger than the cache may be."""

    def dropped(self) -> None:
        """The cache has let go of the chunk."""


C = TypeVar("C", bound=Chunk)


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How much a cache keeps."""

    bytes: int
    """Of all chunks together; one chunk may be larger."""
    age_s: float
    """A chunk older than this is read again, so that deleted records and topics do not live on here."""
    chunks_per_partition: int
    """Of one partition and isolation: readers at that many places of one log are served from here at once."""


class ChunkCache(Generic[C]):
    """Chunks by partition and isolation, bounded in bytes and age; the oldest goes first."""

    def __init__(self, limits: CacheLimits) -> None:
        self.limits = limits
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._chunks: dict[ReadKey, list[C]] = {}
        self._oldest: OrderedDict[C, int] = OrderedDict()
        """Chunk -> its bytes as they are counted."""
        self._holders: dict[int, None] = {0: None}

    def add(self, chunk: C) -> None:
        """Keep a chunk just read; what it covers of the same partition goes, and the oldest until all fits."""
        self.drop_aged(chunk.read_at)
        for other in tuple(self._chunks.get(chunk.key, ())):
            stale = other.leader_epoch != chunk.leader_epoch
            if stale or (chunk.fetch_offset <= other.fetch_offset and other.next_offset <= chunk.next_offset):
                self._drop(other)
        kept = self._chunks.setdefault(chunk.key, [])
        kept.append(chunk)
        self._holders[chunk.key.holder] = None
        self._oldest[chunk] = 0
        if len(kept) > self.limits.chunks_per_partition:
            self._drop(kept[0])
        self.recount(chunk)

    def recount(self, chunk: C) -> None:
        """A chunk may take more or less memory than before; the oldest go until all fits."""
        if chunk not in self._oldest:
            return
        self._count(chunk)
        while self.bytes > self.limits.bytes and len(self._oldest) > 1:
            self._drop(next(iter(self._oldest)))
        if self.bytes > self.limits.bytes and chunk in self._oldest:
            chunk.shrink()
            self._count(chunk)

    def find(self, key: ReadKey, offset: int, leader_epoch: int, now: float, last_fetched_epoch: int = -1) -> C | None:
        """The newest chunk, read under this leader epoch, from which a reader in that state may go on."""
        for chunk in reversed(self._chunks.get(key, ())):
            if chunk.leader_epoch != leader_epoch or now >= chunk.read_at + self.limits.age_s:
                continue
            if chunk.holds(offset) and (last_fetched_epoch == -1 or chunk.continues(offset, last_fetched_epoch)):
                self.hits += 1
                return chunk
        self.misses += 1
        return None

    def find_anywhere(self, key: ReadKey, offset: int, leader_epoch: int, now: float) -> bool:
        """Whether any proxy has what the log has from this offset on; clients that came through it are served."""
        return any(
            self.find(key if not holder else key._replace(holder=holder), offset, leader_epoch, now) is not None
            for holder in self._holders
        )

    def newest(self, key: ReadKey, now: float) -> C | None:
        """What was read last of a partition."""
        kept = self._chunks.get(key)
        return kept[-1] if kept and now < kept[-1].read_at + self.limits.age_s else None

    def drop_holder(self, holder: int) -> None:
        """Let go of everything whose bytes that proxy had."""
        self._holders.pop(holder, None)
        for chunk in [chunk for chunk in self._oldest if chunk.key.holder == holder]:
            self._drop(chunk)

    def drop_below(self, key: ReadKey, offset: int) -> None:
        """Let go of chunks that lie wholly below the offset."""
        for chunk in tuple(self._chunks.get(key, ())):
            if chunk.next_offset <= offset:
                self._drop(chunk)

    def drop_partition(self, topic_id: bytes, partition: int) -> None:
        """Let go of everything of one partition: its leader or its log start has moved, or it is gone."""
        for isolation in (False, True):
            for holder in self._holders:
                for chunk in tuple(self._chunks.get(ReadKey(topic_id, partition, isolation, holder), ())):
                    self._drop(chunk)

    def drop_aged(self, now: float) -> float:
        """Let go of chunks past their age; when the next one is due, inf when nothing is left."""
        while self._oldest:
            due = next(iter(self._oldest)).read_at + self.limits.age_s
            if now < due:
                return due
            self._drop(next(iter(self._oldest)))
        return inf

    @property
    def chunks(self) -> int:
        """How many there are."""
        return len(self._oldest)

    def _count(self, chunk: C) -> None:
        size = chunk.bytes
        self.bytes += size - self._oldest[chunk]
        self._oldest[chunk] = size

    def _drop(self, chunk: C) -> None:
        self.bytes -= self._oldest.pop(chunk)
        kept = self._chunks[chunk.key]
        kept.remove(chunk)
        if not kept:
            del self._chunks[chunk.key]
        chunk.dropped()
