"""What is opened and not yet returned: the application's end of the fetch buffer (client/README.md rule 15).

Theory of operation. Chunks leave the buffer of the network side when a poll wants them, at most `bytes_max` bytes at a
time, and are opened at once. What one poll does not return waits here for the next, and is forgotten if its position
moves meanwhile; what is paused, or to be revoked, waits as long as that. A batch that cannot be read stands in the row
as an error, and is raised when nothing is left in front of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from proxy.client.polled_records import PartitionRecords, RecordsUnreadable, opened
from proxy.consumer.core import ConsumerCore
from proxy.consumer.fetch_requests import FetchedChunk, FetchRequests
from proxy.wire.values import TopicPartition

POLL_BYTES_MAX = 1 << 20
"""Bytes of record batches, as they came, that are opened for one poll; one chunk at least."""

Room = Callable[[TopicPartition], int]
"""How many records of a partition may be returned."""


class _Ready(NamedTuple):
    """A part of a chunk, or what is wrong behind it."""

    chunk: FetchedChunk
    found: PartitionRecords | RecordsUnreadable


class RecordSupply:
    """Makes records for one flow of one consumer out of what its fetches brought."""

    def __init__(self, core: ConsumerCore, fetches: FetchRequests | None = None, *, check_crcs: bool = True) -> None:
        """Of the main flow, unless another buffer is given."""
        self._core = core
        self._fetches = fetches or core.fetches
        self._check_crcs = check_crcs
        self._ready: deque[_Ready] = deque()

    def take(
        self, records_max: int, room: Room, bytes_max: int = POLL_BYTES_MAX, *, may_raise: bool = True
    ) -> list[PartitionRecords]:
        """The next records; some parts may be without any, past markers for instance. Positions stay.

        Raises:
            RecordsUnreadable: nothing else comes first; its position stays, and is read again. Where it may not raise,
                it does so later.
        """
        taken = self._of_ready(records_max, room, may_raise)
        if not taken and records_max > 0:
            for chunk in self._fetches.take(bytes_max):
                self._ready += self._open(chunk)
            taken = self._of_ready(records_max, room, may_raise)
        return taken

    def _open(self, chunk: FetchedChunk) -> Iterator[_Ready]:
        options = self._core.options
        found = opened(
            chunk,
            read_committed=options.read_committed,
            check_crcs=self._check_crcs,
            key_filter=options.key_filter,
        )
        for part in found.parts:
            yield _Ready(chunk, part)
        if found.error is not None:
            yield _Ready(chunk, found.error)

    def _of_ready(self, records_max: int, room: Room, may_raise: bool) -> list[PartitionRecords]:
        taken: list[PartitionRecords] = []
        kept: deque[_Ready] = deque()
        stopped: set[TopicPartition] = set()
        rooms: dict[TopicPartition, int] = {}
        while self._ready and records_max > 0:
            ready = self._ready.popleft()
            partition, found = ready.chunk.partition, ready.found
            if self._fetches.is_stale(ready.chunk):
                continue
            if partition in stopped or not self._fetches.may_return(ready.chunk):
                kept.append(ready)
                continue
            if isinstance(found, RecordsUnreadable):
                if may_raise and not taken:
                    self._ready.extendleft(reversed(kept))
                    raise found
                kept.append(ready)
                stopped.add(partition)
                continue
            left = rooms.get(partition)
            left = room(partition) if left is None else left
            now, later = found.cut(min(records_max, left))
            if now is not None:
                taken.append(now)
                records_max -= len(now.records)
                rooms[partition] = left - len(now.records)
            if later is not None:
                kept.append(_Ready(ready.chunk, later))
                stopped.add(partition)
        self._ready.extendleft(reversed(kept))
        return taken
