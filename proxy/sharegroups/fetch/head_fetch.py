"""One Fetch on a client's own upstream connection, for the share partitions whose heads that client has reserved.

Theory of operation. The answer is taken in by a callback of its own, not by the ShareFetch that asked: that one may
have been answered from the cache meanwhile. Whole batches go to the cache; then whoever waits here goes on first, and
only then the heads are free and other members are woken. A Fetch always names the leader epoch of the view, so a
broker that is no longer the leader, or not yet, does not answer (sharegroups/README.md rule 22). Sessions of the Fetch
protocol are not used (id 0, epoch -1): partitions come and go with every request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.brokers.cluster_view import Topic
from proxy.brokers.interfaces import Connection
from proxy.brokers.rights import Right, rights_of
from proxy.loop.promise import Promise
from proxy.reading.chunk_cache import CacheKey, Chunk
from proxy.reading.far_records import holder_of, taken_in
from proxy.reading.upstream_fetch import FETCH, FETCH_VERSION_WITH_IDS, SMALL_PART, VIEW_IS_OLD, fetch_version
from proxy.sharegroups.fetch.head_reads import Reservation
from proxy.sharegroups.model.coordinator import NOTHING_READ, ShareKey
from proxy.sharegroups.services import ShareServices
from proxy.wire import registry
from proxy.wire.errors import ErrorCode, ProxyError
from proxy.wire.values import ZERO_UUID, TopicIdPartition


@dataclass(frozen=True, slots=True)
class Head:
    """One partition to be read."""

    topic: Topic
    place: TopicIdPartition
    leader_epoch: int
    reservation: Reservation
    max_bytes: int


class UpstreamRead:
    """A Fetch under way. One per connection at a time: `UpstreamRead.of(connection)`."""

    def __init__(
        self, connection: Connection, services: ShareServices, heads: Sequence[Head], wait_s: float, min_bytes: int
    ) -> None:
        self.done: Promise[None] = Promise()
        """Settled when the answer was taken in, or will not come."""
        self.errors: dict[TopicIdPartition, ErrorCode] = {}
        """Partitions the broker refused."""
        self.throttle_time_ms = 0
        self.failure: ProxyError | None = None
        """The connection ended, or the broker's answer is no Fetch answer."""
        self._connection = connection
        self._services = services
        self._heads = {head.place: head for head in heads}
        self._begun = services.timers.now()
        self._version = fetch_version(services.versions)
        body = registry.request(FETCH, self._version).encode(self._request(heads, wait_s, min_bytes))
        connection.memory["upstream-read"] = self
        self._answer = connection.ask(FETCH, self._version, body)
        self._answer.on_settled(self._arrived)

    @staticmethod
    def of(connection: Connection) -> UpstreamRead | None:
        """The one that this connection's broker has not answered yet."""
        return connection.memory.get("upstream-read")

    def covers(self, place: TopicIdPartition) -> bool:
        """Is this partition among those asked for?"""
        return place in self._heads

    def _request(self, heads: Sequence[Head], wait_s: float, min_bytes: int) -> Any:
        message = registry.message("FetchRequest")
        read_ahead = min(sum(head.max_bytes for head in heads), self._services.options.read_ahead_bytes)
        topics: dict[bytes, Any] = {}
        for head in heads:
            topic = topics.get(head.topic.topic_id)
            if topic is None:
                named = {"topic_id": head.topic.topic_id} if self._by_id else {"topic": head.topic.name}
                topic = topics[head.topic.topic_id] = message.FetchTopic(partitions=[], **named)
            topic.partitions.append(
                message.FetchPartition(
                    partition=head.place.partition,
                    current_leader_epoch=head.leader_epoch,
                    fetch_offset=head.reservation.offset,
                    partition_max_bytes=head.max_bytes,
                )
            )
        return message(
            max_wait_ms=round(wait_s * 1000),
            min_bytes=max(1, min(min_bytes, read_ahead)),
            max_bytes=read_ahead,
            isolation_level=int(heads[0].reservation.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=list(topics.values()),
        )

    @property
    def _by_id(self) -> bool:
        return self._version >= FETCH_VERSION_WITH_IDS

    def _arrived(self) -> None:
        if self._connection.memory.get("upstream-read") is self:
            del self._connection.memory["upstream-read"]
        fed: list[TopicIdPartition] = []
        try:
            fed = self._take_in(self._answer.result())
        except ProxyError as failure:
            self.failure = failure
        self._count()
        reservations = [head.reservation for head in self._heads.values()]
        self._services.reads.let_go(reservations)
        self.done.set(None)  # the asking member first
        self._wake([reservation.key for reservation in reservations], fed)

    def _count(self) -> None:
        took_s = self._services.timers.now() - self._begun
        for head in self._heads.values():
            self._services.figures.of(head.reservation.key.group_id).fetch_lock_s.observe(took_s)

    def _wake(self, heads: Iterable[ShareKey], fed: Iterable[TopicIdPartition]) -> None:
        """Members of the group wait for the heads, those of other groups for what was read."""
        keys = dict.fromkeys(heads)
        for place in fed:
            for group_id in self._services.coordinator.groups_of(*place):
                keys[ShareKey(group_id, *place)] = None
        for key in keys:
            self._services.reads.wake(key)

    def _take_in(self, answer: memoryview) -> list[TopicIdPartition]:
        """Feed the cache; the partitions of which something new came."""
        response = registry.response(FETCH, self._version).decode(answer)
        self.throttle_time_ms = response.throttle_time_ms
        if response.error_code != ErrorCode.NONE:
            self.errors = dict.fromkeys(self._heads, ErrorCode(response.error_code))
            return []
        fed = []
        by_name = {head.topic.name: head.topic.topic_id for head in self._heads.values()}
        for topic in response.responses:
            topic_id: bytes = topic.topic_id if self._by_id else by_name.get(topic.topic, ZERO_UUID)
            for partition in topic.partitions:
                head = self._heads.get(TopicIdPartition(topic_id, partition.partition_index))
                if head is not None and self._take_in_partition(head, partition, len(answer)):
                    fed.append(head.place)
        return fed

    def _take_in_partition(self, head: Head, partition: Any, answer_bytes: int) -> bool:
        now = self._services.timers.now()
        key = head.reservation.key
        share = self._services.coordinator.share(key)
        if share is not None:
            share.read_at = now
        if partition.error_code != ErrorCode.NONE:
            self._refused(head, partition.error_code, now)
            return False
        rights_of(self._connection).remember(Right.READ_TOPIC, head.topic.name, True, now)
        data = partition.records if partition.records is not None else b""
        offset = head.reservation.offset
        batches, kept = taken_in(self._connection, data, offset, answer_bytes // SMALL_PART)
        if share is not None:
            share.read_upto = batches[-1].last_offset + 1 if batches else NOTHING_READ
        if not batches:
            return False
        if self._services.audit is not None:
            here = kept if isinstance(kept, memoryview) else memoryview(b"")
            self._services.audit.read(key.group_id, head.place, batches, here)
        read_committed = head.reservation.read_committed
        aborted = batches.aborted_ranges(partition.aborted_transactions) if read_committed else ()
        place = CacheKey(head.place.topic_id, head.place.partition, read_committed, holder_of(self._connection))
        reads, clock = self._services.reads, self._services.clock
        end_offset = partition.last_stable_offset if read_committed else partition.high_watermark
        reads.cache.add(Chunk(place, offset, batches, kept, aborted, head.leader_epoch, now, end_offset))
        clock.not_later_than(now + self._services.options.cache_age_s)
        return True

    def _refused(self, head: Head, code: int, now: float) -> None:
        self.errors[head.place] = ErrorCode(code)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            rights_of(self._connection).remember(Right.READ_TOPIC, head.topic.name, False, now)
        elif code in VIEW_IS_OLD:
            self._services.topology.mark_stale(head.topic.name)
