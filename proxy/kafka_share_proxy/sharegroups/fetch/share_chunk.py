"""Cached records for share groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_share_proxy.reading.chunk_cache import Chunk
from kafka_share_proxy.reading.far_records import FarRecords, FarSlice, Records

CHUNKS_PER_PARTITION = 16
"""Maximum number of chunks per partition and isolation level, and of groups that read one log at different offsets."""


@dataclass(slots=True, eq=False, kw_only=True)
class ShareChunk(Chunk):
    """Whole batches of one Fetch response. Another proxy may hold their bytes."""

    records: Records
    aborted: Sequence[tuple[int, int]] = ()
    """Offsets (first, last) of records of aborted transactions, ascending. Empty unless read_committed."""
    end_offset: int = -1
    """High watermark or last stable offset at the time of the read."""

    def slice(self, first: int, last: int) -> memoryview | FarSlice:
        end = self.batches[last]
        return self.records[self.batches[first].position : end.position + end.size]

    def dropped(self) -> None:
        if isinstance(self.records, FarRecords):
            self.records.forget()
