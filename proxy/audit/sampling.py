"""Which keys of what was read are looked at: a thousand at a time, so many times a second, where the bytes are.

Theory of operation. What one Fetch brought is looked at in up to LOOKS_PER_READ places, each a run of batches that
begins elsewhere every time. Of a run the records are taken one by one, or every n-th where they are more than
LOOK_RECORDS. That costs a tenth of a millisecond; what has to be opened first, or is very large, is the work of another
thread. Looks that were not needed are kept for later, up to those of a second: a burst is seen as well as a steady
stream. In the long run no more than one of READ_FOR_ONE records is looked at: looks must not cost a busy proxy more
than a part of the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from proxy.audit.events import Place
from proxy.loop.interfaces import Timers, Workers
from proxy.loop.promise import Promise
from proxy.wire import compression, key_samples, legacy, records
from proxy.wire.batches import Batch, BatchTable
from proxy.wire.errors import ProxyError
from proxy.wire.key_samples import KeySample
from proxy.wire.records import HEADER

LOOK_RECORDS = 1024
"""Keys of one look, less than 0.1 ms of work."""
LOOK_BATCHES = 16
"""Batches of one look, however small they are."""
LOOKS_PER_READ = 4
READ_FOR_ONE = 128
"""Records that are read for each one that is looked at."""
BURST_LOOKS = 10.0
"""Looks that may have been saved up, at least; those of a second where that is more."""
INLINE_BYTES = 1 << 20
"""Larger batches are the work of another thread."""
INLINE_PACKED_BYTES = 16 << 10
"""And so are compressed ones of more bytes than that: opening them takes up to a millisecond."""
OPENED_BYTES_MAX = 16 << 20
"""Of one batch; what becomes larger when opened is not looked at."""
LOOKS_IN_THREADS_MAX = 4
"""At a time; each has a copy of its batches."""

_GOLDEN = 0.6180339887498949
"""Its multiples, without their whole parts, never come together: where looks begin."""


class SampledBatch(NamedTuple):
    """A batch, and which of its records are looked at."""

    batch: Batch
    data: memoryview
    first: int
    every: int


class KeySampling:
    """Looks at keys, and tells what was seen."""

    def __init__(self, timers: Timers, looks_per_s: float, seen: Callable[[Place, Sequence[KeySample]], None]) -> None:
        """`looks_per_s`: 0 for none; `seen`: told of each look."""
        self._timers = timers
        self._looks_per_s = looks_per_s
        self._seen = seen
        self.workers: Workers | None = None
        """Without any, what would take long is not looked at."""
        self._looks_max = max(looks_per_s, BURST_LOOKS)
        self._saved = self._looks_max
        self._saved_at = timers.now()
        self.due_at = self._saved_at if looks_per_s else inf
        """Before this (seconds, of the loop's clock) nothing is looked at: `read` need not be called."""
        self._affordable = self._affordable_max = self._looks_max * LOOK_RECORDS
        """Records that may be looked at."""
        self.due_records = 0.0
        """Before so many more were read nothing is looked at: as many may be told with the next `read`."""
        self._turns = 0
        self._in_threads = 0
        self.skipped = 0
        """Looks that came to nothing: broken or huge batches, or no thread was free."""

    def read(self, place: Place, batches: BatchTable, data: memoryview, untold: int = 0) -> None:
        """These whole batches of a partition were read, and so many records before that were not told here."""
        count, now = batches.records_count, self._timers.now()
        self._affordable = min(self._affordable + (count + untold) / READ_FOR_ONE, self._affordable_max)
        if now >= self.due_at and count and data:
            wanted = min(LOOKS_PER_READ, -(-count // LOOK_RECORDS))
            size = min(count, LOOK_RECORDS)
            for _ in range(self._allowed(min(wanted, int(self._affordable // size)), now)):
                self._affordable -= size
                self._turns += 1
                self._look(place, _run(batches, data, self._turns))
        self.due_records = max(LOOK_RECORDS - self._affordable, 0) * READ_FOR_ONE

    def _allowed(self, wanted: int, now: float) -> int:
        self._saved = min(self._looks_max, self._saved + (now - self._saved_at) * self._looks_per_s)
        self._saved_at = now
        allowed = min(wanted, int(self._saved))
        self._saved -= allowed
        self.due_at = now + max(1.0 - self._saved, 0.0) / self._looks_per_s
        return allowed

    def _look(self, place: Place, parts: Sequence[SampledBatch]) -> None:
        if _is_quick(parts):
            self._tell(place, partial(_samples, parts))
        elif self.workers is None or self._in_threads >= LOOKS_IN_THREADS_MAX:
            self.skipped += 1
        else:
            self._in_threads += 1
            copies = [part._replace(data=memoryview(bytes(part.data))) for part in parts]  # the answer goes on
            samples = self.workers.run(partial(_samples, copies), "audit")
            samples.on_settled(partial(self._came, place, samples))

    def _came(self, place: Place, samples: Promise[list[KeySample]]) -> None:
        self._in_threads -= 1
        self._tell(place, samples.result)

    def _tell(self, place: Place, look: Callable[[], Sequence[KeySample]]) -> None:
        try:
            samples = look()
        except ProxyError:
            self.skipped += 1
        else:
            self._seen(place, samples)


def _run(batches: BatchTable, data: memoryview, turn: int) -> list[SampledBatch]:
    """A look's batches, from one of them on, the first behind the last: those with records of clients."""
    parts, left = list[SampledBatch](), LOOK_RECORDS
    start = int(turn * _GOLDEN % 1 * len(batches))
    for at in range(start, start + min(LOOK_BATCHES, len(batches))):
        batch = batches[at % len(batches)]
        if batch.is_control or batch.records_count < 1:
            continue
        every = -(-batch.records_count // left)
        parts.append(SampledBatch(batch, data[batch.position : batch.position + batch.size], turn % every, every))
        left -= batch.records_count
        if left <= 0:
            break
    return parts


def _is_quick(parts: Sequence[SampledBatch]) -> bool:
    packed = [part.batch.size for part in parts if part.batch.compression != compression.NONE or part.batch.magic < 2]
    return sum(packed) <= INLINE_PACKED_BYTES and sum(part.batch.size for part in parts) <= INLINE_BYTES


def _samples(parts: Sequence[SampledBatch]) -> list[KeySample]:
    """Raises RemoteProtocolError, CodecMissing: one of them cannot be read."""
    return list(_each_sample(parts))


def _each_sample(parts: Sequence[SampledBatch]) -> Iterator[KeySample]:
    for batch, data, first, every in parts:
        if batch.magic < 2:
            whole = legacy.as_batch(data, OPENED_BYTES_MAX)
            header = records.read_header(whole)
            yield key_samples.sample(memoryview(whole)[HEADER.size :], header.records_count, header.base_offset)
            continue
        area: memoryview | bytes = data[HEADER.size :]
        if batch.compression != compression.NONE:
            area = compression.opened(batch.compression, bytes(area), OPENED_BYTES_MAX)
        yield key_samples.sample(area, batch.records_count, batch.base_offset, first, every)
