"""Acquiring from cached batches within one request's limits (sharegroups/README.md rules 25, 26, 30, 31)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.reading.chunk_cache import BatchSpan
from kafka_share_proxy.sharegroups.fetch.session_survey import Ready, Result, Results, is_as_found
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.partition import ReadRecords
from kafka_share_proxy.sharegroups.model.sessions import SessionKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages

RECORD_LIMIT = 1
"""ShareAcquireMode of a strict MaxRecords (KIP-1206). 0 delivers whole batches."""

RANGES_MAX = 1000
"""Maximum number of acquired ranges in a response, checked per partition: each range costs time in the loop. The
client's next request begins with another partition."""

_base_offset = attrgetter("base_offset")


def _batch_end(batch: BatchSpan) -> int:
    return batch.position + batch.size


def bytes_ready(ready: Iterable[Ready]) -> int:
    """Return the bytes in the cache from the partitions' next offsets on."""
    return sum(item.chunk.bytes_from(item.chunk.index_of(item.offset)) for item in ready)


class Taking:
    """Limits of one ShareFetch, and what remains of them."""

    def __init__(self, call: Call[messages.ShareFetchRequest], services: ShareServices, session: SessionKey) -> None:
        request = call.message
        self._services = services
        self._session = session
        self._max_bytes: int = min(request.max_bytes, services.limits.local_answer_bytes)
        self._max_records: int = request.max_records
        self._batch_size: int = request.batch_size
        self._record_limit = call.version >= 2 and request.share_acquire_mode == RECORD_LIMIT
        self._was_refused = False

    def take(self, ready: Sequence[Ready], results: Results) -> bool:
        """Acquire in order, with MaxBytes split evenly and MaxRecords first come, first served.

        Return True if there are records to deliver. Every partition that was tried has a result afterwards.
        """
        if not ready or not self._has_room(ready):
            return False
        records_remaining, bytes_remaining = self._max_records, self._max_bytes
        taken, ranges = False, 0
        for index, item in enumerate(ready):
            if records_remaining <= 0 or bytes_remaining <= 0 or ranges >= RANGES_MAX:
                break
            results.setdefault(item.partition, Result())
            result = self._acquire(
                item, records_remaining, bytes_remaining // (len(ready) - index), at_least_one=not taken
            )
            if result is not None:
                results[item.partition] = result
                taken = True
                ranges += len(result.acquired)
                records_remaining -= sum(last - first + 1 for first, last, _ in result.acquired)
                bytes_remaining -= len(result.records)
        return taken

    def _has_room(self, ready: Iterable[Ready]) -> bool:
        """Return True if the memory budget allows a response with records now.

        Otherwise the response is sent without records after MaxWaitMs (sharegroups/README.md rule 26).
        """
        responses = self._services.responses
        size = min(self._max_bytes, bytes_ready(ready))
        if responses.has_room(size):
            return True
        if not self._was_refused:
            self._was_refused = True
            responses.reserve(size)  # is refused, which counts the refusal
        return False

    def _acquire(self, item: Ready, max_records: int, max_bytes: int, *, at_least_one: bool) -> Result | None:
        """Acquire from one chunk. None if nothing was acquired. All of its records may have been aborted."""
        services, chunk = self._services, item.chunk
        if not is_as_found(services, self._session.group_id, item.partition, item.share, item.offset):
            return None
        begin, end = self._span(item, max_records, max_bytes)
        if begin == end and at_least_one:
            end = begin + 1  # even if it exceeds MaxBytes (Kafka's minOneMessage)
        if begin == end:
            return None
        settings, now = services.coordinator.settings(self._session.group_id), services.timers.now()
        got = item.share.partition.acquire(
            self._session.member_id,
            ReadRecords(item.offset, chunk.batches[begin:end], chunk.aborted),
            max_records,
            self._batch_size,
            self._record_limit,
            settings,
            now,
        )
        item.share.note_oldest(now)
        self._drop_read(item)
        if not got.acquired:
            return None
        services.clock.not_later_than(got.lock_deadline)
        services.figures.of(self._session.group_id).acquire(got.ranges)
        records = chunk.slice(begin + got.first_batch, begin + got.last_batch)
        if services.audit is not None:
            key = ShareKey(self._session.group_id, *item.partition)
            services.audit.acquired(key, self._session.member_id, got.ranges, len(records), settings.lock_duration_s)
        return Result(records=records, acquired=got.ranges)

    def _span(self, item: Ready, max_records: int, max_bytes: int) -> tuple[int, int]:
        """Return the range of batches to offer: as many as max_records could need, within max_bytes."""
        chunk = item.chunk
        begin = chunk.index_of(item.offset)
        reach = max(item.offset, item.share.partition.end_offset + 1) + max_records
        end = bisect_right(chunk.batches, reach, lo=begin, key=_base_offset)
        if chunk.bytes_from(begin) <= max_bytes:
            return begin, end
        limit = chunk.batches[begin].position + max_bytes
        return begin, bisect_right(chunk.batches, limit, lo=begin, hi=end, key=_batch_end)

    def _drop_read(self, item: Ready) -> None:
        """Drop the cached batches that every group has already passed."""
        coordinator = self._services.coordinator
        lowest = item.share.partition.next_fetch_offset()
        if lowest < item.chunk.next_offset:
            return
        read_committed = item.chunk.key.read_committed
        for group_id, share in coordinator.groups_of(*item.partition).items():
            if coordinator.settings(group_id).read_committed == read_committed:
                lowest = min(lowest, share.partition.next_fetch_offset())
        self._services.reads.cache.drop_below(item.chunk.key, lowest)
