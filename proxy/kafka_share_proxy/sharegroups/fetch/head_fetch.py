"""One Fetch for the share partitions whose heads a client has reserved.

Whole batches go to the cache. The member that sent the Fetch acquires first. Only then other members are woken: those
of its group because the heads are free, those of other groups because of the records read (sharegroups/README.md rule
20).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.reading.far_records import Records
from kafka_share_proxy.reading.upstream_fetch import PartitionRead, PartitionResponse, UpstreamFetch
from kafka_share_proxy.sharegroups.fetch.head_reads import Reservation
from kafka_share_proxy.sharegroups.fetch.share_chunk import ShareChunk
from kafka_share_proxy.sharegroups.model.coordinator import NOTHING_READ, Share, ShareKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.batches import BatchTable
from kafka_share_proxy.wire.values import TopicIdPartition


class HeadFetch(UpstreamFetch):
    """A Fetch of reserved heads."""

    def __init__(
        self,
        connection: Connection,
        services: ShareServices,
        heads: Mapping[PartitionRead, Reservation],
        wait_s: float,
        min_bytes: int,
    ) -> None:
        super().__init__(connection, services, list(heads))
        self.errors: dict[TopicIdPartition, ErrorCode] = {}
        self._services = services
        self._reservations = {_partition(read): reservation for read, reservation in heads.items()}
        self._with_batches: list[TopicIdPartition] = []
        """Partitions for which new batches were read."""
        self._begun = services.timers.now()
        bytes_max = min(sum(read.max_bytes for read in heads), services.options.read_ahead_bytes)
        self.send(
            self.requested(),
            wait_s=wait_s,
            min_bytes=max(1, min(min_bytes, bytes_max)),
            max_bytes=bytes_max,
            read_committed=next(iter(heads)).key.read_committed,
        )

    def covers(self, partition_key: TopicIdPartition) -> bool:
        return partition_key in self._reservations

    def _refused(self, read: PartitionRead, partition: PartitionResponse) -> None:
        self._responded(read)
        self.errors[_partition(read)] = ErrorCode.of(partition.error_code)

    def _brought(
        self, read: PartitionRead, partition: PartitionResponse, batches: BatchTable, records: Records
    ) -> None:
        services, partition_key, now = self._services, _partition(read), self._services.timers.now()
        share = self._responded(read)
        if share is not None:
            share.read_upto = batches[-1].last_offset + 1 if batches else NOTHING_READ
        if not batches:
            return
        if services.audit is not None:
            services.audit.read(self._reservations[partition_key].key.group_id, Place(*partition_key), batches, records)
        committed = read.key.read_committed
        chunk = ShareChunk(
            key=read.key,
            fetch_offset=read.offset,
            batches=batches,
            records=records,
            leader_epoch=read.leader_epoch,
            read_at=now,
            aborted=batches.aborted_ranges(partition.aborted_transactions) if committed else (),
            end_offset=partition.last_stable_offset if committed else partition.high_watermark,
        )
        services.reads.cache.add(chunk)
        services.clock.not_later_than(now + services.options.cache_age_s)
        self._with_batches.append(partition_key)

    def _responded(self, read: PartitionRead) -> Share | None:
        share = self._services.coordinator.share(self._reservations[_partition(read)].key)
        if share is not None:
            share.read_at = self._services.timers.now()
        return share

    def _ended(self) -> None:
        """Wake the members that wait: those of the group for the heads, those of other groups for the records read."""
        keys = dict.fromkeys(reservation.key for reservation in self._reservations.values())
        for partition_key in self._with_batches:
            for group_id in self._services.coordinator.groups_of(*partition_key):
                keys[ShareKey(group_id, *partition_key)] = None
        for key in keys:
            self._services.reads.wake(key)

    def _taken_in(self) -> None:
        if self.error_code != ErrorCode.NONE:
            self.errors = dict.fromkeys(self._reservations, ErrorCode.of(self.error_code))
        took_s = self._services.timers.now() - self._begun
        for reservation in self._reservations.values():
            self._services.figures.of(reservation.key.group_id).fetch_lock_s.observe(took_s)
        self._services.reads.let_go(self._reservations.values())


def _partition(read: PartitionRead) -> TopicIdPartition:
    return TopicIdPartition(read.key.topic_id, read.key.partition)
