"""The fetch half of a ShareFetch: acquire from the cache, else read the heads that are free, else wait (decision 19).

Theory of operation. One loop until there is something to answer or the client's wait is over:

1. *Survey* the partitions in the session's rotation: which have their next offset in the cache (ready), which would
   have to be read (missing), which have no state yet (unstarted). What is not led here, or not allowed, is an error.
2. Unstarted ones are begun (`share_starting`), one member per share partition.
3. Ready ones are acquired within the request's budget, and that is the answer - unless a missing one has not been read
   for a while: then it is read first, without waiting, so that a busy partition does not starve a quiet one.
4. Otherwise the heads of the missing ones are reserved and read by one Fetch on this client's upstream connection,
   with a capped wait; never a second one while it is under way, which is also true across requests of a connection.
5. Whoever has nothing to read parks, and is woken when one of its share partitions may have something.

Locks are taken on batch headers; records pass as the bytes they came in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from proxy.apis.leadership import judge
from proxy.apis.ports import Call
from proxy.apis.services import Services
from proxy.apis.share_cache import Batch, CacheKey, Chunk
from proxy.apis.share_requests import follow_leader, refresh
from proxy.apis.share_starting import confirm_range, start
from proxy.apis.upstream_reads import VIEW_IS_OLD, Head, UpstreamRead
from proxy.apis.waiting import first_until
from proxy.errors import ErrorCode
from proxy.share.coordinator import Share, ShareKey
from proxy.share.partition import Read
from proxy.share.sessions import Session
from proxy.values import TopicIdPartition

LOCK_WAIT_MIN_S = 0.02
"""A Fetch is not cut shorter than this for a lock that is about to end."""

RETRIES_MAX = 3
"""Times one ShareFetch tries a partition again after its broker knew better than the view, or its range was moved."""

_FETCH_CODES = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""What clients can handle in a fetched partition (share-groups.md 3.7); the Java client throws on any other."""

_MOVED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Told to clients as 6: look for the leader again."""

_base_offset = attrgetter("base_offset")


def _batch_end(batch: Batch) -> int:
    return batch.position + batch.size


def client_code(code: ErrorCode) -> ErrorCode:
    """The fetch error a client is told."""
    if code in _MOVED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code if code in _FETCH_CODES else ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(slots=True)
class Result:
    """What one partition's entry says."""

    error: ErrorCode = ErrorCode.NONE
    records: memoryview | bytes = b""
    acquired: Sequence[tuple[int, int, int]] = ()
    """(first offset, last offset, delivery count)"""


@dataclass(slots=True, eq=False)
class _Ready:
    """A partition whose next offset is in the cache."""

    place: TopicIdPartition
    share: Share
    offset: int
    chunk: Chunk


@dataclass(slots=True)
class _Survey:
    """Where the partitions stand."""

    ready: list[_Ready] = field(default_factory=list)
    missing: list[tuple[TopicIdPartition, Share, int]] = field(default_factory=list)
    """(partition, its state, the offset to read from)"""
    unstarted: list[TopicIdPartition] = field(default_factory=list)


