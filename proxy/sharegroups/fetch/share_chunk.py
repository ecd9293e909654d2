"""What the cache keeps for share groups: whole batches, which of them were aborted, and where the log ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.reading.chunk_cache import Chunk
from proxy.reading.far_records import FarRecords, FarSlice, Records

CHUNKS_PER_PARTITION = 16
"""Chunks kept of one partition and isolation: groups at that many places of one log are served from here at once."""


@dataclass(slots=True, eq=False, kw_only=True)
class ShareChunk(Chunk):
    """Whole batches of one Fetch answer; their bytes may be at another proxy."""

    records: Records
    aborted: Sequence[tuple[int, int]] = ()
    """Offsets (first, last) of records of aborted transactions, ascending; only under read_committed."""
    end_offset: int = -1
    """Where readable records ended at that time (high watermark or last stable offset)."""

    def slice(self, first: int, last: int) -> memoryview | FarSlice:
        """The bytes of batches first..last, both included."""
        end = self.batches[last]
        return self.records[self.batches[first].position : end.position + end.size]

    def dropped(self) -> None:
        """The proxy that has the bytes need not keep them."""
        if isinstance(self.records, FarRecords):
            self.records.forget()
