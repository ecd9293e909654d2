"""Reads of heads, by one Fetch on the client's own upstream connection for all reserved ones, and acquiring from them.

Whole batches go to the cache. The member that sent the Fetch acquires first. Only then other members are woken: those
of its group because the heads are free, those of other groups because of the records read (sharegroups/README.md rule
20). `acquire` obeys the limits of one request (sharegroups/README.md rules 25, 26, 30, 31), and reads ahead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.upstream_fetch import PartitionRead, ReadPartition, UpstreamFetch
from kafka_share_proxy.sharegroups.fetch.head_reads import Reservation, ShareChunk
from kafka_share_proxy.sharegroups.fetch.session_survey import (
    NO_RECORDS,
    MissingHead,
    Ready,
    Result,
    ShareFetching,
    Survey,
    refuse,
)
from kafka_share_proxy.sharegroups.fetch.start_offsets import confirm_range
from kafka_share_proxy.sharegroups.model.coordinator import NOTHING_READ, READ_BYTES_MIN, ShareKey
from kafka_share_proxy.sharegroups.model.partition import ReadRecords
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode
from kafka_share_proxy.wire.records.order_keys import REQUESTED
from kafka_share_proxy.wire.values import TopicIdPartition

LOCK_WAIT_MIN_S = 0.02
"""Minimum seconds to which an expiring lock shortens the wait of a Fetch."""

RECORD_LIMIT = 1
"""ShareAcquireMode of a strict MaxRecords (KIP-1206). 0 delivers whole batches."""

RANGES_MAX = 1000
"""Maximum number of acquired ranges in a response, checked per partition: each range costs time in the loop. The
client's next request begins with another partition."""


def read_heads(fetching: ShareFetching, survey: Survey, *, may_wait: bool, has_min_bytes: bool) -> HeadFetch | None:
    """Reserve the missing heads and send a Fetch for them, if one is due.

    Its wait ends little after the next lock, whose records can then be delivered again. Without `may_wait` the broker
    responds immediately. `has_min_bytes`: the cache alone satisfies the request, so that only heads that have not been
    read for a while are read.
    """
    services = fetching.services
    now, missing = services.timers.now(), survey.missing
    if has_min_bytes:
        missing = [item for item in missing if now - item.share.read_at >= services.options.idle_read_s]
    if not missing or (fetching.has_read and not may_wait):
        return None
    wait_s = 0.0
    if may_wait and not survey.ready:
        wait_s = min(fetching.deadline - now, services.options.fetch_wait_s)
        lock_s = services.coordinator.next_lock_deadline() - now
        wait_s = min(wait_s, max(lock_s, LOCK_WAIT_MIN_S)) if lock_s > 0 else wait_s
    head_fetch = _reserve_and_read(fetching, missing, wait_s, fetching.request.min_bytes)
    fetching.has_read = fetching.has_read or head_fetch is not None
    return head_fetch


