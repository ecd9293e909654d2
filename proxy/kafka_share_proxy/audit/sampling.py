"""Sampling of record keys: in proportion to the rows of every partition, within a budget of keys.

Rules and sources: audit/README.md, "The sample of keys". A look is one run of sampled records: about 20 us of inline
work. Compressed or very large batches are processed by another thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from math import inf
from typing import NamedTuple

from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.loop.interfaces import Timers, Workers
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.records import compression, key_samples, legacy, records
from kafka_share_proxy.wire.records.batches import Batch, BatchTable
from kafka_share_proxy.wire.records.key_samples import KeySample
from kafka_share_proxy.wire.records.records import HEADER

LOOK_RECORDS_LEAST, LOOK_RECORDS_MIN, LOOK_RECORDS_MAX = 8, 64, 128
"""Limits of the number of keys of one look: few while nearly all keys are read.

Not more than usual reads have: else small reads would get fewer keys for the same rows.
"""
LOOK_BATCHES = 32
"""Maximum number of batches in one look."""
LOOKS_PER_READ = 16
"""Maximum number of runs in one read."""
READ_RECORDS_MAX = 2048
"""Maximum number of keys sampled from one read, about 0.4 ms of work."""
KEYS_PER_LOOK = 1024
"""Keys in the budget for each unit of `audit.key_samples_per_s`."""
ROWS_PER_KEY = 128
"""Rows that earn one key of the budget: sampling may cost a busy proxy only a fraction of the reading."""
BURST_S = 4.0
"""Capacity of the budget, in seconds of its rate."""
REFILL_S = 60.0
"""Seconds after which an empty budget is full again."""
ROWS_PER_KEY_MAX = 1 << 16
"""Maximum number of rows for each key."""
BATCH_COST = 16
"""Keys charged in addition for each batch."""
READS_REMEMBERED = 8
"""Number of sampled reads over which the size of a partition's reads is averaged."""
OPENED_ROWS_PER_KEY = 4
"""Records of decompressed batches that are charged as one key."""
PLACES_MAX = 10_000
"""Maximum number of partitions whose due keys are counted. Beyond it, all counts are reset."""
INLINE_BYTES = 1 << 20
"""Maximum size of a batch that is sampled inline."""
INLINE_PACKED_BYTES = 16 << 10
"""Maximum size of a compressed batch that is sampled inline: decompressing takes up to a millisecond."""
OPENED_BYTES_MAX = 16 << 20
"""Maximum size in bytes of a decompressed batch. A larger one is skipped."""
LOOKS_IN_THREADS_MAX = 4
"""Maximum number of concurrent looks in threads. Each has a copy of its batches."""

_GOLDEN = 0.6180339887498949

OnSample = Callable[[Place, Sequence[KeySample], float], None]
"""Receiver of the partition, the samples of one look, and the rows that they represent."""


def evenly_spread() -> Callable[[], float]:
    """Return a generator of numbers of [0, 1) that are never close together, always the same ones."""
    numbers = count(1)
    return lambda: next(numbers) * _GOLDEN % 1


class SampledBatch(NamedTuple):
    """A batch and its sampled records: number `first`, then every `every`-th, below `end`."""

    batch: Batch
    data: memoryview
    first: int
    every: int
    end: int

    @property
    def keys(self) -> int:
        return len(range(self.first, self.end, self.every))


class _Partition:
    """Rows of one partition that the next look represents."""

    __slots__ = ("due", "rows", "usual")

    def __init__(self, usual: float) -> None:
        self.due = self.rows = 0.0
        """Due keys, and the rows that they will represent."""
        self.usual = usual
        """Usual number of records of one read."""

    def size(self, every: int) -> int:
        """Return the number of keys of one look.

        It does not depend on the read: otherwise small reads would be sampled too often.
        """
        if every == 1:
            return 1
        target = min(max(every, LOOK_RECORDS_MIN), LOOK_RECORDS_MAX)
        return max(min(target, int(self.usual)), LOOK_RECORDS_LEAST)

    def add(self, rows: float, every: int) -> None:
        """Add rows, of which each `every` earn one key."""
        self.due = min(self.due + rows / every, READ_RECORDS_MAX)
        self.rows += rows

    def take(self, keys: int) -> float:
        """Remove due keys. Return the number of rows that they represent."""
        rows = self.rows * keys / self.due
        self.due -= keys
        self.rows -= rows
        return rows


