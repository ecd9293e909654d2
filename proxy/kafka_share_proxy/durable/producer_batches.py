"""Batch of a state producer, and the appends in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_share_proxy.wire.records.records import Record


@dataclass(slots=True)
class Entry:
    """Records of one caller, stored all or none."""

    records: Sequence[Record]
    token: object
    size: int
    since: float
    unknown: bool = False


@dataclass(slots=True)
class ProducerBatch:
    """Append in flight."""

    data: bytes
    count: int
    since: float
    entries: Sequence[Entry] = ()
    is_takeover: bool = False
    is_transactional: bool = False
    unknown: bool = False
    """True if the log may hold this batch under its sequence numbers."""

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def may_be_stored(self) -> bool:
        """True if an entry may be in the log, under these or earlier sequence numbers."""
        return self.unknown or any(entry.unknown for entry in self.entries)