def _reserve_and_read(
    fetching: ShareFetching, missing: Sequence[MissingHead], wait_s: float, min_bytes: int
) -> HeadFetch | None:
    """Send a Fetch for the heads that no other request is reading. None if there are none."""
    services, now = fetching.services, fetching.services.timers.now()
    read_committed = services.coordinator.settings(fetching.group_id).read_committed
    deadline = now + wait_s + services.options.reservation_grace_s
    heads: dict[PartitionRead, Reservation] = {}
    bytes_max = max(services.options.read_ahead_bytes // max(len(missing), 1), READ_BYTES_MIN)
    for partition, share, offset in missing:
        topic = services.topology.topic_by_id(partition.topic_id)
        if topic is None:
            continue
        key = ShareKey(fetching.group_id, *partition)
        reserved = services.reads.reserve(key, fetching.connection.id, offset, read_committed, deadline, now)
        if reserved is not None:
            size = share.size_read(offset, now, services.options.cache_age_s, bytes_max)
            read_key = ReadKey(*partition, read_committed, fetching.holder)
            epoch = topic.leaders[partition.partition].epoch
            heads[PartitionRead(read_key, topic.name, offset, epoch, size)] = reserved
    return HeadFetch(fetching.connection, services, heads, wait_s, min_bytes) if heads else None


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
        self.errors: dict[TopicIdPartition, ErrorCode] = {}
        self._services = services
        self._reservations = {_partition(read): reservation for read, reservation in heads.items()}
        self._started_at = services.timers.now()
        self._to_wake = dict.fromkeys(reservation.key for reservation in heads.values())
        """Members that wait: those of the group for the heads, those of other groups for the records read."""
        bytes_max = min(sum(read.max_bytes for read in heads), services.options.read_ahead_bytes)
        super().__init__(connection, services, list(heads))
        self.send(
            self.requested(),
            wait_s=wait_s,
            min_bytes=max(1, min(min_bytes, bytes_max)),
            max_bytes=bytes_max,
            read_committed=next(iter(heads)).key.read_committed,
            tags=_tags(services, heads),
        )

    def covers(self, partition_key: TopicIdPartition) -> bool:
        return partition_key in self._reservations

    def _received(self, partitions: Sequence[ReadPartition]) -> None:
        try:
            for partition in partitions:
                self._store(partition)
            if self.error_code != NO_ERROR:
                self.errors = dict.fromkeys(self._reservations, ErrorCode.of(self.error_code))
        finally:
            took_s = self._services.timers.now() - self._started_at
            for reservation in self._reservations.values():
                self._services.figures.of(reservation.key.group_id).fetch_lock_s.observe(took_s)
            self._services.reads.let_go(self._reservations.values())

    def _store(self, received: ReadPartition) -> None:
        """Add the batches to the cache, or keep the error."""
        services, (read, response, is_refused, batches, records) = self._services, received
        partition, now = _partition(read), services.timers.now()
        group_id = self._reservations[partition].key.group_id
        share = services.coordinator.share_of(group_id, partition)
        if share is not None:
            share.read_at = now
            if not is_refused:
                share.read_upto = batches[-1].last_offset + 1 if batches else NOTHING_READ
        if is_refused:
            self.errors[partition] = ErrorCode.of(response.error_code)
        if not batches:
            return
        if services.audit is not None:
            services.audit.read(group_id, Place(*partition), batches, records)
        read_committed = read.key.read_committed
        chunk = ShareChunk(
            key=read.key,
            fetch_offset=read.offset,
            batches=batches,
            records=records,
            leader_epoch=read.leader_epoch,
            read_at=now,
            aborted=batches.aborted_ranges(response.aborted_transactions) if read_committed else (),
            end_offset=response.last_stable_offset if read_committed else response.high_watermark,
        )
        services.reads.cache.add(chunk)
        services.clock.not_later_than(now + services.options.cache_age_s)
        for waiting_group_id in services.coordinator.groups_of(*partition):
            self._to_wake[ShareKey(waiting_group_id, *partition)] = None

    def _ended(self) -> None:
        self._services.reads.wake_all(self._to_wake)


def _tags(services: ShareServices, heads: Mapping[PartitionRead, Reservation]) -> tuple[tuple[int, bytes], ...]:
    """Return the field that requests keys from the proxy that reads for a group with key order."""
    if next(iter(heads)).key.holder == 0:
        return ()
    shares = (services.coordinator.share(reservation.key) for reservation in heads.values())
    return (REQUESTED,) if any(share is not None and share.partition.needs_keys for share in shares) else ()


def _partition(read: PartitionRead) -> TopicIdPartition:
    return TopicIdPartition(read.key.topic_id, read.key.partition)


async def absorb(fetching: ShareFetching, head_fetch: HeadFetch) -> None:
    """Store the results of a finished Fetch. Raises ProxyError if it failed.

    After OFFSET_OUT_OF_RANGE the bounds of the log are looked up, and the partition is read again.
    """
    if head_fetch.failure is not None:
        raise head_fetch.failure
    fetching.throttle_time_ms = max(fetching.throttle_time_ms, head_fetch.throttle_time_ms)
    for partition in fetching.order:
        if head_fetch.covers(partition) and partition not in head_fetch.errors:
            fetching.results.setdefault(partition, NO_RECORDS)
    errors = {partition: code for partition, code in head_fetch.errors.items() if partition in fetching.order}
    out_of_range = [partition for partition, code in errors.items() if code == ErrorCode.OFFSET_OUT_OF_RANGE]
    if out_of_range:
        refused = await confirm_range(fetching.connection, fetching.services, fetching.group_id, out_of_range)
        for partition in out_of_range:
            fetching.results.setdefault(partition, NO_RECORDS)
            if not fetching.may_retry(partition):
                refused.setdefault(partition, ErrorCode.OFFSET_NOT_AVAILABLE)
            errors.pop(partition)
        errors |= refused
    if errors:
        await refuse(fetching, errors)


def acquire(fetching: ShareFetching, survey: Survey, *, may_read_ahead: bool) -> bool:
    """Acquire in order, with MaxBytes split evenly and MaxRecords first come, first served.

    Return True if there are records to deliver. Every partition that was tried has a result afterwards.
    """
    ready_partitions, results = survey.ready, fetching.results
    bytes_remaining = min(fetching.request.max_bytes, fetching.services.limits.local_answer_bytes)
    if not ready_partitions or not _has_room(fetching, survey, bytes_remaining):
        return False
    records_remaining = fetching.request.max_records
    has_acquired, ranges = False, 0
    for index, ready in enumerate(ready_partitions):
        if records_remaining <= 0 or bytes_remaining <= 0 or ranges >= RANGES_MAX:
            break
        results.setdefault(ready.partition, NO_RECORDS)
        result = _acquire_from(
            fetching,
            ready,
            records_remaining,
            bytes_remaining // (len(ready_partitions) - index),
            at_least_one=not has_acquired,
        )
        if result is not None:
            results[ready.partition] = result
            has_acquired = True
            ranges += len(result.acquired)
            records_remaining -= sum(last - first + 1 for first, last, _ in result.acquired)
            bytes_remaining -= len(result.records)
    if has_acquired and may_read_ahead:
        _read_ahead(fetching, ready_partitions)
    return has_acquired


def _has_room(fetching: ShareFetching, survey: Survey, max_bytes: int) -> bool:
    """Return True if the memory budget allows a response with records now (sharegroups/README.md rule 26)."""
    responses = fetching.services.responses
    if responses.has_room(max_bytes):
        return True
    size = min(max_bytes, survey.bytes_ready())
    if responses.has_room(size):
        return True
    if not fetching.was_refused_memory:
        fetching.was_refused_memory = True
        responses.reserve(size)  # is refused, which counts the refusal
    return False


def _acquire_from(
    fetching: ShareFetching, ready: Ready, max_records: int, max_bytes: int, *, at_least_one: bool
) -> Result | None:
    """Acquire from one chunk. None if nothing was acquired. All of its records may have been aborted."""
    services, chunk, request = fetching.services, ready.chunk, fetching.request
    partition = ready.share.partition
    share = services.coordinator.share_of(fetching.group_id, ready.partition)
    if share is not ready.share or partition.next_fetch_offset() != ready.offset:
        return None  # the state has changed since the survey
    if partition.needs_keys and chunk.keys is None:
        return None  # the group was switched to key order since the survey
    begin, end = _offered_batches(ready, max_records, max_bytes)
    if begin == end and at_least_one:
        end = begin + 1  # even if it exceeds MaxBytes (Kafka's minOneMessage)
    if begin == end:
        return None
    settings, now = services.coordinator.settings(fetching.group_id), services.timers.now()
    member_id = fetching.session.key.member_id
    undelivered = chunk.aborted if partition.delivers_control_batches else chunk.undelivered()
    acquisition = partition.acquire(
        member_id,
        ReadRecords(ready.offset, chunk.batches[begin:end], undelivered, chunk.keys),
        max_records,
        request.batch_size,
        fetching.version >= 2 and request.share_acquire_mode == RECORD_LIMIT,
        settings,
        now,
    )
    ready.share.note_oldest(now)
    if (kept_from := partition.kept_from()) >= chunk.next_offset:
        kept_from = services.coordinator.lowest_kept_from(*ready.partition, chunk.key.read_committed, kept_from)
        services.reads.cache.drop_below(chunk.key, kept_from)
    if not acquisition.acquired:
        return None
    services.clock.not_later_than(acquisition.lock_deadline)
    services.figures.of(fetching.group_id).acquire(acquisition.ranges)
    records = chunk.slice(begin + acquisition.first_batch, begin + acquisition.last_batch)
    if services.audit is not None:
        services.audit.acquired(share.key, member_id, acquisition.ranges, len(records), settings.lock_duration_s)
    return Result(records=records, acquired=acquisition.ranges)


def _offered_batches(ready: Ready, max_records: int, max_bytes: int) -> tuple[int, int]:
    """Return the range of batches to offer: as many as max_records could need, within max_bytes."""
    batches = ready.chunk.batches
    begin = batches.first_to(ready.offset)
    offset_limit = max(ready.offset, ready.share.partition.end_offset + 1) + max_records
    end = batches.first_from(offset_limit + 1, begin)
    limit = batches.position(begin) + max_bytes
    if batches.position(end) > limit:
        end = bisect_right(range(end), limit, lo=begin, key=lambda index: batches.position(index + 1))
    return begin, end


def _read_ahead(fetching: ShareFetching, ready_partitions: Iterable[Ready]) -> None:
    """Read the chunks that follow a half-consumed one, if the broker had more records at the last read.

    Only those that will be consumed within half of their cache age at the present rate: others would expire unread.
    """
    services, now = fetching.services, fetching.services.timers.now()
    following = []
    for ready in ready_partitions:
        chunk, result = ready.chunk, fetching.results.get(ready.partition)
        if result is None or not result.acquired or chunk.next_offset >= chunk.end_offset:
            continue
        offset = ready.share.partition.next_fetch_offset()
        unused_bytes = chunk.bytes_from(chunk.index_of(offset)) if offset < chunk.next_offset else 0
        chunk_bytes = chunk.bytes_from(0)
        used_bytes = chunk_bytes - unused_bytes
        if (
            used_bytes >= unused_bytes
            and (now - chunk.read_at) * chunk_bytes / used_bytes < services.options.cache_age_s / 2
        ):
            cached = services.reads.cache.find(chunk.key, chunk.next_offset, chunk.leader_epoch, now)
            if cached is None:
                following.append(MissingHead(ready.partition, ready.share, chunk.next_offset))
    if following:
        _reserve_and_read(fetching, following, 0.0, 1)