class ShareFetching:
    """The fetch of one request. `run` fills `results` and `throttle_time_ms`."""

    def __init__(self, call: Call, services: Services, session: Session) -> None:
        request = call.message
        self._connection = call.connection
        self._services = services
        self._group_id = session.key.group_id
        self._member_id = session.key.member_id
        self._order = session.rotated()
        self._keys = [ShareKey(self._group_id, *place) for place in self._order]
        self._min_bytes: int = request.min_bytes
        self._max_bytes: int = min(request.max_bytes, services.limits.local_answer_bytes)
        self._max_records: int = request.max_records
        self._batch_size: int = request.batch_size
        self._record_limit = call.version >= 2 and request.share_acquire_mode == 1
        self._deadline: float = services.timers.now() + max(request.max_wait_ms, 0) / 1000
        self._retries: dict[TopicIdPartition, int] = {}
        self._has_read = False
        self._was_refused = False
        self.results: dict[TopicIdPartition, Result] = {}
        """Partitions with records, with an error, or that were looked at and had nothing."""
        self.throttle_time_ms = 0

    async def run(self) -> None:
        """Acquire what the request's limits allow, waiting for it at most the request's wait."""
        services = self._services
        while True:
            self.judge()
            survey = self._survey()
            if survey.unstarted and await self._start(survey.unstarted):
                continue
            late = services.timers.now() >= self._deadline or self._must_tell()
            enough = self._bytes_ready(survey) >= max(self._min_bytes, 0)
            under_way = UpstreamRead.of(self._connection)
            launched = self._read(survey, late, enough) if under_way is None else None
            if launched is None:
                before = self._heads(survey.ready)
                if (enough or late) and self._has_room(survey.ready) and self._take(survey.ready):
                    self._read_ahead(survey.ready)
                    return
                if self._heads(survey.ready) != before:
                    continue  # all of it was of aborted transactions: what lies behind?
                if late or self._only_errors():
                    return
            await self._wait(launched or under_way, launched is not None and bool(survey.ready or late))

    # Looking

    def judge(self) -> None:
        """Find the partitions that are unknown, not allowed or not led here. Errors stay; what was fine may change."""
        services = self._services
        for place, key in zip(self._order, self._keys, strict=True):
            if place in self.results and self.results[place].error != ErrorCode.NONE:
                continue
            follow_leader(services, key)
            code = judge(self._connection, services, place)
            if code != ErrorCode.NONE:
                self.results[place] = Result(error=code)

    def _survey(self) -> _Survey:
        services, survey = self._services, _Survey()
        settings = services.coordinator.settings(self._group_id)
        now = services.timers.now()
        for place, key in zip(self._order, self._keys, strict=True):
            if place in self.results and self.results[place].error != ErrorCode.NONE:
                continue
            share = services.coordinator.share(key)
            if share is None:
                survey.unstarted.append(place)
                continue
            if not share.partition.can_acquire(settings):
                continue
            offset = share.partition.next_fetch_offset()
            leader = services.topology.leader(*place)
            epoch = leader.epoch if leader is not None else -1
            chunk = services.reads.cache.find(CacheKey(*place, settings.read_committed), offset, epoch, now)
            if chunk is not None:
                survey.ready.append(_Ready(place, share, offset, chunk))
            else:
                survey.missing.append((place, share, offset))
        return survey

    def _bytes_ready(self, survey: _Survey) -> float:
        """Bytes in the cache that may be acquired; -1 when nothing is."""
        if not survey.ready:
            return -1
        if self._min_bytes <= 1:
            return 1
        return sum(item.chunk.bytes_from(item.chunk.index_of(item.offset)) for item in survey.ready)

    @staticmethod
    def _heads(ready: Iterable[_Ready]) -> list[int]:
        return [item.share.partition.next_fetch_offset() for item in ready]

    def _only_errors(self) -> bool:
        """No partition is left to wait for."""
        return all(place in self.results and self.results[place].error != ErrorCode.NONE for place in self._order)

    def _must_tell(self) -> bool:
        """The client should look for another leader now, not after its wait."""
        return any(result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER for result in self.results.values())

    # Reading

    async def _start(self, places: Sequence[TopicIdPartition]) -> bool:
        """Begin share partitions; False when somebody else is at all of them."""
        starting = self._services.reads.starting
        mine = [place for place in places if ShareKey(self._group_id, *place) not in starting]
        if not mine:
            return False
        errors = await start(self._connection, self._services, self._group_id, mine)
        await self._refused(errors)
        return True

    def _read(self, survey: _Survey, late: bool, enough: bool) -> UpstreamRead | None:
        """Reserve what is missing and ask for it, if that is due."""
        services = self._services
        now = services.timers.now()
        missing = survey.missing
        if enough:
            missing = [item for item in missing if now - item[1].read_at >= services.options.idle_read_s]
        if not missing or (late and self._has_read):
            return None
        wait_s = 0.0 if survey.ready or late else self._wait_s(now)
        heads = self._reserve(missing, now, wait_s)
        if not heads:
            return None
        self._has_read = True
        return UpstreamRead(self._connection, services, heads, wait_s, self._min_bytes)

    def _wait_s(self, now: float) -> float:
        """Not beyond the client's wait, nor far beyond the end of the next lock: its records would come again."""
        wait_s = min(self._deadline - now, self._services.options.fetch_wait_s)
        lock_s = self._services.coordinator.next_lock_deadline() - now
        return min(wait_s, max(lock_s, LOCK_WAIT_MIN_S)) if lock_s > 0 else wait_s

    def _read_ahead(self, ready: Iterable[_Ready]) -> None:
        """Ask for what comes behind a chunk that is nearly used up, while the client works on its answer.

        Only where more is known to be there, and where the chunk fed several requests and was used up in half of its
        time: what is read too early is read for nothing.
        """
        services, now = self._services, self._services.timers.now()
        if self._has_read or UpstreamRead.of(self._connection) is not None:
            return
        behind = []
        for item in ready:
            chunk, taken = item.chunk, self.results.get(item.place)
            if taken is None or not taken.acquired or chunk.next_offset >= chunk.end_offset:
                continue
            offset = item.share.partition.next_fetch_offset()
            left = chunk.bytes_from(chunk.index_of(offset)) if offset < chunk.next_offset else 0
            if left <= len(taken.records) and now - chunk.read_at < services.options.cache_age_s / 2:
                known = services.reads.cache.find(chunk.key, chunk.next_offset, chunk.leader_epoch, now)
                if known is None:
                    behind.append((item.place, item.share, chunk.next_offset))
        heads = self._reserve(behind, now, 0.0)
        if heads:
            UpstreamRead(self._connection, services, heads, 0.0, 1)

    def _reserve(self, missing: Iterable[tuple[TopicIdPartition, Share, int]], now: float, wait_s: float) -> list[Head]:
        services = self._services
        read_committed = services.coordinator.settings(self._group_id).read_committed
        until = now + wait_s + services.options.reservation_grace_s
        heads: list[Head] = []
        bytes_left = services.options.read_ahead_bytes
        for place, share, offset in missing:
            topic = services.topology.topic_by_id(place.topic_id)
            if topic is None:
                continue
            key = ShareKey(self._group_id, *place)
            reserved = services.reads.reserve(key, self._connection.id, offset, read_committed, until, now)
            if reserved is not None:
                size = share.size_read(offset, now, services.options.cache_age_s, bytes_left)
                heads.append(Head(topic, place, topic.leaders[place.partition].epoch, reserved, size))
        return heads

    async def _wait(self, reading: UpstreamRead | None, at_once: bool) -> None:
        """Until something may have changed. `at_once`: only for the answer of a Fetch that does not wait itself."""
        services = self._services
        if reading is not None and at_once:
            grace = services.timers.now() + services.options.reservation_grace_s
            await first_until(services.timers, grace, reading.done)
        else:
            waiter = services.reads.wait(self._keys)
            try:
                await first_until(
                    services.timers, self._deadline, waiter.woken, *(() if reading is None else (reading.done,))
                )
            finally:
                services.reads.stop_waiting(waiter)
        if reading is not None and reading.done.done:
            await self._absorb(reading)

    async def _absorb(self, reading: UpstreamRead) -> None:
        """Take over what the broker said beside the records."""
        if reading.failure is not None:
            raise reading.failure
        self.throttle_time_ms = max(self.throttle_time_ms, reading.throttle_time_ms)
        for place in self._order:
            if reading.covers(place) and place not in reading.errors:
                self.results.setdefault(place, Result())
        mine = {place: code for place, code in reading.errors.items() if place in self._order}
        outside = [place for place, code in mine.items() if code == ErrorCode.OFFSET_OUT_OF_RANGE]
        if outside:
            refused = await confirm_range(self._connection, self._services, self._group_id, outside)
            for place in outside:
                self.results.setdefault(place, Result())
                if not self._may_retry(place):
                    refused.setdefault(place, ErrorCode.OFFSET_NOT_AVAILABLE)
                mine.pop(place)
            mine |= refused
        if mine:
            await self._refused(mine)

    async def _refused(self, errors: dict[TopicIdPartition, ErrorCode]) -> None:
        """Look again where the broker knows better than the view; the rest is what the client is told."""
        old = [place for place, code in errors.items() if code in VIEW_IS_OLD]
        if old:
            await refresh(self._connection, self._services, old)
        for place, code in errors.items():
            judged = judge(self._connection, self._services, place)
            if judged == ErrorCode.NONE and code in VIEW_IS_OLD and self._may_retry(place):
                continue
            self.results[place] = Result(error=client_code(judged or code))

    def _may_retry(self, place: TopicIdPartition) -> bool:
        self._retries[place] = self._retries.get(place, 0) + 1
        return self._retries[place] <= RETRIES_MAX

    # Acquiring

    def _has_room(self, ready: Iterable[_Ready]) -> bool:
        """May an answer with records be made now? Else the request waits and comes without (decision 27)."""
        answers = self._services.answers
        size = min(self._max_bytes, sum(item.chunk.bytes_from(item.chunk.index_of(item.offset)) for item in ready))
        if answers.has_room(size):
            return True
        if not self._was_refused:
            self._was_refused = True
            answers.reserve(size)  # refused, and counted as such
        return False

    def _take(self, ready: Sequence[_Ready]) -> bool:
        """Acquire in order, within MaxRecords and MaxBytes; True when there are records to answer."""
        records_left, bytes_left = self._max_records, self._max_bytes
        taken = False
        for index, item in enumerate(ready):
            if records_left <= 0 or bytes_left <= 0:
                break
            bytes_share = bytes_left // (len(ready) - index)
            acquired = self._acquire(item, records_left, bytes_share, first=not taken)
            result = self.results.setdefault(item.place, Result())
            if acquired:
                taken = True
                records_left -= acquired
                bytes_left -= len(result.records)
        return taken

    def _acquire(self, item: _Ready, max_records: int, max_bytes: int, *, first: bool) -> int:
        """Acquire from one chunk; the offsets acquired. Nothing may be left of a chunk of aborted records: then on."""
        services = self._services
        settings = services.coordinator.settings(self._group_id)
        partition, chunk = item.share.partition, item.chunk
        offset = item.offset
        begin, end = self._span(item, offset, max_records, max_bytes)
        if begin == end and first:
            end = begin + 1  # at least one batch, however large (Kafka's minOneMessage)
        if begin == end:
            return 0
        read = Read(offset, chunk.batches[begin:end], chunk.aborted)
        got = partition.acquire(
            self._member_id, read, max_records, self._batch_size, self._record_limit, settings, services.timers.now()
        )
        self._drop_read(item)
        if not got.acquired:
            return 0
        services.clock.not_later_than(got.lock_deadline)
        records = chunk.slice(begin + got.first_batch, begin + got.last_batch)
        self.results[item.place] = Result(records=records, acquired=got.ranges)
        return got.acquired

    def _span(self, item: _Ready, offset: int, max_records: int, max_bytes: int) -> tuple[int, int]:
        """The batches to offer: as far as max_records could reach, and no more than max_bytes."""
        chunk = item.chunk
        begin = chunk.index_of(offset)
        reach = max(offset, item.share.partition.end_offset + 1) + max_records
        end = bisect_right(chunk.batches, reach, lo=begin, key=_base_offset)
        if chunk.bytes_from(begin) <= max_bytes:
            return begin, end
        limit = chunk.batches[begin].position + max_bytes
        return begin, bisect_right(chunk.batches, limit, lo=begin, hi=end, key=_batch_end)

    def _drop_read(self, item: _Ready) -> None:
        """Let go of what every group has behind it."""
        coordinator = self._services.coordinator
        lowest = item.share.partition.next_fetch_offset()
        if lowest < item.chunk.next_offset:
            return
        read_committed = item.chunk.key.read_committed
        for group_id, share in coordinator.groups_of(*item.place).items():
            if coordinator.settings(group_id).read_committed == read_committed:
                lowest = min(lowest, share.partition.next_fetch_offset())
        self._services.reads.cache.drop_below(item.chunk.key, lowest)
