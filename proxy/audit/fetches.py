"""What readers were given, summed up: one event a second for each reader of a partition, however often it asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from proxy.audit.events import HASH_SPACE, Place
from proxy.wire.batches import BatchTable

TOLD_EVERY_S = 1.0
READERS_MAX = 10_000
"""Readers of a second; past it they are told at once."""


class Hashes(NamedTuple):
    """Which hashes a reader gets."""

    low: int = 0
    end: int = HASH_SPACE
    """Not included."""
    ranges: int = 1
    """How many lie between `low` and `end`; 0: it does not go by ranges of hashes."""


ALL_HASHES = Hashes()


class Reader(NamedTuple):
    """Who reads what."""

    kind: str
    """share, view or filter."""
    place: Place
    group: str | None = None
    view: str | None = None
    slot: int | None = None
    client: str | None = None
    hashes: Hashes = ALL_HASHES


class GivenRecords(NamedTuple):
    """What one answer gave it."""

    first: int
    """Offsets looked through."""
    last: int
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int

    @classmethod
    def all_of(cls, batches: BatchTable) -> GivenRecords:
        """Whole batches, of which nothing is left out."""
        first, last = batches[0], batches[-1]
        rows, size = batches.records_count, last.end - first.position
        return cls(first.base_offset, last.last_offset, rows, rows, size, size)


class Fetches:
    """Sums since they were told last."""

    def __init__(self, tell: Callable[[Place, str | None, tuple[Any, ...]], None]) -> None:
        """`tell`: makes an event of place, group and values."""
        self._tell = tell
        self._sums: dict[Reader, list[int]] = {}

    def add(self, reader: Reader, given: GivenRecords, requests: int = 1) -> None:
        """A reader was given something, in so many answers."""
        sums = self._sums.get(reader)
        if sums is None:
            if len(self._sums) >= READERS_MAX:
                self.tell()
            self._sums[reader] = [requests, *given]
            return
        sums[0] += requests
        sums[1] = min(sums[1], given.first)
        sums[2] = max(sums[2], given.last)
        sums[3] += given.rows_in
        sums[4] += given.rows_out
        sums[5] += given.bytes_in
        sums[6] += given.bytes_out

    def tell(self) -> None:
        """Make events of it; all begins anew."""
        found, self._sums = self._sums, {}
        for (kind, place, group, view, slot, client, hashes), sums in found.items():
            self._tell(place, group, (kind, view, slot, client, *hashes, *sums))