class KeySampling:
    """Sampler of the keys of records that are read."""

    def __init__(
        self,
        timers: Timers,
        looks_per_s: float,
        on_sample: OnSample,
        draw: Callable[[], float] | None = None,
        workers: Workers | None = None,
    ) -> None:
        """
        Args:
            timers: clock of the loop.
            looks_per_s: the budget, in KEYS_PER_LOOK keys per second; 0 for no sampling.
            on_sample: called with each look.
            draw: uniform random numbers of [0, 1); None for `evenly_spread`.
            workers: threads that open compressed batches. None: batches that take long are skipped.
        """
        self._timers = timers
        self._on_sample = on_sample
        self._draw = draw or evenly_spread()
        self.workers = workers
        self._keys_per_s = looks_per_s * KEYS_PER_LOOK
        self._budget = self._budget_max = self._keys_per_s * BURST_S
        """Keys that may be sampled now."""
        self._earned_at = timers.now()
        self._partitions: dict[Place, _Partition] = {}
        self._in_threads = 0
        self.skipped = 0
        """Looks without a result, because a batch was broken or huge, or no thread was free."""

    def read(self, place: Place, batches: BatchTable, data: memoryview, unreported: int = 0) -> float:
        """Count whole batches that were read, and sample some of their keys if these are due.

        `data` is empty if another proxy has the bytes. `unreported`: records read before and not reported here.
        Returns the number of rows after which the next keys are due.
        """
        if not self._budget_max:
            return inf
        count = batches.records_count
        every = self._earn(count + unreported)
        partition = self._partitions.get(place) or self._begin(place, count, every)
        partition.add(count + unreported, every)
        size = partition.size(every)
        if partition.due >= size and count and data and self._budget > 0:
            keys = int(partition.due) if every == 1 else int(partition.due // size) * size
            self._sample(place, batches, data, keys, partition.take(keys))
            partition.usual += (count - partition.usual) / READS_REMEMBERED
        return max(size - partition.due, 0.0) * every

    def passed(self, place: Place, unreported: int) -> None:
        """Count rows that were read before and not reported, without sampling."""
        if unreported and self._budget_max:
            every = self._earn(unreported)
            partition = self._partitions.get(place) or self._begin(place, unreported, every)
            partition.add(unreported, every)

    def _begin(self, place: Place, count: int, every: int) -> _Partition:
        """Return a new partition that begins at a random position within its first look.

        Otherwise, its first rows would be sampled never, or always.
        """
        if len(self._partitions) >= PLACES_MAX:
            self._partitions.clear()
        partition = self._partitions[place] = _Partition(count)
        if every > 1:
            partition.add(self._draw() * partition.size(every) * every, every)
        return partition

    def _earn(self, rows: int) -> int:
        """Add earned keys to the budget, and return the current number of rows per key."""
        now = self._timers.now()
        elapsed_s, self._earned_at = now - self._earned_at, now
        earned = min(rows / ROWS_PER_KEY, elapsed_s * self._keys_per_s) + elapsed_s * self._budget_max / REFILL_S
        self._budget = min(self._budget + earned, self._budget_max)
        full = max(self._budget / self._budget_max, 0.0)
        return min(round(1 / full**2), ROWS_PER_KEY_MAX) if full > ROWS_PER_KEY_MAX**-0.5 else ROWS_PER_KEY_MAX

    def _sample(self, place: Place, batches: BatchTable, data: memoryview, keys_due: int, rows: float) -> None:
        keys = min(keys_due, batches.records_count, READ_RECORDS_MAX)
        if keys < 1:
            return
        is_packed = batches[0].compression != compression.NONE
        is_dense = keys * 2 > batches.records_count and len(batches) <= LOOK_BATCHES
        runs = 1 if is_packed or is_dense else max(min(LOOKS_PER_READ, keys // LOOK_RECORDS_MIN), 1)
        start = self._draw()
        for number in range(runs):
            parts = _run(batches, data, (start + number / runs) % 1, keys // runs)
            packed = sum(part.batch.records_count for part in parts if part.batch.compression != compression.NONE)
            self._budget -= sum(part.keys + BATCH_COST for part in parts) + packed / OPENED_ROWS_PER_KEY
            if parts:
                self._sample_run(place, parts, rows / runs)

    def _sample_run(self, place: Place, parts: Sequence[SampledBatch], rows: float) -> None:
        if _is_quick(parts):
            self._report(place, rows, partial(_samples, parts))
        elif self.workers is None or self._in_threads >= LOOKS_IN_THREADS_MAX:
            self.skipped += 1
        else:
            self._in_threads += 1
            copies = [part._replace(data=memoryview(bytes(part.data))) for part in parts]  # the response is sent on
            samples = self.workers.run(partial(_samples, copies), "audit")
            samples.on_settled(partial(self._sampled, place, rows, samples))

    def _sampled(self, place: Place, rows: float, samples: Promise[list[KeySample]]) -> None:
        self._in_threads -= 1
        self._report(place, rows, samples.result)

    def _report(self, place: Place, rows: float, samples_of: Callable[[], Sequence[KeySample]]) -> None:
        try:
            samples = samples_of()
        except ProxyError:
            self.skipped += 1
        else:
            if samples:
                self._on_sample(place, samples, rows)


def _run(batches: BatchTable, data: memoryview, position: float, size: int) -> list[SampledBatch]:
    """Return a run of about `size` records.

    A run covers about one batch, if necessary with every n-th record: neighbours are more alike than the records of a
    batch. `position` is the start of the run, as a fraction of all records.
    """
    count, total = len(batches), batches.records_count
    stride = max(total // count // size, 1)
    first, last = batches[0].base_offset, batches[-1].last_offset
    offset = first + int(position * (last - first + 1)) if size * stride < total else first
    at = bisect_left(batches, offset, key=lambda batch: batch.last_offset)
    skipped = max(min(offset - batches[at].base_offset, batches[at].records_count - 1), 0)
    parts, remaining = list[SampledBatch](), size
    for number in range(at, at + min(LOOK_BATCHES, count + 1)):
        batch = batches[number % count]
        if batch.is_control or batch.records_count < 1:
            continue
        keys = min(-(-(batch.records_count - skipped) // stride), remaining)
        if keys > 0:
            end = skipped + (keys - 1) * stride + 1
            batch_bytes = data[batch.position : batch.position + batch.size]
            parts.append(SampledBatch(batch, batch_bytes, skipped, stride, end))
            remaining -= keys
        if remaining <= 0:
            break
        skipped = max(skipped + max(keys, 0) * stride - batch.records_count, 0)
    return parts


def _is_quick(parts: Sequence[SampledBatch]) -> bool:
    """Return True if the batches can be sampled inline."""
    packed = [part.batch.size for part in parts if part.batch.compression != compression.NONE or part.batch.magic < 2]
    return sum(packed) <= INLINE_PACKED_BYTES and sum(part.batch.size for part in parts) <= INLINE_BYTES


def _samples(parts: Sequence[SampledBatch]) -> list[KeySample]:
    """Read the keys. Raises RemoteProtocolError or CodecMissing if a batch cannot be read."""
    return [sample for sample in _each_sample(parts) if sample.rows]


def _each_sample(parts: Sequence[SampledBatch]) -> Iterator[KeySample]:
    opened: dict[int, memoryview | bytes] = {}  # a run that wraps around ends in the batch in which it begins
    for batch, data, first, every, end in parts:
        if batch.magic < 2:
            whole = legacy.as_batch(data, OPENED_BYTES_MAX)
            header = records.read_header(whole)
            yield key_samples.sample(memoryview(whole)[HEADER.size :], header.records_count, header.base_offset)
            continue
        area: memoryview | bytes = data[HEADER.size :]
        if batch.compression != compression.NONE:
            if batch.position not in opened:
                opened[batch.position] = compression.decompress(batch.compression, bytes(area), OPENED_BYTES_MAX)
            area = opened[batch.position]
        yield key_samples.sample(area, end, batch.base_offset, first, every)
