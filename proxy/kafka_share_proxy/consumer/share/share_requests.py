"""Requests ShareFetch and ShareAcknowledge, one at a time to each broker (consumer/share_consumers.md rules 3-10).

Source: ShareConsumeRequestManager of Kafka's clients 4.3.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.metadata_requests import LeaderAndEpoch, MetadataRequests
from kafka_share_proxy.consumer.partitions import NOTHING, Partitions
from kafka_share_proxy.consumer.requests import (
    DueRequests,
    FailureKind,
    Outcome,
    RequestFailure,
    RetryBackoff,
    UnsentRequest,
)
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_chunks import Acquired, AcquiredChunk
from kafka_share_proxy.consumer.share.share_holds import RETRIABLE, ShareHolds
from kafka_share_proxy.consumer.share.share_messages import ShareMessages
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
from kafka_share_proxy.consumer.share.share_renewals import ShareRenewals
from kafka_share_proxy.consumer.share.share_session import FINAL_EPOCH, ShareSession, has_renewals
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.redelivery_delay import is_applied
from kafka_share_proxy.wire.values import TopicPartition

ACQUIRED_MAX = 1_000_000
"""Maximum number of offsets acquired for one partition of a response."""

MISLED_S = 5.0
"""Seconds for which a node may name itself as the leader of a partition that it refuses, as new leaders do for a
moment.
"""

SESSION_UNKNOWN = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND})
SESSION_ANEW = frozenset({ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED})
"""Codes after which the session is opened again. The locks stay."""
LED_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Codes after which the locks of the partition are gone. The response may name the new leader."""
STALE = LED_ELSEWHERE | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
LOCKS_LOST = LED_ELSEWHERE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}


class _RequestContext(NamedTuple):
    """Context of a request in flight."""

    session: ShareSession
    sent_at: float
    """Monotonic seconds."""
    is_fetch: bool
    reads: dict[TopicPartition, bytes] | None
    """Partitions that the session reads once the broker has accepted the request. None: unchanged."""


