"""The fetch half of a ShareFetch: acquire from the cache, else read free heads from the broker, else wait.

Rules: sharegroups/README.md rules 19-26. The request repeats one loop until it has a result or the client's wait is
over:

1. *Survey* the partitions in the session's rotation: those whose next offset is in the cache (ready), those that must
   be read from the broker (missing), and those without state (unstarted). A partition that this node does not lead, or
   that the client may not read, gets an error.
2. Start the unstarted ones (`start_offsets`), one member per share partition.
3. Acquire from the ready ones within the request's limits and finish, unless a missing one has not been read for a
   while. Then that one is read first, without waiting, so that a busy partition does not starve a quiet one.
4. Otherwise reserve the heads of the missing ones and read them by one Fetch on this client's upstream connection. A
   connection has at most one such Fetch in flight, even across its requests.
5. Without anything to read, the request parks, and is woken when one of its share partitions may have records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from kafka_share_proxy.brokers.connection_slots import ConnectionSlot
from kafka_share_proxy.brokers.topic_leaders import RIGHTS_GRACE_S, judge
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.waiting import first_until
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.far_records import holder_of
from kafka_share_proxy.reading.upstream_fetch import METADATA_IS_STALE, PartitionRead
from kafka_share_proxy.sharegroups.apis.share_requests import refresh
from kafka_share_proxy.sharegroups.fetch.acquiring_cached import Taking, bytes_ready
from kafka_share_proxy.sharegroups.fetch.head_fetch import HeadFetch
from kafka_share_proxy.sharegroups.fetch.head_reads import Reservation
from kafka_share_proxy.sharegroups.fetch.session_survey import Ready, Result, Survey, client_code, survey
from kafka_share_proxy.sharegroups.fetch.start_offsets import confirm_range, start
from kafka_share_proxy.sharegroups.model.coordinator import READ_BYTES_MIN, Share, ShareKey
from kafka_share_proxy.sharegroups.model.sessions import Session
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE, TopicIdPartition

LOCK_WAIT_MIN_S = 0.02
"""Minimum seconds to which an expiring lock shortens the wait of a Fetch."""

SURVEYED_AT_ONCE = 500
"""Number of partitions up to which a survey runs in one step."""
CHECK_AGAIN_S = 0.02
"""Seconds before the next survey if a partition changed during a survey that let other tasks run."""

_REPORTED_LEADERS = ConnectionSlot[dict[tuple[int, bytes, int], float]](dict)
"""Time at which the connection was last sent to another leader, by (hash of the group id, topic id, partition)."""
REPORTED_MAX = 10_000
"""Maximum number of partitions in `_REPORTED_LEADERS` per connection. Beyond it, all entries are removed."""

NO_BROKER_THERE = (
    "the broker of the bootstrap listener is not known: let the client connect to the address that Metadata returns "
    "for each broker, or list brokers in upstream.bootstrap as they advertise themselves"
)

RETRIES_MAX = 3
"""Maximum number of times one ShareFetch retries a partition after an outdated view or a moved offset range."""


class ShareFetching:
    """Fetch of one request. `run` fills `results` and `throttle_time_ms`."""

    def __init__(self, call: Call[messages.ShareFetchRequest], services: ShareServices, session: Session) -> None:
        request = call.message
        self._connection = call.connection
        self._work = call.work
        self._services = services
        self._session = session
        self._group_id = session.key.group_id
        self._order = session.rotated()
        self._keys = [ShareKey(self._group_id, *partition) for partition in self._order]
        self._min_bytes: int = request.min_bytes
        self.deadline: float = services.timers.now() + max(request.max_wait_ms, 0) / 1000
        self._begun = self._confirmed_at = services.timers.now()
        """Time at which outdated rights and leaders of the topics were last refreshed.
        True if a partition changed during a survey that let other tasks run. The next step is another survey.
        """
        self._retries: dict[TopicIdPartition, int] = {}
        self._has_read = False
        self._missed = False
        """True if a partition changed during a survey that let other tasks run. The next step is another survey."""
        self._taking = Taking(call, services, session.key)
        self._reports = False
        self.results: dict[TopicIdPartition, Result] = {}
        """Partitions with records, with an error, or that were read and had no records."""
        self.throttle_time_ms = 0

    async def run(self) -> None:
        """Acquire as much as the request's limits allow, waiting for it at most the request's wait.

        It also ends when the session ends: the group was deleted, or the member opened another session.
        """
        services = self._services
        while services.coordinator.sessions.lives(self._session):
            if services.timers.now() - self._confirmed_at >= RIGHTS_GRACE_S / 2:
                await refresh(self._connection, services, self._order)
                self._confirmed_at = services.timers.now()
            survey = await self.survey()
            if survey.unstarted and await self._start(survey.unstarted):
                continue
            late = services.timers.now() >= self.deadline or self._must_report()
            enough = self._bytes_ready(survey) >= max(self._min_bytes, 0)
            under_way = HeadFetch.of(self._connection)
            launched = self._read(survey, late, enough) if under_way is None else None
            if launched is None:
                before = self._heads(survey.ready)
                if (enough or late) and self._taking.take(survey.ready, self.results):
                    self._read_ahead(survey.ready)
                    return
                if self._heads(survey.ready) != before:
                    continue  # every batch belonged to aborted transactions: survey again from the next offset
                if late or self._only_errors():
                    return
            await self._wait(launched or under_way, launched is not None and bool(survey.ready or late))

    async def acquire_now(self) -> bool:
        """Acquire what is available now and read free heads, without waiting for new records.

        Return False if that does not satisfy the request. `run` then continues from there.
        """
        survey = await self.survey()
        enough = self._bytes_ready(survey) >= max(self._min_bytes, 0)
        if HeadFetch.of(self._connection) is None:
            launched = self._read(survey, True, enough)
            if launched is not None:
                await self._wait(launched, True)
                survey = await self.survey()
        enough = self._bytes_ready(survey) >= max(self._min_bytes, 0)
        lives = self._services.coordinator.sessions.lives(self._session)
        return lives and enough and self._taking.take(survey.ready, self.results)

    def count(self) -> None:
        """Count the share of partitions with records, and the time it took to acquire them."""
        figures = self._services.figures.of(self._group_id)
        given = sum(1 for result in self.results.values() if result.acquired)
        figures.fetch_ratio.observe(given / len(self._order))
        if given:
            figures.acquire_s.observe(self._services.timers.now() - self._begun)

    # Looking

    async def survey(self) -> Survey:
        """Return the state of each partition. One that cannot be fetched here gets an error in `results`.

        A member acquires nothing from partitions that it is about to give up. Otherwise group membership is irrelevant.
        """
        keys, services = self._keys, self._services
        group = services.coordinator.group(self._group_id)
        if group is not None:
            withdrawn = group.withdrawn_from(self._session.key.member_id, services.timers.now())
            if withdrawn:
                keys = [key for key in keys if (key.topic_id, key.partition) not in withdrawn]
        if len(keys) <= SURVEYED_AT_ONCE:
            return await survey(self._connection, services, keys, self.results)
        waiter = services.reads.wait(keys)
        try:
            return await survey(self._connection, services, keys, self.results, self._work)
        finally:
            services.reads.stop_waiting(waiter)
            self._missed = waiter.woken.done
            for key in keys if self._missed else ():
                services.reads.wake(key)  # this request may have passed over records that others can use

    def _bytes_ready(self, survey: Survey) -> int:
        """Return the bytes in the cache that may be acquired. -1 if none."""
        if not survey.ready:
            return -1
        return 1 if self._min_bytes <= 1 else bytes_ready(survey.ready)

    @staticmethod
    def _heads(ready: Iterable[Ready]) -> list[int]:
        return [item.share.partition.next_fetch_offset() for item in ready]

    def _only_errors(self) -> bool:
        return all(
            partition in self.results and self.results[partition].error != ErrorCode.NONE for partition in self._order
        )

    def _must_report(self) -> bool:
        """Return True if the client should look for another leader now instead of after its wait.

        Each connection is sent away at most once per `metadata_age_s` and partition. Otherwise a client that fetches
        again from the same node, because its own metadata is as old, would do it in a loop.
        """
        led_elsewhere = [p for p, result in self.results.items() if result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER]
        if not led_elsewhere:
            return False
        reported = _REPORTED_LEADERS.of(self._connection)
        now, age_s = self._services.timers.now(), self._services.options.metadata_age_s
        group = hash(self._group_id)  # a group id may have 32 KiB
        newly_reported = [key for p in led_elsewhere if now - reported.get(key := (group, *p), -inf) > age_s]
        if len(reported) > REPORTED_MAX:
            reported.clear()
        reported.update(dict.fromkeys(newly_reported, now))
        self._reports = self._reports or bool(newly_reported)
        if newly_reported and self._connection.node_id == UNKNOWN_NODE:
            self._services.notes(
                "share-fetch-at-bootstrap",
                group_id=self._group_id,
                client=self._connection.client_host,
                reason=NO_BROKER_THERE,
            )
        return self._reports

    # Reading

    async def _start(self, partitions: Sequence[TopicIdPartition]) -> bool:
        """Start share partitions. Return False if other requests are already starting all of them."""
        starting = self._services.reads.starting
        mine = [partition for partition in partitions if ShareKey(self._group_id, *partition) not in starting]
        if not mine:
            return False
        errors = await start(self._connection, self._services, self._session, mine, self.deadline)
        await self._refused(errors)
        return True

    def _read(self, survey: Survey, late: bool, enough: bool) -> HeadFetch | None:
        """Reserve the missing heads and send a Fetch for them, if one is due."""
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
        return HeadFetch(self._connection, services, heads, wait_s, self._min_bytes)

    def _wait_s(self, now: float) -> float:
        """Return the wait of a Fetch: within the client's wait, and little beyond the next end of a lock, whose records
        can then be delivered again.
        """
        wait_s = min(self.deadline - now, self._services.options.fetch_wait_s)
        lock_s = self._services.coordinator.next_lock_deadline() - now
        return min(wait_s, max(lock_s, LOCK_WAIT_MIN_S)) if lock_s > 0 else wait_s

    def _read_ahead(self, ready: Iterable[Ready]) -> None:
        """Read the chunk that follows a half-consumed one while the clients process their records.

        Only if the broker had more records at the last read, and if the chunk will be consumed within half of its cache
        age at the present rate: records that are read too early expire in the cache.
        """
        services, now = self._services, self._services.timers.now()
        if self._has_read or HeadFetch.of(self._connection) is not None:
            return
        following = []
        for item in ready:
            chunk, result = item.chunk, self.results.get(item.partition)
            if result is None or not result.acquired or chunk.next_offset >= chunk.end_offset:
                continue
            offset = item.share.partition.next_fetch_offset()
            unused = chunk.bytes_from(chunk.index_of(offset)) if offset < chunk.next_offset else 0
            whole = chunk.bytes_from(0)
            used = whole - unused
            if used >= unused and (now - chunk.read_at) * whole / used < services.options.cache_age_s / 2:
                known = services.reads.cache.find(chunk.key, chunk.next_offset, chunk.leader_epoch, now)
                if known is None:
                    following.append((item.partition, item.share, chunk.next_offset))
        heads = self._reserve(following, now, 0.0)
        if heads:
            HeadFetch(self._connection, services, heads, 0.0, 1)

    def _reserve(
        self, missing: Sequence[tuple[TopicIdPartition, Share, int]], now: float, wait_s: float
    ) -> dict[PartitionRead, Reservation]:
        services = self._services
        read_committed = services.coordinator.settings(self._group_id).read_committed
        until = now + wait_s + services.options.reservation_grace_s
        holder = holder_of(self._connection)
        heads: dict[PartitionRead, Reservation] = {}
        bytes_max = max(services.options.read_ahead_bytes // max(len(missing), 1), READ_BYTES_MIN)
        for partition, share, offset in missing:
            topic = services.topology.topic_by_id(partition.topic_id)
            if topic is None:
                continue
            key = ShareKey(self._group_id, *partition)
            reserved = services.reads.reserve(key, self._connection.id, offset, read_committed, until, now)
            if reserved is not None:
                size = share.size_read(offset, now, services.options.cache_age_s, bytes_max)
                read_key = ReadKey(*partition, read_committed, holder)
                epoch = topic.leaders[partition.partition].epoch
                heads[PartitionRead(read_key, topic.name, offset, epoch, size)] = reserved
        return heads

    async def _wait(self, reading: HeadFetch | None, at_once: bool) -> None:
        """Wait until a partition may have changed. `at_once`: wait only for a Fetch that itself does not wait."""
        services = self._services
        if self._missed:
            self._missed = False
            await first_until(services.timers, services.timers.now() + CHECK_AGAIN_S)
        elif reading is not None and at_once:
            grace = services.timers.now() + services.options.reservation_grace_s
            await first_until(services.timers, grace, reading.done)
        else:
            waiter = services.reads.wait(self._keys)
            try:
                await first_until(
                    services.timers, self.deadline, waiter.woken, *(() if reading is None else (reading.done,))
                )
            finally:
                services.reads.stop_waiting(waiter)
        if reading is not None and reading.done.done:
            await self._absorb(reading)

    async def _absorb(self, reading: HeadFetch) -> None:
        if reading.failure is not None:
            raise reading.failure
        self.throttle_time_ms = max(self.throttle_time_ms, reading.throttle_time_ms)
        for partition in self._order:
            if reading.covers(partition) and partition not in reading.errors:
                self.results.setdefault(partition, Result())
        errors = {partition: code for partition, code in reading.errors.items() if partition in self._order}
        out_of_range = [partition for partition, code in errors.items() if code == ErrorCode.OFFSET_OUT_OF_RANGE]
        if out_of_range:
            refused = await confirm_range(self._connection, self._services, self._group_id, out_of_range)
            for partition in out_of_range:
                self.results.setdefault(partition, Result())
                if not self._may_retry(partition):
                    refused.setdefault(partition, ErrorCode.OFFSET_NOT_AVAILABLE)
                errors.pop(partition)
            errors |= refused
        if errors:
            await self._refused(errors)

    async def _refused(self, errors: dict[TopicIdPartition, ErrorCode]) -> None:
        """Refresh the view where the broker's error shows that it is outdated. Store all other errors in `results`."""
        outdated = [partition for partition, code in errors.items() if code in METADATA_IS_STALE]
        if outdated:
            await refresh(self._connection, self._services, outdated)
        for partition, code in errors.items():
            judged = judge(self._connection, self._services, partition)
            if judged == ErrorCode.NONE and code in METADATA_IS_STALE and self._may_retry(partition):
                continue
            self.results[partition] = Result(error=client_code(judged or code))

    def _may_retry(self, partition: TopicIdPartition) -> bool:
        self._retries[partition] = self._retries.get(partition, 0) + 1
        return self._retries[partition] <= RETRIES_MAX
