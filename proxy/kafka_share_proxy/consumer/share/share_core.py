"""One share consumer: its application's calls in, requests and results out (consumer/share_consumers.md rules 1-15).

    core.begin_poll(now); core.is_polling = True; core.take(now)     # the application's poll
    core.acknowledge(...), core.begin_work(...), core.end_work(...)           # calls that wait for nothing
    core.handle(AwaitAcknowledgements(call_id), now)                  # calls that do
    for request in core.poll(now): ...                                # send; then on_response(request, outcome, now)
    core.next_deadline                                                # when to poll it again if nothing happens before
    core.events()                                                     # results of calls, and errors

`poll` is due after every call, every event, every response, and at the deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

from kafka_share_proxy.consumer import events as event_types
from kafka_share_proxy.consumer.client_core import ClientCore
from kafka_share_proxy.consumer.events import (
    AwaitAcknowledgements,
    BackgroundError,
    BackgroundEvent,
    CallDone,
    ConsumerError,
    ShareApplicationEvent,
)
from kafka_share_proxy.consumer.groups.states import CoordinatorState, StateChange
from kafka_share_proxy.consumer.requests import UnsentRequest
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_calls import ShareCalls
from kafka_share_proxy.consumer.share.share_chunks import (
    AcquiredChunk,
    AcquiredRecords,
    OpenedShareBatch,
    opened_share_chunk,
)
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult, ShareHolds
from kafka_share_proxy.consumer.share.share_membership import ShareMembership, ShareMemberState
from kafka_share_proxy.consumer.share.share_messages import ShareMessages
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
from kafka_share_proxy.consumer.share.share_renewals import ShareJob, ShareRenewals
from kafka_share_proxy.consumer.share.share_requests import ShareRequests
from kafka_share_proxy.wire.records.record_views import LazyRecords
from kafka_share_proxy.wire.records.records import OPENED_BYTES_MAX
from kafka_share_proxy.wire.values import TopicPartition


class DeliveredRecords(NamedTuple):
    """Records for the application, which holds them from now on."""

    partition: TopicPartition
    records: LazyRecords
    delivery_count: int
    delivery: int
    """Distinguishes deliveries of the same records."""


class ShareDelivery(NamedTuple):
    """Result of one poll: renewed records or new ones."""

    renewed: list[Any]
    """Objects passed to `acknowledge` for the renewed records."""
    parts: list[DeliveredRecords]

    def __bool__(self) -> bool:
        return bool(self.renewed or self.parts)


class _Opened(NamedTuple):
    """Records of an opened batch, with the chunk that they are part of."""

    chunk: AcquiredChunk
    part: AcquiredRecords


class ShareCore(ClientCore[ShareConsumerOptions]):
    """The request managers of one share consumer, and the state that they share."""

    def __init__(
        self,
        options: ShareConsumerOptions,
        *,
        jitter: Callable[[], float],
        member_id: str,
        check_crcs: bool = True,
        on_coordinator_state: Callable[[StateChange[CoordinatorState]], None] | None = None,
        on_member_state: Callable[[StateChange[ShareMemberState]], None] | None = None,
        on_result: Callable[[AcknowledgementResult], None] | None = None,
    ) -> None:
        """No request is sent before `start`. `jitter` draws from [-1, 1]. `on_result` is called for renewals too."""
        super().__init__(options, jitter, on_coordinator_state)
        self.is_polling = False
        """True while the application waits for records."""
        self._check_crcs = check_crcs
        self._on_result = on_result
        self._opened: deque[_Opened] = deque()
        self._reading: tuple[AcquiredChunk, Iterator[OpenedShareBatch]] | None = None
        self._leave: list[int] = []
        self.held = ShareHolds(self._on_acknowledged)
        self.membership = ShareMembership(
            options, self.coordinator, self.metadata, self._backoff(), member_id, on_member_state
        )
        self._calls = ShareCalls()
        self._renewals = ShareRenewals(self.held)
        messages = ShareMessages(options, member_id)
        self._requests = ShareRequests(options, self.metadata, self.held, self._renewals, messages, self._backoff)
        self._managers = (self._requests, self.membership, self.metadata, self.listing, self.coordinator)

    # Polls of the application

    def stop(self, now: float) -> None:
        super().stop(now)
        for session in list(self._requests.sessions):
            self.held.lose(session, ConsumerError("the consumer is closed"))

    @property
    def waits_for(self) -> str:
        return f"coordinator {self.coordinator_trace.state.value}, member {self.membership.trace.state.value}"

    def begin_poll(self, now: float) -> None:
        """Begin a poll. In the implicit mode this accepts all records returned before."""
        self.coordinator.retry()
        self.membership.on_poll(now)
        if not self.options.is_explicit:
            self.held.accept_all()

    @property
    def has_news(self) -> bool:
        return bool(self._is_reading or self._requests.has_chunks or self.held.has_returnable)

    def take(self, now: float) -> ShareDelivery:
        """Return the renewed records, or else new ones, which the application holds from now on."""
        if renewed := self.held.returnable(now):
            return ShareDelivery(renewed, [])
        parts: list[DeliveredRecords] = []
        room, opened_bytes = self.options.max_poll_records, 0
        while room > 0 and opened_bytes < OPENED_BYTES_MAX and (opened := self._next_opened(now)) is not None:
            chunk, part = opened
            opened_bytes += part.records.extra_bytes(memoryview(chunk.records).obj)
            if self.options.limits_records and len(part.records) > room:
                self._opened.appendleft(_Opened(chunk, part._replace(records=part.records[room:])))
                part = part._replace(records=part.records[:room])
            offsets = part.records.positions.offsets
            delivery = self.held.deliver(chunk.partition, offsets, chunk.session, chunk.lock_until)
            parts.append(DeliveredRecords(chunk.partition, part.records, part.delivery_count, delivery))
            room -= len(part.records)
        return ShareDelivery([], parts)

    def _next_opened(self, now: float) -> _Opened | None:
        while True:  # terminates: each iteration consumes chunks
            while self._opened:
                opened = self._opened.popleft()
                if self._is_locked(opened.chunk, now):
                    return opened
            if self._reading is None:
                chunk = self._requests.take(now)
                if chunk is None:
                    return None
                self._reading = chunk, opened_share_chunk(chunk, check_crcs=self._check_crcs)
            chunk, batches = self._reading
            batch = next(batches, None) if self._is_locked(chunk, now) else None
            if batch is None:
                self._reading = None
            else:
                self._settle_unreturned(chunk, batch)
                self._opened += [_Opened(chunk, part) for part in batch.parts]

    @property
    def _is_reading(self) -> bool:
        return bool(self._opened or self._reading)

    def _is_locked(self, chunk: AcquiredChunk, now: float) -> bool:
        return chunk.lock_until > now and self._requests.is_current(chunk.session)

    def _settle_unreturned(self, chunk: AcquiredChunk, opened: OpenedShareBatch) -> None:
        for offsets, kind in (
            (opened.gaps, AcknowledgeType.GAP),
            (opened.bad, AcknowledgeType.REJECT),
            (opened.unread, AcknowledgeType.RELEASE),
        ):
            self.held.settle(chunk.session, chunk.partition, offsets, kind)
        if opened.trouble:
            done = f"{len(opened.bad)} records rejected, {len(opened.unread)} released"
            error = ConsumerError(f"{chunk.partition}: {opened.trouble}: {done}")
            self._outbox.append(BackgroundError(error=error, partitions=frozenset({chunk.partition})))

    # Calls that do not wait

    def acknowledge(
        self,
        partition: TopicPartition,
        offset: int,
        delivery: int,
        kind: AcknowledgeType,
        *,
        renewed: Any = None,
        delay_ms: int | None = None,
    ) -> bool:
        """Return False if the lock is lost.

        Raises ValueError if the record was not delivered here, or is acknowledged already.
        """
        hold = self.held.find(partition, offset, delivery)
        return self.held.acknowledge(partition, offset, hold, kind, renewed=renewed, delay_ms=delay_ms)

    def send_now(self, but: Container[tuple[TopicPartition, int]] = ()) -> None:
        """Send acknowledgements now, without waiting for the next fetch.

        In the implicit mode this accepts all records except `but`, which a loop has not processed yet.
        """
        if not self.options.is_explicit:
            self.held.accept_all(but)
        for session in self._requests.sessions:
            session.is_urgent = bool(session.due)

    def begin_work(
        self, partition: TopicPartition, offset: int, delivery: int, on_lost: Callable[[], None], now: float
    ) -> ShareJob:
        return self._renewals.begin(partition, offset, delivery, on_lost, now)

    def end_work(self, job: ShareJob, kind: AcknowledgeType, now: float) -> bool:
        return self._renewals.end(job, kind, now)

    # Events

    def handle(self, event: ShareApplicationEvent, _: float) -> None:
        """Process an event of the application. Events must arrive in the order of the calls."""
        match event:
            case event_types.Subscribe(topics):
                self._requests.reopen()
                self._finish_calls()
                self.metadata.watch(topics)
                self.membership.subscribe(topics)
            case event_types.LeaveGroup(call_id):
                self._leave.append(call_id)
                self._opened.clear()
                self._reading = None
                self._requests.close()
            case AwaitAcknowledgements(call_id, only):
                self._calls.add(call_id, self._requests.sessions, only)
        self.coordinator.retry()

    def gauges(self) -> dict[str, float]:
        return {"coordinator.assigned.partitions": len(self.membership.assigned)}

    def give_up(self, call_id: int) -> None:
        self._calls.give_up(call_id)
        self._leave = [each for each in self._leave if each != call_id]

    def events(self) -> list[BackgroundEvent]:
        return [*super().events(), *self._calls.finished()]

    # Requests

    def poll(self, now: float) -> list[UnsentRequest]:
        if self.is_polling:
            self.membership.on_poll(now)
        self._finish_leaving(now)
        if self.membership.assigned != self._requests.assigned:
            self._requests.keep_only(self.membership.assigned)
        self._requests.wants_records = self.is_polling and not self._is_reading
        return super().poll(now)

    # Internal

    def _on_acknowledged(self, result: AcknowledgementResult) -> None:
        self._calls.on_result(result)
        if self._on_result is not None:
            self._on_result(result)

    def _finish_leaving(self, now: float) -> None:
        """Leave once due acknowledgements are sent."""
        if not self._leave or not self._requests.is_closed:
            return
        if self.membership.is_subscribed:
            self.membership.leave(now, "the consumer unsubscribes")
        if not self.membership.is_leaving:
            self._finish_calls()

    def _finish_calls(self) -> None:
        self._outbox += [CallDone(call_id=call_id) for call_id in self._leave]
        self._leave.clear()
