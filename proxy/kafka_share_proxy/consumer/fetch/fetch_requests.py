"""Fetch: read ahead into a buffer bounded in bytes, with at most one request per broker (AbstractFetch).

A partition is requested from `fetch_from`, which advances when whole batches arrive. Chunks leave the buffer in the
order of their arrival, and only while their partition may be returned. A seek increments the position's `moves`, which
makes earlier chunks stale.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.consumer.events import (
    BackgroundError,
    BackgroundEvent,
    BrokerRefused,
    ConsumerError,
    FetchArrived,
)
from kafka_share_proxy.consumer.fetch.positions import Position, Positions
from kafka_share_proxy.consumer.metadata_requests import LeaderAndEpoch, MetadataRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import Flow, Partitions, by_topic
from kafka_share_proxy.consumer.requests import DueRequests, Lane, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.consumer.troubles import TroubleKind, Troubles
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError
from kafka_share_proxy.wire.key_filter import TAG
from kafka_share_proxy.wire.records.batches import split_complete
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

VERSIONS = (13, 16)
"""Topics are identified by id."""
VERSIONS_BY_NAME = (12, 12)
"""Version with topic names, for a view that does not exist yet."""
SESSION_ID, SESSION_EPOCH = 0, -1
"""No fetch session (KIP-227): each request lists all partitions."""

STALE_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class FetchedChunk(NamedTuple):
    """Whole batches of one partition, as received."""

    partition: TopicPartition
    records: Any
    """The first batch may begin before `first`."""
    first: int
    """Records below it are not returned."""
    next_offset: int
    """Offset after the last batch."""
    aborted: tuple[Any, ...]
    high_watermark: int
    last_stable_offset: int
    moves: int
    """Value of `Position.moves` when the records were requested."""
    flow: Flow = Flow.MAIN
    is_filtered: bool = False
    """True if the proxy has applied the key filter."""
    until: int | None = None
    """Offset at which the application must not continue within the last batch: the end of a range. None: no end."""

    def copied(self) -> FetchedChunk:
        """Return a copy of the records: a part of the response would keep all of it (fetch.max.bytes) in memory."""
        records = self.records
        is_part = isinstance(records, memoryview) and records.nbytes < len(memoryview(records.obj).cast("B"))
        return self._replace(records=bytes(records)) if is_part else self


class OutOfRange(Protocol):
    """Handler for offsets that are out of the log's range."""

    def reset(self, partitions: Iterable[TopicPartition], reason: str, /) -> list[BackgroundEvent]: ...


