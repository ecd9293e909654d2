"""ShareFetch and ShareAcknowledge: one request at a time with each broker (consumer/share_consumers.md rules 3-10).

Theory of operation. Each broker that leads an assigned partition has a session, whose requests are numbered: so there
is one under way at most. A fetch goes out while the application waits for records and none are there; it takes along
what is due to be said. What somebody waits for, and all renewals, go in a request of their own, since a fetch may wait
at the broker. A connection that ends takes the session with it, and the locks that were taken under it.

Source: ShareConsumeRequestManager of Kafka's clients 4.3.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from proxy.consumer.metadata_requests import LeaderAndEpoch, MetadataRequests
from proxy.consumer.partitions import NOTHING, Partitions
from proxy.consumer.requests import FailureKind, Outcome, RequestFailure, RetryBackoff, UnsentRequest, Wanted
from proxy.consumer.share_acknowledgements import AcknowledgeType
from proxy.consumer.share_chunks import Acquired, AcquiredChunk
from proxy.consumer.share_holds import RETRIABLE, ShareHolds
from proxy.consumer.share_messages import ShareMessages
from proxy.consumer.share_options import ShareConsumerOptions
from proxy.consumer.share_renewals import ShareRenewals
from proxy.consumer.share_session import FINAL_EPOCH, ShareSession, has_renewals
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicPartition

ACQUIRED_MAX = 1_000_000
"""Offsets that one partition of an answer may acquire; more is an answer that cannot be right."""

MISLED_S = 5.0
"""So long a node may name itself as the leader of what it refuses to read, as one does that has just become it."""

SESSION_GONE = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND})
"""With all its locks."""
SESSION_ANEW = frozenset({ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED})
"""It is to be opened again; nothing of the request was done, and the locks stay."""
LED_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The locks of the partition are gone, and the answer may say who leads it now."""
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
"""Of a fetch: look at the metadata again, and try again."""
LOCKS_GONE = LED_ELSEWHERE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}


class _Asked(NamedTuple):
    """What is remembered of a request under way."""

    session: ShareSession
    at: float
    is_fetch: bool
    """Whether it asks for records."""
    reads: dict[TopicPartition, bytes] | None
    """What the broker reads for the session once it has taken the request; None: as before."""


