"""What the slots of one request get of one batch: from what was made for others, or made on its account."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from proxy.loop.interfaces import Timers, Workers
from proxy.views.fetch.shared_reads import ViewReads
from proxy.views.fetch.view_chunks import Division, Row, ViewChunk
from proxy.views.kernel.slicing import Slice
from proxy.views.model.scanning import SlotScan
from proxy.wire.errors import ErrorCode

LOOKS_MAX = 10_000
"""Times that one request looks for what others are making; more is a mistake of ours, and it makes it itself."""


class PartsOfBatch(NamedTuple):
    """What some slots get of one batch."""

    slices: Sequence[Slice]
    opened: int
    """Bytes that were opened for it."""

    @property
    def size(self) -> int:
        """Bytes that they bring into an answer."""
        return sum(len(part.batch) for part in self.slices if part.batch is not None)


class PartsMaking:
    """One request's way to its parts; threads work on its account (interfaces.Workers)."""

    def __init__(self, reads: ViewReads, workers: Workers, timers: Timers, owner: Hashable) -> None:
        self._reads, self._workers, self._timers, self._owner = reads, workers, timers, owner

    async def of(
        self, chunk: ViewChunk, index: int, slots: Sequence[SlotScan], divisions: Mapping[SlotScan, Division]
    ) -> PartsOfBatch | ErrorCode:
        """The parts of one batch for slots that stand at one place, in order; why it cannot be taken apart.

        Raises WorkersBusy: too much waits for a thread.
        """
        position = slots[0].position
        by_division: dict[Any, list[SlotScan]] = {}
        for slot in slots:
            by_division.setdefault(divisions[slot].name, []).append(slot)
        found: dict[SlotScan, Slice] = {}
        opened = 0
        for mine in by_division.values():
            division, numbers = divisions[mine[0]], [slot.slot for slot in mine]
            is_within = chunk.batches[index].base_offset < position
            row = await (self._rest if is_within else self._whole)(chunk, division, numbers, index, position)
            if isinstance(row, ErrorCode):
                return row
            opened = max(opened, row.opened)
            found.update((slot, row[slot.slot]) for slot in mine)
        return PartsOfBatch([found[slot] for slot in slots], opened)

    async def _whole(self, chunk: ViewChunk, division: Division, slots: Sequence[int], index: int, offset: int) -> Row:
        """Of a batch that begins at the offset, or behind it: for all who want it."""
        reads, table = self._reads, chunk.table(division.name)
        for _ in range(LOOKS_MAX):
            waits = reads.parts(chunk, division, slots, index, self._workers, self._timers, self._owner)
            if waits is None:
                break
            await waits
            await reads.slices.next(self._timers)  # many may wait for the same
        row = table.rows.get(index)
        if row is None:  # taken away meanwhile, for others
            return await self._rest(chunk, division, slots, index, offset)
        if table.bytes != table.counted:
            reads.cache.grown(chunk)
        return row

    async def _rest(self, chunk: ViewChunk, division: Division, slots: Sequence[int], index: int, offset: int) -> Row:
        """Of a batch from an offset within it on, which nobody else needs."""
        return await self._reads.rest(chunk, division.cut, slots, index, offset, self._workers, self._owner)