class FetchRequests:
    """The fetches of one flow of a consumer."""

    def __init__(
        self,
        options: ConsumerOptions,
        metadata: MetadataRequests,
        positions: Positions,
        offsets: OutOfRange,
        new_backoff: Callable[[], RetryBackoff],
        flow: Flow = Flow.MAIN,
        troubles: Troubles | None = None,
    ) -> None:
        self.flow = flow
        self._troubles = troubles or Troubles()
        self._options = options
        self._metadata = metadata
        self._positions = positions
        self._offsets = offsets
        self._new_backoff = new_backoff
        self._backoffs: dict[int, RetryBackoff] = {}
        """Backoff by broker, because a failing one must not delay requests to others."""
        self._in_flight: dict[int, UnsentRequest] = {}
        self._buffer: deque[FetchedChunk] = deque()
        self.buffered_bytes = 0
        """Bytes of record batches, including those of paused partitions."""
        self._room_needed = 0
        """Bytes that must become free before another Fetch. 0 if none waits for room."""

    # Buffer, as used by the application

    def take(self, bytes_max: float = math.inf) -> list[FetchedChunk]:
        """Return at least one chunk if any is returnable. Positions do not advance here."""
        chunks: list[FetchedChunk] = []
        retained_chunks: deque[FetchedChunk] = deque()
        waiting: set[TopicPartition] = set()
        size = 0
        for chunk in self._buffer:
            if self.is_stale(chunk):
                self.buffered_bytes -= len(chunk.records)
            elif not self._positions[chunk.partition].is_returnable:
                retained_chunks.append(chunk.copied())
            elif chunk.partition in waiting or (chunks and size + len(chunk.records) > bytes_max):
                retained_chunks.append(chunk)
                waiting.add(chunk.partition)
            else:
                size += len(chunk.records)
                self.buffered_bytes -= len(chunk.records)
                chunks.append(chunk)
        self._buffer = retained_chunks
        return chunks

    @property
    def has_new_room(self) -> bool:
        """True if a Fetch that waited for room can be sent now."""
        return 0 < self._room_needed <= self._room()

    @property
    def has_records(self) -> bool:
        return any(map(self.may_return, self._buffer))

    def may_return(self, chunk: FetchedChunk) -> bool:
        """True if the application may receive the chunk now, even if it was taken earlier."""
        return not self.is_stale(chunk) and self._positions[chunk.partition].is_returnable

    def is_stale(self, chunk: FetchedChunk) -> bool:
        """Return True if the position was sought, lost or given up since the chunk was requested."""
        position = self._positions.get(chunk.partition)
        return position is None or position.moves != chunk.moves

    def clear(self) -> None:
        self._buffer.clear()
        self.buffered_bytes = 0
        self._in_flight.clear()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = frozenset(partitions)
        for each in dropped if self._troubles.is_any else ():
            self._troubles.end(TroubleKind.REQUEST, ("Fetch", each))
        self._buffer = deque(chunk for chunk in self._buffer if chunk.partition not in dropped)
        self.buffered_bytes = sum(len(chunk.records) for chunk in self._buffer)

    # Manager interface

    def poll(self, now: float) -> DueRequests:
        """Return one Fetch for each broker without a request in flight."""
        room, self._room_needed = self._room(), 0
        by_node = self._by_node(now)
        share = self._options.buffer_bytes_max // max(1, len(by_node))
        requests, wake_at = [], math.inf
        for node_id, listed in by_node.items():
            partitions = [each for each in listed if self._positions[each].not_before <= now]
            ready_at = max(self._ready_at(node_id), min(self._positions[each].not_before for each in listed))
            min_bytes, max_bytes = self._sizes(len(listed), share)
            if node_id in self._in_flight:
                continue
            if room < min_bytes:
                self._room_needed = min(min_bytes, self._room_needed or min_bytes)
                continue
            if not partitions or ready_at > now:
                wake_at = min(wake_at, ready_at)
                continue
            bytes_max = min(max_bytes, room)
            room -= bytes_max
            self._in_flight[node_id] = self._request(node_id, partitions, bytes_max)
            requests.append(self._in_flight[node_id])
        return DueRequests(tuple(requests), wake_at)

    def _sizes(self, partitions: int, share: int) -> tuple[int, int]:
        """Return minimum and maximum bytes to request.

        The minimum is at least half of the maximum: with the other half buffered the application does not wait, and
        many small requests cost more.
        """
        options = self._options
        max_bytes = min(options.fetch_max_bytes, partitions * options.max_partition_fetch_bytes, share)
        return max(max_bytes // 2, min(options.max_partition_fetch_bytes, max_bytes)), max_bytes

    def _ready_at(self, node_id: int) -> float:
        return self._backoffs[node_id].ready_at if node_id in self._backoffs else -math.inf

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if self._in_flight.get(request.node_id) is not request:
            return []
        del self._in_flight[request.node_id]
        if isinstance(outcome, RequestFailure):
            self._node_failed(request, now)
            if outcome.is_retriable:
                return []
            return [BackgroundError(error=ConsumerError(f"Fetch: {outcome.reason}"))]
        response: Any = outcome
        if response.error_code:
            self._node_failed(request, now)
            return []
        self._backoffs.pop(request.node_id, None)
        return self._take_partitions(request, response, now)

    # Private methods

    def _room(self) -> int:
        expected_bytes = sum(int(request.message.max_bytes) for request in self._in_flight.values())
        return self._options.buffer_bytes_max - self.buffered_bytes - expected_bytes

    def _by_node(self, now: float) -> dict[int, list[TopicPartition]]:
        grouped: dict[int, list[TopicPartition]] = {}
        for partition in self._positions.fetchable():
            leader = self._metadata.leader(partition)
            known = self._metadata.topic_id(partition.topic) is not None
            if known and leader.node_id >= 0 and leader.epoch == self._positions[partition].leader.epoch:
                grouped.setdefault(self._node_to_read(partition, leader.node_id, now), []).append(partition)
        return grouped

    def _node_to_read(self, partition: TopicPartition, leader_id: int, now: float) -> int:
        """Return the preferred read replica while it is valid, else the leader."""
        position = self._positions[partition]
        if position.preferred is not None and not (
            now < position.preferred[1] and position.preferred[0] in self._metadata.nodes
        ):
            position.preferred = None
        return leader_id if position.preferred is None else position.preferred[0]

    def _request(self, node_id: int, partitions: list[TopicPartition], bytes_max: int) -> UnsentRequest:
        message = messages.FetchRequest
        grouped = by_topic(partitions)
        ids = {topic: self._metadata.topic_id(topic) or ZERO_UUID for topic in grouped}
        by_name = ZERO_UUID in ids.values()
        topics = [
            message.FetchTopic(
                **({"topic": topic} if by_name else {"topic_id": ids[topic]}),
                partitions=[self._requested_partition(message, TopicPartition(topic, number)) for number in numbers],
            )
            for topic, numbers in grouped.items()
        ]
        request = message(
            max_wait_ms=round(self._options.fetch_max_wait_s * 1000),
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=bytes_max,
            isolation_level=int(self._options.read_committed),
            session_id=SESSION_ID,
            session_epoch=SESSION_EPOCH,
            topics=topics,
            rack_id=self._options.rack or "",
        )
        moves = {each: (self._positions[each].moves, self._positions[each].fetch_from) for each in partitions}
        return UnsentRequest(
            sender=self,
            api="Fetch",
            message=request,
            versions=VERSIONS_BY_NAME if by_name else VERSIONS,
            timeout_s=self._options.request_timeout_s,
            node_id=node_id,
            lane=Lane.DATA if self.flow is Flow.MAIN else Lane.CATCHING_UP,
            context=moves,
        )

    def _requested_partition(self, message: Any, partition: TopicPartition) -> Any:
        position, key_filter = self._positions[partition], self._options.key_filter
        return message.FetchPartition(
            partition=partition.partition,
            current_leader_epoch=position.leader.epoch,
            fetch_offset=position.fetch_from,
            last_fetched_epoch=position.record_epoch,
            partition_max_bytes=self._options.max_partition_fetch_bytes,
            unknown_tags=() if key_filter is None else ((TAG, key_filter.content),),
        )

    def _take_partitions(self, request: UnsentRequest, response: Any, now: float) -> list[BackgroundEvent]:
        arrived: set[TopicPartition] = set()
        events: list[BackgroundEvent] = []
        for topic in response.responses:
            name = topic.topic or self._metadata.topic_name(bytes(topic.topic_id))
            for each in topic.partitions if name is not None else ():
                partition = TopicPartition(name or "", each.partition_index)
                position = self._positions.get(partition)
                # Otherwise the position has moved, or the partition was reassigned, since the request.
                if position is not None and request.context.get(partition) == (position.moves, position.fetch_from):
                    events += self._take_partition(partition, position, each, arrived, now)
        return [FetchArrived(partitions=frozenset(arrived)), *events] if arrived else events

    def _take_partition(
        self, partition: TopicPartition, position: Position, data: Any, arrived: set[TopicPartition], now: float
    ) -> list[BackgroundEvent]:
        code = ErrorCode.of(data.error_code)
        position.not_before = now + self._options.retry_backoff_s if code else -math.inf
        if self._troubles.is_any and code not in STALE_LEADER:
            self._troubles.end(TroubleKind.REQUEST, ("Fetch", partition))
        if code:
            return self._refused(partition, position, code, data, now)
        position.high_watermark, position.last_stable_offset = data.high_watermark, data.last_stable_offset
        if data.preferred_read_replica >= 0:
            position.preferred = (data.preferred_read_replica, now + self._options.metadata_max_age_s)
            return []
        troubles = self._buffer_records(partition, position, data, arrived)
        if troubles:
            position.not_before = now + self._options.retry_backoff_s
        return troubles

    def _buffer_records(
        self, partition: TopicPartition, position: Position, data: Any, arrived: set[TopicPartition]
    ) -> list[BackgroundEvent]:
        if data.diverging_epoch.epoch >= 0:
            self._positions.truncate(partition, data.diverging_epoch.end_offset, data.diverging_epoch.epoch)
            return []
        records = data.records if data.records is not None else b""
        try:
            batches, _ = split_complete(records, position.fetch_from)
        except RemoteProtocolError as error:
            return [BackgroundError(error=ConsumerError(f"Fetch of {partition}: {error}"), partitions=_one(partition))]
        if not len(batches):
            return []
        last, until = batches[-1], position.until
        next_offset = last.last_offset + 1 if until is None else min(last.last_offset + 1, until)
        chunk = FetchedChunk(
            partition=partition,
            records=records[: last.position + last.size],
            first=position.fetch_from,
            next_offset=next_offset,
            aborted=tuple(data.aborted_transactions or ()),
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            moves=position.moves,
            flow=self.flow,
            is_filtered=any(tag == TAG for tag, _ in data.unknown_tags),
            until=until,
        )
        self._buffer.append(chunk)
        self.buffered_bytes += len(chunk.records)
        self._positions.fetched(partition, next_offset, last.leader_epoch)
        arrived.add(partition)
        return []

    def _refused(
        self, partition: TopicPartition, position: Position, code: ErrorCode, data: Any, now: float
    ) -> list[BackgroundEvent]:
        if position.preferred is not None:
            position.preferred = None  # the leader is next
            return []
        if code in STALE_LEADER:
            self._metadata.request_update()
            self._troubles.report(TroubleKind.REQUEST, ("Fetch", partition), f"Fetch of {partition}: {code.name}")
            leader = LeaderAndEpoch(data.current_leader.leader_id, data.current_leader.leader_epoch)
            self._metadata.note_leader(partition, leader)
            return []
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if position.has_unread:  # the application reads what was fetched before the position is reset
                position.not_before = now + self._options.retry_backoff_max_s
                return []
            offset = position.fetch_from
            return self._offsets.reset([partition], f"offset {offset} is out of range")
        return [BackgroundError(error=BrokerRefused("Fetch", code, str(partition)), partitions=_one(partition))]

    def _node_failed(self, request: UnsentRequest, now: float) -> None:
        self._backoffs.setdefault(request.node_id, self._new_backoff()).failed(now)
        for partition in request.context:
            if partition in self._positions:
                self._positions[partition].preferred = None
        self._metadata.request_update()


def _one(partition: TopicPartition) -> Partitions:
    return frozenset({partition})
