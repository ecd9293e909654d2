"""One upstream Fetch for the base partitions of views and for the plain partitions of the same request.

Base partitions are requested by topic id, so that a recreated base is never read for an old view. If plain partitions
of the same request are known by name only, the Fetch uses names and the client's own version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.upstream_fetch import (
    METADATA_IS_STALE,
    PartitionRead,
    PartitionResponse,
    ReadPartition,
    RequestedPartition,
    UpstreamFetch,
)
from kafka_share_proxy.views.fetch.shared_reads import ViewReads
from kafka_share_proxy.views.fetch.view_chunks import ViewChunk, fates
from kafka_share_proxy.views.model.scanning import LogOffsets
from kafka_share_proxy.wire.errors import ErrorCode

_CHUNKS_ARE_OLD = METADATA_IS_STALE | {ErrorCode.OFFSET_OUT_OF_RANGE}
"""Errors after which cached chunks of the partition are dropped."""

T = TypeVar("T")


class ViewRead(UpstreamFetch):
    """Fetch of base partitions and of plain partitions of the same client request."""

    def __init__(
        self,
        connection: Connection,
        services: Services,
        reads: ViewReads,
        base_reads: Sequence[PartitionRead],
        plains: Sequence[RequestedPartition],
        *,
        wait_s: float,
        max_bytes: int,
        read_committed: bool,
        version: int | None = None,
        session_id: int = 0,
        bases_first: bool = False,
    ) -> None:
        """Send the Fetch.

        Args:
            connection: the client's connection, whose upstream side is used.
            services: the services of all handlers.
            reads: where the result is kept for other readers.
            base_reads: base partitions.
            plains: plain partitions of the client's request.
            wait_s: maximum seconds that the broker waits for records.
            max_bytes: maximum bytes of the response.
            read_committed: read up to the last stable offset.
            version: version of the client's request if it names plain partitions.
            session_id: session of the client to close (views/README.md rule 22).
            bases_first: put the base partitions before the plain ones.
        """
        super().__init__(connection, services, base_reads, version)
        self.base_reads: Mapping[ReadKey, PartitionRead] = {base_read.key: base_read for base_read in base_reads}
        self.chunks: dict[ReadKey, ViewChunk] = {}
        self.log_offsets: dict[ReadKey, LogOffsets] = {}
        self.refusals: dict[ReadKey, PartitionResponse] = {}
        """Entries with an error or a diverging epoch."""
        self.plains: dict[tuple[bytes | str, int], PartitionResponse] = {}
        self.wait_s = wait_s
        self._services, self._reads = services, reads
        self._requested_plains = {(plain.topic, plain.entry.partition) for plain in plains}
        reads.figures.reads += 1
        least_bytes = [(read, reads.least_bytes(read.key, read.offset)) for read in base_reads]
        self._promised = sum(max(read.max_bytes, least) for read, least in least_bytes if least)
        """Bytes in the response budget until the response arrives."""
        services.responses.hold(self._promised)
        for key in self.base_reads:
            reads.flights.begin(key, self)
        # One entry serves a base partition and the same plain one at one offset (views/README.md rule 21).
        bases = [each for each in self.requested() if (each.topic, each.entry.partition) not in self._requested_plains]
        self.send(
            [*bases, *plains] if bases_first else [*plains, *bases],
            wait_s=wait_s,
            min_bytes=1,
            max_bytes=max_bytes,
            read_committed=read_committed,
            session_id=session_id,
        )

    def _take_in_partition(
        self, place: tuple[bytes | str, int], partition: PartitionResponse, response_bytes: int
    ) -> None:
        if place in self._requested_plains:
            self.plains[place] = partition
        super()._take_in_partition(place, partition, response_bytes)

    def _received(self, partitions: Sequence[ReadPartition]) -> None:
        try:
            for partition in partitions:
                if partition.is_refused:
                    self._refuse(partition.read, partition.response)
                else:
                    self._keep(partition)
        finally:
            self._services.responses.release(self._promised)
            for key in self.base_reads:
                self._reads.flights.end(key, self)

    def _refuse(self, read: PartitionRead, partition: PartitionResponse) -> None:
        key = read.key
        self.refusals[key] = partition
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._services.topology.set_stale(read.name)
        if partition.error_code in _CHUNKS_ARE_OLD:
            self._reads.cache.drop_partition(key.topic_id, key.partition)

    def _keep(self, received: ReadPartition) -> None:
        read, partition, _, batches, records = received
        key = read.key
        log_offsets = LogOffsets(partition.high_watermark, partition.last_stable_offset, partition.log_start_offset)
        self.log_offsets[key] = log_offsets
        self._reads.note_read(key, log_offsets, batches)
        if not batches or not isinstance(records, memoryview):  # views are read only for this proxy's own clients
            return
        self._reads.figures.read_bytes += len(records)
        if self._reads.audit is not None:
            self._reads.audit.read(key, batches, records)
        leader = self._services.topology.leader(key.topic_id, key.partition)
        chunk = self.chunks[key] = ViewChunk(
            key=key,
            fetch_offset=read.offset,
            batches=batches,
            records=records,
            fates=fates(batches, partition.aborted_transactions, key.read_committed),
            leader_epoch=read.leader_epoch if leader is None or read.leader_epoch >= 0 else leader.epoch,
            requested_epoch=read.last_fetched_epoch,
            read_at=self._services.timers.now(),
            log_offsets=log_offsets,
        )
        self._reads.cache.add(chunk)
        self._reads.schedule_eviction(self._services.timers)

    def _ended(self) -> None:
        """Do nothing: all waiting requests wait for `done`."""


def rotated(items: Iterable[T], shift: int) -> list[T]:
    """Rotate items, because only the first partition of a Fetch gets a batch of any size."""
    ordered = list(items)
    first = shift % len(ordered) if ordered else 0
    return ordered[first:] + ordered[:first]
