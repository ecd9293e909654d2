"""Positions of the readers of views, and what they received, by partition of the view (views/README.md rule 55)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

READERS_MAX = 10_000
"""Maximum number of partitions of views with a known reader. Beyond it, those read longest ago are forgotten."""
SLOWEST_S = 60.0
"""Seconds for which the slowest of several readers of one partition counts after its last Fetch."""
FORGOTTEN_S = 3600.0
"""Seconds after its last Fetch until a reader is forgotten: its application is no longer used."""

ViewPartition = tuple[bytes, int]
"""Topic id of the view, and partition of the view."""


@dataclass(slots=True)
class SlotReader:
    """Slowest reader of one partition of a view."""

    connection: int
    position: int
    """Offset of its last Fetch: everything before it was received."""
    at: float
    """Time of that Fetch."""
    records: int = 0
    """Records sent to all readers of the partition."""
    bytes: int = 0


class ViewReaders:
    """Readers of all views at this proxy. Times are monotonic seconds of the caller."""

    def __init__(self) -> None:
        self._readers: dict[ViewPartition, SlotReader] = {}

    @property
    def known(self) -> Mapping[ViewPartition, SlotReader]:
        return self._readers

    def note(self, at: ViewPartition, connection: int, position: int, records: int, size: int, now: float) -> None:
        """Note a Fetch and the size of its response."""
        reader = self._readers.pop(at, None)
        if reader is None:
            reader = SlotReader(connection, position, now)
        elif connection == reader.connection or position <= reader.position or now - reader.at > SLOWEST_S:
            reader.connection, reader.position, reader.at = connection, position, now
        reader.records += records
        reader.bytes += size
        self._readers[at] = reader  # last: the first one was read longest ago
        if len(self._readers) > READERS_MAX:
            del self._readers[next(iter(self._readers))]

    def forget(self, now: float, is_deleted: Callable[[bytes], bool]) -> None:
        """Forget old readers, and those of deleted views."""
        for at in [at for at, reader in self._readers.items() if now - reader.at > FORGOTTEN_S or is_deleted(at[0])]:
            del self._readers[at]
