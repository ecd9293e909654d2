"""One Fetch for the base partitions of views, and for the plain partitions that the same request names.

Theory of operation. Whole batches become chunks of the cache; then everybody who waits for this read goes on (`done`).
Base partitions are asked for by topic id, so that a base made anew is never read for an old view; where plain
partitions of the same request are known by name only, in the client's own version by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from proxy.brokers.interfaces import Connection
from proxy.forwarding.services import Services
from proxy.reading.chunk_cache import ReadKey
from proxy.reading.far_records import Records
from proxy.reading.upstream_fetch import VIEW_IS_OLD, AskedPartition, PartitionAnswer, PartitionRead, UpstreamFetch
from proxy.views.fetch.shared_reads import ViewReads
from proxy.views.fetch.view_chunks import ViewChunk, fates
from proxy.views.model.scanning import Facts
from proxy.wire.batches import BatchTable
from proxy.wire.errors import ErrorCode

READ_BYTES_MIN = 64 << 10
"""Asked for of one base partition at least, however little the client takes at a time."""

_CHUNKS_ARE_OLD = VIEW_IS_OLD | {ErrorCode.OFFSET_OUT_OF_RANGE}


T = TypeVar("T")


class ViewRead(UpstreamFetch):
    """A Fetch of base partitions, and of partitions that the client wants as they are."""

    def __init__(
        self,
        connection: Connection,
        services: Services,
        reads: ViewReads,
        heads: Sequence[PartitionRead],
        plains: Sequence[AskedPartition],
        *,
        wait_s: float,
        max_bytes: int,
        read_committed: bool,
        version: int | None = None,
        session_id: int = 0,
        heads_first: bool = False,
    ) -> None:
        """`version`: of the client's request, where plain partitions are named; `session_id`: one to be closed;
        `heads_first`: they get their share of the answer before the plain partitions do."""
        super().__init__(connection, services, heads, version)
        self.heads: Mapping[ReadKey, PartitionRead] = {head.key: head for head in heads}
        self.chunks: dict[ReadKey, ViewChunk] = {}
        self.facts: dict[ReadKey, Facts] = {}
        """Of partitions that were not refused."""
        self.refusals: dict[ReadKey, PartitionAnswer] = {}
        """Those with an error or a diverging epoch."""
        self.plains: dict[tuple[bytes | str, int], PartitionAnswer] = {}
        """Of the plain partitions."""
        self.wait_s = wait_s
        self._services, self._reads = services, reads
        self._asked_plains = {(plain.topic, plain.entry.partition) for plain in plains}
        reads.figures.reads += 1
        self._promised = sum(head.max_bytes for head in heads if head.max_bytes > READ_BYTES_MIN)
        """Bytes that are known to come; the budget of answers counts them until they are here."""
        services.answers.hold(self._promised)
        for key in self.heads:
            reads.flights.begin(key, self)
        bases = [asked for asked in self.asked() if (asked.topic, asked.entry.partition) not in self._asked_plains]
        """A plain one is at the same offset: one answer serves both (views/README.md rule 21)."""
        self.send(
            [*bases, *plains] if heads_first else [*plains, *bases],
            wait_s=wait_s,
            min_bytes=1,
            max_bytes=max_bytes,
            read_committed=read_committed,
            session_id=session_id,
        )

    def _take_in_partition(self, place: tuple[bytes | str, int], partition: PartitionAnswer, answer_bytes: int) -> None:
        if place in self._asked_plains:
            self.plains[place] = partition
        super()._take_in_partition(place, partition, answer_bytes)

    def _refused(self, read: PartitionRead, partition: PartitionAnswer) -> None:
        key = read.key
        self.refusals[key] = partition
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._services.topology.mark_stale(read.name)
        if partition.error_code in _CHUNKS_ARE_OLD:
            self._reads.cache.drop_partition(key.topic_id, key.partition)

    def _brought(self, read: PartitionRead, partition: PartitionAnswer, batches: BatchTable, records: Records) -> None:
        key = read.key
        facts = Facts(partition.high_watermark, partition.last_stable_offset, partition.log_start_offset)
        self.facts[key] = facts
        self._reads.note_end(key, facts)
        if not batches or not isinstance(records, memoryview):  # views are read for this proxy's own clients
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
            asked_epoch=read.last_fetched_epoch,
            read_at=self._services.timers.now(),
            facts=facts,
        )
        self._reads.cache.add(chunk)
        self._reads.mind_age(self._services.timers)

    def _taken_in(self) -> None:
        self._services.answers.release(self._promised)
        for key in self.heads:
            self._reads.flights.end(key, self)

    def _ended(self) -> None:
        """All who waited for it waited for `done`."""


def in_turn(items: Iterable[T], turn: int) -> list[T]:
    """The same, beginning elsewhere each time: the first partition of a Fetch gets a batch of whatever size."""
    found = list(items)
    at = turn % len(found) if found else 0
    return found[at:] + found[:at]
