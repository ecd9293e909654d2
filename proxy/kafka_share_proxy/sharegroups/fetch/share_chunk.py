"""Cached records for share groups: whole batches, their aborted ranges, and the end of the log when they were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_share_proxy.reading.chunk_cache import Chunk
from kafka_share_proxy.reading.far_records import FarRecords, FarSlice, Records

CHUNKS_PER_PARTITION = 16
"""Maximum number of chunks per partition and isolation level. That many groups can read one log at different offsets
from the cache."""


@dataclass(slots=True, eq=False, kw_only=True)
class ShareChunk(Chunk):
    """Whole batches of one Fetch response. Another proxy may hold their bytes."""

    records: Records
    aborted: Sequence[tuple[int, int]] = ()
    """Offsets (first, last) of records of aborted transactions, ascending; empty unless read_committed."""
    end_offset: int = -1
    """End of the readable records at the time of the read: high watermark or last stable offset."""

    def slice(self, first: int, last: int) -> memoryview | FarSlice:
        """Return the bytes of batches first..last, both included."""
        end = self.batches[last]
        return self.records[self.batches[first].position : end.position + end.size]

    def dropped(self) -> None:
        """Let the proxy that holds the bytes release them."""
        if isinstance(self.records, FarRecords):
            self.records.forget()