class ShareRequests:
    """Share sessions, fetch buffer and requests of one share consumer."""

    def __init__(
        self,
        options: ShareConsumerOptions,
        metadata: MetadataRequests,
        held: ShareHolds,
        renewals: ShareRenewals,
        messages: ShareMessages,
        new_backoff: Callable[[], RetryBackoff],
    ) -> None:
        self.assigned: Partitions = NOTHING
        self.wants_records = False
        """True while the application waits for records."""
        self._options = options
        self._metadata = metadata
        self._held = held
        self._renewals = renewals
        self._messages = messages
        self._new_backoff = new_backoff
        self._backoffs: dict[int, RetryBackoff] = {}
        """Backoff by node, because a failing one must not delay the others."""
        self._sessions: dict[int, ShareSession] = {}
        self._in_flight: dict[int, UnsentRequest] = {}
        self._buffer: deque[AcquiredChunk] = deque()
        self._not_before: dict[TopicPartition, float] = {}
        """Monotonic seconds."""
        self._misled_since: dict[TopicPartition, float] = {}
        """Monotonic seconds when a node first refused a partition and named itself as its leader."""
        self._last_fetched = -1
        self._is_closing = False

    # Called for the application

    @property
    def sessions(self) -> Iterable[ShareSession]:
        return self._sessions.values()

    @property
    def has_chunks(self) -> bool:
        return bool(self._buffer)

    def take(self, now: float) -> AcquiredChunk | None:
        """Return the next chunk. Chunks with expired locks are skipped: their records are delivered again."""
        while self._buffer:
            chunk = self._buffer.popleft()
            if chunk.lock_until > now:
                return chunk
        return None

    def is_current(self, session: ShareSession) -> bool:
        return self._sessions.get(session.node_id) is session

    def keep_only(self, partitions: Partitions) -> None:
        """Keep these partitions only. Buffered records of others are released immediately."""
        dropped = [chunk for chunk in self._buffer if chunk.partition not in partitions]
        self._buffer = deque(chunk for chunk in self._buffer if chunk.partition in partitions)
        for chunk in dropped:
            for first, last, _ in chunk.acquired:
                self._held.settle(chunk.session, chunk.partition, range(first, last + 1), AcknowledgeType.RELEASE)
                chunk.session.is_urgent = True
        self.assigned = partitions

    def close(self) -> None:
        """Close the sessions. Brokers then release the records that are still held."""
        self._is_closing = True
        self._buffer.clear()
        for session in self._sessions.values():
            self._held.drop_renewals(session, ConsumerError("the consumer leaves the group"))

    @property
    def is_closed(self) -> bool:
        return self._is_closing and not self._sessions and not self._in_flight

    def reopen(self) -> None:
        self._is_closing = False

    # RequestManager

    def poll(self, now: float) -> DueRequests:
        self._renewals.renew_due(now)
        readable, wake_at = self._by_node(now)
        requests: list[UnsentRequest] = []
        for node_id in self._rotated({*readable, *self._sessions}):
            if node_id in self._in_flight:
                continue
            backoff = self._backoffs.get(node_id)
            if backoff is not None and not backoff.is_ready(now):
                wake_at = min(wake_at, backoff.ready_at)
                continue
            request = self._next_request(node_id, readable.get(node_id, {}), now)
            if request is not None:
                self._in_flight[node_id] = request
                requests.append(request)
        return DueRequests(tuple(requests), min(wake_at, self._renewals.wake_at(now)))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if self._in_flight.get(request.node_id) is not request:
            return []
        del self._in_flight[request.node_id]
        context: _RequestContext = request.context
        if request.message.share_session_epoch == FINAL_EPOCH:
            self._on_final_response(request, context, outcome, now)
            return []
        if isinstance(outcome, RequestFailure):
            return self._failed(request, context.session, outcome, now)
        response: Any = outcome
        code = ErrorCode.of(response.error_code)
        if code:
            return self._refused(request, context.session, code, response.error_message, now)
        self._backoffs.pop(request.node_id, None)
        context.session.advance(context.reads)
        if response.acquisition_lock_timeout_ms > 0:
            self._held.lock_s = response.acquisition_lock_timeout_ms / 1000
        events = self._take_partitions(request, response, now)
        self._renewals.on_response(context.session)
        return events

    # Building requests

    def _by_node(self, now: float) -> tuple[dict[int, dict[TopicPartition, bytes]], float]:
        """Return topic ids by partition and node, and the time at which this changes."""
        if not self.wants_records or self._buffer or self._is_closing or self._is_full:
            return {}, math.inf
        self._not_before = {each: until for each, until in self._not_before.items() if until > now}
        grouped: dict[int, dict[TopicPartition, bytes]] = {}
        for partition in sorted(self.assigned - self._not_before.keys()):
            topic_id, leader = self._metadata.topic_id(partition.topic), self._metadata.leader(partition)
            if topic_id is not None and leader.node_id >= 0:
                grouped.setdefault(leader.node_id, {})[partition] = topic_id
        return grouped, min(self._not_before.values(), default=math.inf)

    @property
    def _is_full(self) -> bool:
        return self._held.count + self._options.max_poll_records > self._options.held_records_max

    def _rotated(self, nodes: Iterable[int]) -> list[int]:
        """Start after the node that was fetched from last."""
        return sorted(nodes, key=lambda node_id: (node_id <= self._last_fetched, node_id))

    def _next_request(self, node_id: int, readable: dict[TopicPartition, bytes], now: float) -> UnsentRequest | None:
        session = self._sessions.get(node_id)
        if self._is_closing:
            return None if session is None else self._close_request(session, now)
        if session is None:
            session = self._sessions[node_id] = ShareSession(node_id)
        if not session.is_open:
            if readable and self._may_fetch():
                return self._fetch(session, readable, now, opens_session=True)
            return self._fetch(session, {}, now, opens_session=True) if session.due else None
        no_fetch_is_due = self.wants_records and not readable
        if session.due and (session.is_urgent or session.has_renewals or no_fetch_is_due):
            return self._acknowledge(session, now)
        if readable and self._may_fetch():
            return self._fetch(session, readable, now)
        return None

    def _may_fetch(self) -> bool:
        """Allow only one node at a time with `record_limit` (KIP-1206)."""
        return not (self._options.limits_records and any(each.context.is_fetch for each in self._in_flight.values()))

    def _fetch(
        self, session: ShareSession, readable: dict[TopicPartition, bytes], now: float, *, opens_session: bool = False
    ) -> UnsentRequest:
        """Return a ShareFetch. Without partitions to read it requests no records and does not wait."""
        if readable:
            self._last_fetched = session.node_id
        acks = {} if opens_session else self._held.take_due(session, now)
        wait_s = self._renewals.fetch_wait_s(session, self._options.fetch_max_wait_s, now)
        message = self._messages.fetch(session, readable, acks, wait_s, self._held.delays_of(acks))
        context = _RequestContext(session, now, bool(readable), dict(readable))
        return self._messages.unsent(self, "ShareFetch", message, session, context)

    def _acknowledge(self, session: ShareSession, now: float) -> UnsentRequest:
        acks = self._held.take_due(session, now)
        message = self._messages.acknowledge(session, acks, session.epoch, self._held.delays_of(acks))
        return self._messages.unsent(
            self, "ShareAcknowledge", message, session, _RequestContext(session, now, False, None)
        )

    def _close_request(self, session: ShareSession, now: float) -> UnsentRequest | None:
        if not session.is_open:
            self._held.lose(session, ConsumerError("the consumer is closed"))
            del self._sessions[session.node_id]
            return None
        acks = self._held.take_due(session, now)
        epoch = session.epoch if session.due else FINAL_EPOCH
        message = self._messages.acknowledge(session, acks, epoch, self._held.delays_of(acks))
        return self._messages.unsent(
            self, "ShareAcknowledge", message, session, _RequestContext(session, now, False, None)
        )

    # Processing responses

    def _on_final_response(
        self, request: UnsentRequest, context: _RequestContext, outcome: Outcome, now: float
    ) -> None:
        del self._sessions[request.node_id]
        if isinstance(outcome, RequestFailure):
            self._held.lose(context.session, ConsumerError(f"{request.api}: {outcome.reason}"))
            return
        response: Any = outcome
        if response.error_code:
            error = BrokerRefused(request.api, response.error_code, f"node {request.node_id}", response.error_message)
            self._held.lose(context.session, error)
            return
        self._take_partitions(request, response, now)
        self._held.lose(context.session, ConsumerError("the consumer is closed"))

    def _failed(
        self, request: UnsentRequest, session: ShareSession, failure: RequestFailure, now: float
    ) -> list[BackgroundEvent]:
        if failure.kind is FailureKind.UNSUPPORTED_VERSION and has_renewals(session.in_flight):
            self._held.requeue(session)
            self._held.refuse_renewals(session)
            self._renewals.on_response(session)
            return []
        error = ConsumerError(f"{request.api}: {failure.reason}")
        self._end(session, error, now)
        return [] if failure.is_retriable else [BackgroundError(error=error)]

    def _refused(
        self, request: UnsentRequest, session: ShareSession, code: ErrorCode, detail: str | None, now: float
    ) -> list[BackgroundEvent]:
        """Process a response that refuses the whole request. The session epoch may be unchanged."""
        error = BrokerRefused(request.api, code, f"node {request.node_id}", detail)
        if code in SESSION_UNKNOWN:
            self._end(session, error, now)
            return []
        session.reopen()
        self._backoff(session.node_id).failed(now)
        if code in SESSION_ANEW:
            self._held.requeue(session)
            return []
        for partition in list(session.in_flight):
            self._held.on_response(session, partition, code, now, now)
        return [BackgroundError(error=error)]

    def _end(self, session: ShareSession, error: ConsumerError, now: float) -> None:
        """End a session. The next request to the node opens a new one."""
        del self._sessions[session.node_id]
        self._buffer = deque(chunk for chunk in self._buffer if chunk.session is not session)
        self._held.lose(session, error)
        self._renewals.on_response(session)
        self._backoff(session.node_id).failed(now)
        self._metadata.request_update()

    def _take_partitions(self, request: UnsentRequest, response: Any, now: float) -> list[BackgroundEvent]:
        session: ShareSession = request.context.session
        names = {(bytes(topic_id), each.partition): each for each, topic_id in session.ids.items()}
        events: list[BackgroundEvent] = []
        for topic in response.responses:
            for data in topic.partitions:
                partition = names.get((bytes(topic.topic_id), data.partition_index))
                if partition is not None:
                    events += self._take_partition(request, partition, data, now)
        for partition in list(session.in_flight):  # not in the response
            self._held.on_response(session, partition, ErrorCode.INVALID_RECORD_STATE, request.context.sent_at, now)
        return events

    def _take_partition(
        self, request: UnsentRequest, partition: TopicPartition, data: Any, now: float
    ) -> list[BackgroundEvent]:
        session, is_fetch = request.context.session, request.api == "ShareFetch"
        code = ErrorCode.of(data.error_code)
        ack_code = ErrorCode.of(data.acknowledge_error_code) if is_fetch else code
        if partition in session.in_flight:
            is_delayed = is_applied(data.unknown_tags)
            self._held.on_response(session, partition, ack_code, request.context.sent_at, now, is_delayed=is_delayed)
            if ack_code in RETRIABLE:
                self._backoff(session.node_id).failed(now)
        if code in LED_ELSEWHERE or ack_code in LOCKS_LOST:
            self._on_moved_leader(session, partition, code or ack_code, data)
        if not is_fetch:
            return []
        if code not in LED_ELSEWHERE or data.current_leader.leader_id != session.node_id:
            self._misled_since.pop(partition, None)
        elif now - self._misled_since.setdefault(partition, now) >= MISLED_S:
            return [*self._unreadable(partition, code, now), self._misled(session, partition)]
        if code:
            return self._unreadable(partition, code, now)
        return self._buffer_records(session, partition, data, now) if len(data.records or b"") else []

    def _on_moved_leader(self, session: ShareSession, partition: TopicPartition, code: ErrorCode, data: Any) -> None:
        """Drop the locks: the new leader does not know them."""
        leader = LeaderAndEpoch(data.current_leader.leader_id, data.current_leader.leader_epoch)
        if leader.node_id >= 0 and leader.epoch >= 0:
            self._metadata.note_leader(partition, leader)
        self._metadata.request_update()
        self._held.lose(session, BrokerRefused("ShareFetch", code, str(partition)), partition)

    def _unreadable(self, partition: TopicPartition, code: ErrorCode, now: float) -> list[BackgroundEvent]:
        """Pause the partition: other partitions must not be fetched in a busy loop."""
        self._not_before[partition] = now + self._options.retry_backoff_s
        self._metadata.request_update()
        if code in STALE:
            return []
        self._not_before[partition] = now + self._options.retry_backoff_max_s
        error = BrokerRefused("ShareFetch", code, str(partition))
        return [BackgroundError(error=error, partitions=frozenset({partition}))]

    def _misled(self, session: ShareSession, partition: TopicPartition) -> BackgroundError:
        """Build the error for an address that leads to another node, for example through a load balancer in front of
        all nodes.
        """
        node = self._metadata.nodes.get(session.node_id)
        where = "" if node is None else f" at {node.host}:{node.port}"
        error = ConsumerError(
            f"ShareFetch of {partition}: the node that responds{where} is not the leader, and names node "
            f"{session.node_id} as the leader: the address of node {session.node_id} does not lead to that node"
        )
        return BackgroundError(error=error, partitions=frozenset({partition}))

    def _buffer_records(
        self, session: ShareSession, partition: TopicPartition, data: Any, now: float
    ) -> list[BackgroundEvent]:
        acquired = tuple(
            Acquired(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records
        )
        if not acquired:
            return []
        if trouble := _malformed(acquired):
            return [BackgroundError(error=ConsumerError(f"ShareFetch of {partition}: {trouble}"))]
        for first, last, _ in acquired:
            self._held.lose_reacquired(partition, first, last)
        self._buffer.append(
            AcquiredChunk(partition, session, data.records, acquired, now + (self._held.lock_s or math.inf))
        )
        if partition not in self.assigned:
            self.keep_only(self.assigned)
        return []

    def _backoff(self, node_id: int) -> RetryBackoff:
        return self._backoffs.setdefault(node_id, self._new_backoff())


def _malformed(acquired: tuple[Acquired, ...]) -> str:
    before = -1
    for first, last, _ in acquired:
        if not before < first <= last:
            return f"acquired records {first}-{last} follow {before}"
        before = last
    count = sum(last - first + 1 for first, last, _ in acquired)
    return f"{count} acquired records" if count > ACQUIRED_MAX else ""
