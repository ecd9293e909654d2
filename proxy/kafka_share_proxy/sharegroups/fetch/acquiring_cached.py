"""Acquiring from cached batches within one request's limits (sharegroups/README.md rules 25, 26, 30, 31)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from kafka_share_proxy.reading.chunk_cache import BatchSpan
from kafka_share_proxy.sharegroups.fetch.head_fetch import read_ahead
from kafka_share_proxy.sharegroups.fetch.session_survey import MissingHead, Ready, Result, ShareFetching, Survey
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.partition import ReadRecords

RECORD_LIMIT = 1
"""ShareAcquireMode of a strict MaxRecords (KIP-1206). 0 delivers whole batches."""

RANGES_MAX = 1000
"""Maximum number of acquired ranges in a response, checked per partition: each range costs time in the loop. The
client's next request begins with another partition."""

_base_offset = attrgetter("base_offset")


def _batch_end(batch: BatchSpan) -> int:
    return batch.position + batch.size


def acquire(fetching: ShareFetching, survey: Survey, *, may_read_ahead: bool) -> bool:
    """Acquire in order, with MaxBytes split evenly and MaxRecords first come, first served.

    Return True if there are records to deliver. Every partition that was tried has a result afterwards.
    """
    ready, results = survey.ready, fetching.results
    bytes_remaining = min(fetching.request.max_bytes, fetching.services.limits.local_answer_bytes)
    if not ready or not _has_room(fetching, survey, bytes_remaining):
        return False
    records_remaining = fetching.request.max_records
    taken, ranges = False, 0
    for index, item in enumerate(ready):
        if records_remaining <= 0 or bytes_remaining <= 0 or ranges >= RANGES_MAX:
            break
        results.setdefault(item.partition, Result())
        result = _acquire(
            fetching, item, records_remaining, bytes_remaining // (len(ready) - index), at_least_one=not taken
        )
        if result is not None:
            results[item.partition] = result
            taken = True
            ranges += len(result.acquired)
            records_remaining -= sum(last - first + 1 for first, last, _ in result.acquired)
            bytes_remaining -= len(result.records)
    if taken and may_read_ahead and (following := _following_chunks(fetching, ready)):
        read_ahead(fetching, following)
    return taken


def _has_room(fetching: ShareFetching, survey: Survey, max_bytes: int) -> bool:
    """Return True if the memory budget allows a response with records now (sharegroups/README.md rule 26)."""
    responses = fetching.services.responses
    size = min(max_bytes, survey.bytes_ready())
    if responses.has_room(size):
        return True
    if not fetching.was_refused_memory:
        fetching.was_refused_memory = True
        responses.reserve(size)  # is refused, which counts the refusal
    return False


def _acquire(
    fetching: ShareFetching, item: Ready, max_records: int, max_bytes: int, *, at_least_one: bool
) -> Result | None:
    """Acquire from one chunk. None if nothing was acquired. All of its records may have been aborted."""
    services, chunk, request = fetching.services, item.chunk, fetching.request
    key = ShareKey(fetching.group_id, *item.partition)
    if services.coordinator.share(key) is not item.share or item.share.partition.next_fetch_offset() != item.offset:
        return None  # the state has changed since the survey
    if item.share.partition.needs_keys and chunk.keys is None:
        return None  # the group was switched to key order since the survey
    begin, end = _span(item, max_records, max_bytes)
    if begin == end and at_least_one:
        end = begin + 1  # even if it exceeds MaxBytes (Kafka's minOneMessage)
    if begin == end:
        return None
    settings, now = services.coordinator.settings(key.group_id), services.timers.now()
    member_id = fetching.session.key.member_id
    got = item.share.partition.acquire(
        member_id,
        ReadRecords(item.offset, chunk.batches[begin:end], chunk.aborted, chunk.keys),
        max_records,
        request.batch_size,
        fetching.version >= 2 and request.share_acquire_mode == RECORD_LIMIT,
        settings,
        now,
    )
    item.share.note_oldest(now)
    if (passed := item.share.partition.kept_from()) >= chunk.next_offset:
        passed = services.coordinator.passed_by_all(*item.partition, chunk.key.read_committed, passed)
        services.reads.cache.drop_below(chunk.key, passed)
    if not got.acquired:
        return None
    services.clock.not_later_than(got.lock_deadline)
    services.figures.of(key.group_id).acquire(got.ranges)
    records = chunk.slice(begin + got.first_batch, begin + got.last_batch)
    if services.audit is not None:
        services.audit.acquired(key, member_id, got.ranges, len(records), settings.lock_duration_s)
    return Result(records=records, acquired=got.ranges)


def _span(item: Ready, max_records: int, max_bytes: int) -> tuple[int, int]:
    """Return the range of batches to offer: as many as max_records could need, within max_bytes."""
    chunk = item.chunk
    begin = chunk.index_of(item.offset)
    reach = max(item.offset, item.share.partition.end_offset + 1) + max_records
    end = bisect_right(chunk.batches, reach, lo=begin, key=_base_offset)
    if chunk.bytes_from(begin) <= max_bytes:
        return begin, end
    limit = chunk.batches[begin].position + max_bytes
    return begin, bisect_right(chunk.batches, limit, lo=begin, hi=end, key=_batch_end)


def _following_chunks(fetching: ShareFetching, ready: Iterable[Ready]) -> list[MissingHead]:
    """Return the chunks that follow a half-consumed one, if the broker had more records at the last read.

    Only those that will be consumed within half of their cache age at the present rate: others would expire unread.
    """
    services, now = fetching.services, fetching.services.timers.now()
    following = []
    for item in ready:
        chunk, result = item.chunk, fetching.results.get(item.partition)
        if result is None or not result.acquired or chunk.next_offset >= chunk.end_offset:
            continue
        offset = item.share.partition.next_fetch_offset()
        unused = chunk.bytes_from(chunk.index_of(offset)) if offset < chunk.next_offset else 0
        whole = chunk.bytes_from(0)
        used = whole - unused
        if used >= unused and (now - chunk.read_at) * whole / used < services.options.cache_age_s / 2:
            known = services.reads.cache.find(chunk.key, chunk.next_offset, chunk.leader_epoch, now)
            if known is None:
                following.append(MissingHead(item.partition, item.share, chunk.next_offset))
    return following
