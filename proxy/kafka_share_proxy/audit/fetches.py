"""Sums of the records that readers received: one event per second for each reader of a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafka_share_proxy.audit.events import HASH_SPACE, Place
from kafka_share_proxy.wire.records.batches import BatchTable

REPORT_EVERY_S = 1.0
READERS_MAX = 10_000
"""Maximum number of readers in one second. Beyond it, the sums become events immediately."""


class Hashes(NamedTuple):
    """Range of key hashes that a reader receives."""

    low: int = 0
    end: int = HASH_SPACE
    """First hash after the range."""
    ranges: int = 1
    """Number of ranges between `low` and `end`. 0 if the reader does not select by ranges of hashes."""


ALL_HASHES = Hashes()


class Reader(NamedTuple):
    """A reader of one partition."""

    kind: str
    """Value of the field `reader` in schemas/internal/AuditEvent.json."""
    place: Place
    group: str | None = None
    view: str | None = None
    slot: int | None = None
    client: str | None = None
    hashes: Hashes = ALL_HASHES


class GivenRecords(NamedTuple):
    """Records that one response gave to a reader."""

    first: int
    """Examined offsets: `first` to `last`, both included."""
    last: int
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int

    @classmethod
    def all_of(cls, batches: BatchTable) -> GivenRecords:
        """Return the figures of whole batches that are returned unchanged."""
        first, last = batches[0], batches[-1]
        rows, size = batches.records_count, last.end - first.position
        return cls(first.base_offset, last.last_offset, rows, rows, size, size)


class Fetches:
    """Sums by reader since the last events."""

    def __init__(self, report: Callable[[Place, str | None, tuple[Any, ...]], None]) -> None:
        self._report = report
        self._sums: dict[Reader, list[int]] = {}

    def add(self, reader: Reader, records: GivenRecords, requests: int = 1) -> None:
        """Add what a reader received by this number of requests."""
        sums = self._sums.get(reader)
        if sums is None:
            if len(self._sums) >= READERS_MAX:
                self.report()
            self._sums[reader] = [requests, *records]
            return
        sums[0] += requests
        sums[1] = min(sums[1], records.first)
        sums[2] = max(sums[2], records.last)
        sums[3] += records.rows_in
        sums[4] += records.rows_out
        sums[5] += records.bytes_in
        sums[6] += records.bytes_out

    def report(self) -> None:
        """Make events of all sums, and reset them."""
        sums_by_reader, self._sums = self._sums, {}
        for (kind, place, group, view, slot, client, hashes), sums in sums_by_reader.items():
            self._report(place, group, (kind, view, slot, client, *hashes, *sums))
