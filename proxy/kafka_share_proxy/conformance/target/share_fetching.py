"""Acquisition of records for one ShareFetch (DelayedShareFetch of Kafka 4.3; sharegroups/README.md rules 24-34)."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.partition_log import PartitionLog
from kafka_share_proxy.conformance.target.share_requests import find_led
from kafka_share_proxy.conformance.target.timers import Signal, wait_for_change
from kafka_share_proxy.conformance.target.topics import HostedPartition
from kafka_share_proxy.sharegroups.model.coordinator import Share, ShareKey
from kafka_share_proxy.sharegroups.model.partition import ReadRecords
from kafka_share_proxy.sharegroups.model.sessions import Session
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.batches import BatchTable, split_complete
from kafka_share_proxy.wire.values import TopicIdPartition

RECORD_LIMIT = 1
"""ShareAcquireMode that makes MaxRecords exact (KIP-1206)."""


@dataclass
class AcquiredPartition:
    """Result for one partition."""

    error: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    ranges: tuple[tuple[int, int, int], ...] = ()
    """(first offset, last offset, delivery count)."""


@dataclass(frozen=True)
class _Readable:
    partition: TopicIdPartition
    share: Share
    log: PartitionLog
    upto: int
    size: int
    """Bytes from the next offset on."""


class ShareFetcher:
    """The fetch of one request."""

    def __init__(self, cluster: TargetCluster, session: Session, request: messages.ShareFetchRequest) -> None:
        self._cluster, self._session, self._request = cluster, session, request
        self._settings = cluster.share.coordinator.settings(session.key.group_id)
        self._order = session.rotated()
        self.results: dict[TopicIdPartition, AcquiredPartition] = {}

    async def run(self) -> None:
        """Acquire records, and wait for them up to MaxWaitMs."""
        cluster = self._cluster
        deadline = cluster.clock.now() + max(self._request.max_wait_ms, 0) / 1000
        sessions = cluster.share.coordinator.sessions
        while sessions.is_open(self._session):
            readable = self.survey()
            is_late = cluster.clock.now() >= deadline
            is_enough = sum(each.size for each in readable) >= max(self._request.min_bytes, 1)
            before = [each.share.partition.next_fetch_offset() for each in readable]
            if readable and (is_enough or is_late) and self._acquire(readable):
                return
            if is_enough and [each.share.partition.next_fetch_offset() for each in readable] != before:
                continue  # every record belonged to aborted transactions
            if is_late or not any(self.results[each].error == ErrorCode.NONE for each in self._order):
                return
            await wait_for_change(self._signals(), cluster.timers, deadline)

    def acquire_now(self) -> bool:
        """Acquire what is available without waiting. Return False if that is nothing."""
        readable = self.survey()
        return bool(readable) and self._acquire(readable)

    def survey(self) -> list[_Readable]:
        """Return the partitions with records that may be acquired. Errors of the others are in `results`."""
        located = []
        for partition in self._order:
            hosted = find_led(self._cluster, self._session.key.node_id, partition)
            if isinstance(hosted, ErrorCode):
                self.results[partition] = AcquiredPartition(hosted)
                continue
            self.results[partition] = AcquiredPartition()
            readable = self._readable(partition, hosted)
            if readable is not None:
                located.append(readable)
        return located

    def _readable(self, partition: TopicIdPartition, hosted: HostedPartition) -> _Readable | None:
        state = self._cluster.share
        group_id, member_id, _ = self._session.key
        key = ShareKey(group_id, *partition)
        share = state.share(key, hosted) or state.start(key, hosted)
        group = state.coordinator.group(group_id)
        if group is not None and partition in group.withdrawn_from(member_id, self._cluster.clock.now()):
            return None
        log = hosted.log
        upto = log.stable_offset if self._settings.read_committed else log.end
        offset = share.partition.acquirable_from(self._settings)
        if offset is None or offset >= upto:
            return None
        return _Readable(partition, share, log, upto, log.bytes_between(offset, upto))

    def _acquire(self, readable: list[_Readable]) -> bool:
        remaining = self._request.max_records
        share_of_bytes = max(self._request.max_bytes // len(readable), 1)
        for each in readable:
            if remaining <= 0:
                break
            remaining -= self._acquire_from(each, remaining, share_of_bytes)
        self._cluster.share.schedule()
        return any(result.ranges for result in self.results.values())

    def _acquire_from(self, readable: _Readable, max_records: int, max_bytes: int) -> int:
        partition, request = readable.share.partition, self._request
        offset = partition.next_fetch_offset()
        data = readable.log.whole_batches(offset, readable.upto, max_bytes)
        batches, _ = split_complete(data)
        read = ReadRecords(offset, batches, self._aborted(readable.log, batches))
        acquired = partition.acquire(
            self._session.key.member_id,
            read,
            max_records,
            request.batch_size,
            request.share_acquire_mode == RECORD_LIMIT,
            self._settings,
            self._cluster.clock.now(),
        )
        if acquired.ranges:
            first, last = batches[acquired.first_batch], batches[acquired.last_batch]
            records = data[first.position : last.end]
            self.results[readable.partition] = AcquiredPartition(records=records, ranges=acquired.ranges)
        return acquired.acquired

    def _aborted(self, log: PartitionLog, batches: BatchTable) -> list[tuple[int, int]]:
        if not self._settings.read_committed or not len(batches):
            return []
        return batches.aborted_ranges(log.aborted_between(batches[0].base_offset, batches[-1].last_offset + 1))

    def _signals(self) -> list[Signal]:
        located = [find_led(self._cluster, self._session.key.node_id, each) for each in self._order]
        logs = [each.changed for each in located if isinstance(each, HostedPartition)]
        return [self._cluster.share.changed(self._session.key.group_id), self._cluster.topics.changed, *logs]