class ShareRequests:
    """Of one share consumer."""

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
        """What the group has given to this member."""
        self.wants_records = False
        """The application waits for some."""
        self._options = options
        self._metadata = metadata
        self._held = held
        self._renewals = renewals
        self._messages = messages
        self._new_backoff = new_backoff
        self._backoffs: dict[int, RetryBackoff] = {}
        """By node: one that does not answer keeps nobody from the others."""
        self._sessions: dict[int, ShareSession] = {}
        self._busy: dict[int, UnsentRequest] = {}
        self._buffer: deque[AcquiredChunk] = deque()
        self._not_before: dict[TopicPartition, float] = {}
        """Partitions that a broker would not read, and until when they are left alone."""
        self._misled_since: dict[TopicPartition, float] = {}
        """Partitions that a node refuses because it is not their leader, and says that it is."""
        self._last_fetched = -1
        self._is_closing = False

    # The application's side

    @property
    def sessions(self) -> Iterable[ShareSession]:
        """All that there are."""
        return self._sessions.values()

    @property
    def has_chunks(self) -> bool:
        """Whether there are records in the buffer."""
        return bool(self._buffer)

    def take(self, now: float) -> AcquiredChunk | None:
        """The next of the buffer. Those whose locks have ended are not worth opening: they are delivered again."""
        while self._buffer:
            chunk = self._buffer.popleft()
            if chunk.lock_until > now:
                return chunk
        return None

    def is_current(self, session: ShareSession) -> bool:
        """Whether the locks that were taken under it are ours, as far as we know."""
        return self._sessions.get(session.node_id) is session

    def keep_only(self, partitions: Partitions) -> None:
        """These are assigned; what is in the buffer of others is released for other members, at once."""
        gone = [chunk for chunk in self._buffer if chunk.partition not in partitions]
        self._buffer = deque(chunk for chunk in self._buffer if chunk.partition in partitions)
        for chunk in gone:
            for first, last, _ in chunk.acquired:
                self._held.settle(chunk.session, chunk.partition, range(first, last + 1), AcknowledgeType.RELEASE)
                chunk.session.is_urgent = True
        self.assigned = partitions

    def close(self) -> None:
        """Send what is due, and end the sessions: brokers release what is still held."""
        self._is_closing = True
        self._buffer.clear()
        for session in self._sessions.values():
            self._held.drop_renewals(session, ConsumerError("the consumer leaves the group"))

    @property
    def is_closed(self) -> bool:
        """Whether no session is left."""
        return self._is_closing and not self._sessions and not self._busy

    def reopen(self) -> None:
        """Another subscription after `close`."""
        self._is_closing = False

    # The manager

    def poll(self, now: float) -> Wanted:
        """The next request of each broker that has none under way."""
        self._renewals.renew_due(now)
        readable, wake_at = self._by_node(now)
        requests: list[UnsentRequest] = []
        for node_id in self._in_turn({*readable, *self._sessions}):
            if node_id in self._busy:
                continue
            backoff = self._backoffs.get(node_id)
            if backoff is not None and not backoff.is_ready(now):
                wake_at = min(wake_at, backoff.ready_at)
                continue
            request = self._next(node_id, readable.get(node_id, {}), now)
            if request is not None:
                self._busy[node_id] = request
                requests.append(request)
        return Wanted(tuple(requests), min(wake_at, self._renewals.wake_at()))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Take the answer."""
        if self._busy.get(request.node_id) is not request:
            return []
        del self._busy[request.node_id]
        asked: _Asked = request.context
        if request.message.share_session_epoch == FINAL_EPOCH:
            self._final(request, asked, outcome, now)
            return []
        if isinstance(outcome, RequestFailure):
            return self._failed(request, asked.session, outcome, now)
        answer: Any = outcome
        code = ErrorCode.of(answer.error_code)
        if code:
            return self._refused(request, asked.session, code, answer.error_message, now)
        self._backoffs.pop(request.node_id, None)
        asked.session.answered(asked.reads)
        if answer.acquisition_lock_timeout_ms > 0:
            self._held.lock_s = answer.acquisition_lock_timeout_ms / 1000
        events = self._take_partitions(request, answer, now)
        self._renewals.answered(asked.session)
        return events

    # What is asked

    def _by_node(self, now: float) -> tuple[dict[int, dict[TopicPartition, bytes]], float]:
        """What is to be read of each node, with topic ids, while records are wanted; and when that changes."""
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

    def _in_turn(self, nodes: Iterable[int]) -> list[int]:
        """Those behind the one that was fetched from last come first."""
        return sorted(nodes, key=lambda node_id: (node_id <= self._last_fetched, node_id))

    def _next(self, node_id: int, readable: dict[TopicPartition, bytes], now: float) -> UnsentRequest | None:
        session = self._sessions.get(node_id)
        if self._is_closing:
            return None if session is None else self._closing(session, now)
        if session is None:
            session = self._sessions[node_id] = ShareSession(node_id)
        if not session.is_open:
            if readable and self._may_fetch():
                return self._fetch(session, readable, now, is_opened=True)
            return self._fetch(session, {}, now, is_opened=True) if session.due else None
        no_fetch_comes = self.wants_records and not readable
        if session.due and (session.is_urgent or session.has_renewals or no_fetch_comes):
            return self._acknowledge(session, now)
        if readable and self._may_fetch():
            return self._fetch(session, readable, now)
        return None

    def _may_fetch(self) -> bool:
        """In the mode record_limit one node at a time, so that no more than the limit is acquired (KIP-1206)."""
        return not (self._options.limits_records and any(each.context.is_fetch for each in self._busy.values()))

    def _fetch(
        self, session: ShareSession, readable: dict[TopicPartition, bytes], now: float, *, is_opened: bool = False
    ) -> UnsentRequest:
        """Without partitions to read it asks for no records, and does not wait."""
        if readable:
            self._last_fetched = session.node_id
        said = {} if is_opened else self._held.take_due(session, now)
        wait_s = self._renewals.fetch_wait_s(session, self._options.fetch_max_wait_s, now)
        message = self._messages.fetch(session, readable, said, wait_s)
        asked = _Asked(session, now, bool(readable), dict(readable))
        return self._messages.unsent(self, "ShareFetch", message, session, asked)

    def _acknowledge(self, session: ShareSession, now: float) -> UnsentRequest:
        message = self._messages.acknowledge(session, self._held.take_due(session, now), session.epoch)
        return self._messages.unsent(self, "ShareAcknowledge", message, session, _Asked(session, now, False, None))

    def _closing(self, session: ShareSession, now: float) -> UnsentRequest | None:
        if not session.is_open:
            self._held.lose(session, ConsumerError("the consumer is closed"))
            del self._sessions[session.node_id]
            return None
        said = self._held.take_due(session, now)
        epoch = session.epoch if session.due else FINAL_EPOCH
        message = self._messages.acknowledge(session, said, epoch)
        return self._messages.unsent(self, "ShareAcknowledge", message, session, _Asked(session, now, False, None))

    # What comes of it

    def _final(self, request: UnsentRequest, asked: _Asked, outcome: Outcome, now: float) -> None:
        """The session has ended, whatever the answer."""
        del self._sessions[request.node_id]
        if isinstance(outcome, RequestFailure):
            self._held.lose(asked.session, ConsumerError(f"{request.api}: {outcome.text or outcome.kind.value}"))
            return
        answer: Any = outcome
        if answer.error_code:
            error = BrokerRefused(request.api, answer.error_code, f"node {request.node_id}", answer.error_message)
            self._held.lose(asked.session, error)
            return
        self._take_partitions(request, answer, now)
        self._held.lose(asked.session, ConsumerError("the consumer is closed"))

    def _failed(
        self, request: UnsentRequest, session: ShareSession, failure: RequestFailure, now: float
    ) -> list[BackgroundEvent]:
        if failure.kind is FailureKind.UNSUPPORTED_VERSION and has_renewals(session.under_way):
            self._held.not_sent(session)
            self._held.refuse_renewals(session)
            self._renewals.answered(session)
            return []
        error = ConsumerError(f"{request.api}: {failure.text or failure.kind.value}")
        self._end(session, error, now)
        return [] if failure.is_retriable else [BackgroundError(error=error)]

    def _refused(
        self, request: UnsentRequest, session: ShareSession, code: ErrorCode, detail: str | None, now: float
    ) -> list[BackgroundEvent]:
        """The broker did nothing of what was asked; the number of the session may not have moved."""
        error = BrokerRefused(request.api, code, f"node {request.node_id}", detail)
        if code in SESSION_GONE:
            self._end(session, error, now)
            return []
        session.reopen()
        self._backoff(session.node_id).failed(now)
        if code in SESSION_ANEW:
            self._held.not_sent(session)
            return []
        for partition in list(session.under_way):
            self._held.answered(session, partition, code, now, now)
        return [BackgroundError(error=error)]

    def _end(self, session: ShareSession, error: ConsumerError, now: float) -> None:
        """The session is gone, and the next request to the node begins another."""
        del self._sessions[session.node_id]
        self._buffer = deque(chunk for chunk in self._buffer if chunk.session is not session)
        self._held.lose(session, error)
        self._renewals.answered(session)
        self._backoff(session.node_id).failed(now)
        self._metadata.request_update()

    def _take_partitions(self, request: UnsentRequest, answer: Any, now: float) -> list[BackgroundEvent]:
        session: ShareSession = request.context.session
        names = {(bytes(topic_id), each.partition): each for each, topic_id in session.ids.items()}
        events: list[BackgroundEvent] = []
        for topic in answer.responses:
            for data in topic.partitions:
                partition = names.get((bytes(topic.topic_id), data.partition_index))
                if partition is not None:
                    events += self._take_partition(request, partition, data, now)
        for partition in list(session.under_way):  # not in the answer
            self._held.answered(session, partition, ErrorCode.INVALID_RECORD_STATE, request.context.at, now)
        return events

    def _take_partition(
        self, request: UnsentRequest, partition: TopicPartition, data: Any, now: float
    ) -> list[BackgroundEvent]:
        session, is_fetch = request.context.session, request.api == "ShareFetch"
        code = ErrorCode.of(data.error_code)
        said = ErrorCode.of(data.acknowledge_error_code) if is_fetch else code
        if partition in session.under_way:
            self._held.answered(session, partition, said, request.context.at, now)
            if said in RETRIABLE:
                self._backoff(session.node_id).failed(now)
        if code in LED_ELSEWHERE or said in LOCKS_GONE:
            self._moved(session, partition, code or said, data)
        if not is_fetch:
            return []
        if code not in LED_ELSEWHERE or data.current_leader.leader_id != session.node_id:
            self._misled_since.pop(partition, None)
        elif now - self._misled_since.setdefault(partition, now) >= MISLED_S:
            return [*self._unreadable(partition, code, now), self._misled(session, partition)]
        if code:
            return self._unreadable(partition, code, now)
        return self._buffered(session, partition, data, now) if len(data.records or b"") else []

    def _moved(self, session: ShareSession, partition: TopicPartition, code: ErrorCode, data: Any) -> None:
        """Whoever leads it now knows nothing of the locks."""
        leader = LeaderAndEpoch(data.current_leader.leader_id, data.current_leader.leader_epoch)
        if leader.node_id >= 0 and leader.epoch >= 0:
            self._metadata.note_leader(partition, leader)
        self._metadata.request_update()
        self._held.lose(session, BrokerRefused("ShareFetch", code, str(partition)), partition)

    def _unreadable(self, partition: TopicPartition, code: ErrorCode, now: float) -> list[BackgroundEvent]:
        """It is left alone for a while, so that the others are not asked for without a pause."""
        self._not_before[partition] = now + self._options.retry_backoff_s
        self._metadata.request_update()
        if code in STALE:
            return []
        self._not_before[partition] = now + self._options.retry_backoff_max_s
        error = BrokerRefused("ShareFetch", code, str(partition))
        return [BackgroundError(error=error, partitions=frozenset({partition}))]

    def _misled(self, session: ShareSession, partition: TopicPartition) -> BackgroundError:
        """Another node answers there, or nobody can tell which: a tunnel or a balancer in front of all of them."""
        node = self._metadata.nodes.get(session.node_id)
        where = "" if node is None else f" at {node.host}:{node.port}"
        error = ConsumerError(
            f"ShareFetch of {partition}: whoever answers{where} does not lead it, and says that node {session.node_id} "
            f"does: the address of node {session.node_id} does not lead to that node"
        )
        return BackgroundError(error=error, partitions=frozenset({partition}))

    def _buffered(
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
            self._held.taken_away(partition, first, last)
        self._buffer.append(
            AcquiredChunk(partition, session, data.records, acquired, now + (self._held.lock_s or math.inf))
        )
        if partition not in self.assigned:
            self.keep_only(self.assigned)
        return []

    def _backoff(self, node_id: int) -> RetryBackoff:
        return self._backoffs.setdefault(node_id, self._new_backoff())


def _malformed(acquired: tuple[Acquired, ...]) -> str:
    """What is wrong with the offsets that an answer acquires; empty: nothing."""
    before = -1
    for first, last, _ in acquired:
        if not before < first <= last:
            return f"acquired records {first}-{last} stand behind {before}"
        before = last
    count = sum(last - first + 1 for first, last, _ in acquired)
    return f"{count} acquired records" if count > ACQUIRED_MAX else ""
