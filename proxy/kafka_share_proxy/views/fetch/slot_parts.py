"""Parts of one batch for the slots of one request: shared with other requests, or split on its account."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka_share_proxy.loop.interfaces import Timers, Workers
from kafka_share_proxy.views.fetch.shared_reads import ViewReads
from kafka_share_proxy.views.fetch.view_chunks import Division, Row, ViewChunk
from kafka_share_proxy.views.kernel.slicing import Slice
from kafka_share_proxy.views.model.scanning import SlotScan
from kafka_share_proxy.wire.errors import ErrorCode

ATTEMPTS_MAX = 10_000
"""Maximum number of attempts. Beyond it the request splits the batch itself."""


class PartsOfBatch(NamedTuple):
    """Parts of one batch for some slots."""

    slices: Sequence[Slice]
    decompressed_bytes: int
    """0 if the batch is not compressed."""

    @property
    def size(self) -> int:
        return sum(len(part.batch) for part in self.slices if part.batch is not None)


class PartsMaking:
    """Splits batches for one request. Its work in threads counts for the connection (`owner`)."""

    def __init__(self, reads: ViewReads, workers: Workers, timers: Timers, owner: Hashable) -> None:
        self._reads, self._workers, self._timers, self._owner = reads, workers, timers, owner

    async def of(
        self, chunk: ViewChunk, index: int, slots: Sequence[SlotScan], divisions: Mapping[SlotScan, Division]
    ) -> PartsOfBatch | ErrorCode:
        """Return the parts for slots at the same position, or the error of the batch. Raises WorkersBusy."""
        position = slots[0].position
        by_division: dict[Any, list[SlotScan]] = {}
        for slot in slots:
            by_division.setdefault(divisions[slot].name, []).append(slot)
        parts: dict[SlotScan, Slice] = {}
        decompressed_bytes = 0
        for mine in by_division.values():
            division, numbers = divisions[mine[0]], [slot.slot for slot in mine]
            begins_within = chunk.batches[index].base_offset < position
            make_row = self._separate_row if begins_within else self._shared_row
            row = await make_row(chunk, division, numbers, index, position)
            if isinstance(row, ErrorCode):
                return row
            decompressed_bytes = max(decompressed_bytes, row.decompressed_bytes)
            parts.update((slot, row[slot.slot]) for slot in mine)
        return PartsOfBatch([parts[slot] for slot in slots], decompressed_bytes)

    async def _shared_row(
        self, chunk: ViewChunk, division: Division, slots: Sequence[int], index: int, offset: int
    ) -> Row:
        """Return the parts of a whole batch, which other requests use too."""
        reads, table = self._reads, chunk.table(division.name)
        for _ in range(ATTEMPTS_MAX):
            job_done = reads.parts(chunk, division, slots, index, self._workers, self._timers, self._owner)
            if job_done is None:
                break
            await job_done
            await reads.slices.next(self._timers)  # many requests may wait for the same job
        row = table.rows.get(index)
        if row is None:  # evicted meanwhile for other chunks
            return await self._separate_row(chunk, division, slots, index, offset)
        if table.bytes != table.counted_bytes:
            reads.cache.recount_parts(chunk)
        return row

    async def _separate_row(
        self, chunk: ViewChunk, division: Division, slots: Sequence[int], index: int, offset: int
    ) -> Row:
        """Return the parts from an offset on, for this request only."""
        return await self._reads.parts_from(chunk, division.cut, slots, index, offset, self._workers, self._owner)
