"""One share consumer: its application's calls in, requests and results out (consumer/share_consumers.md rules 1-15).

    core.begin_poll(now); core.is_polling = True; core.take(now)     # the application's poll
    core.say(...), core.begin_work(...), core.end_work(...)           # calls that wait for nothing
    core.handle(AwaitAcknowledgements(call_id), now)                  # calls that do
    for request in core.poll(now): ...                                # send; then on_response(request, outcome, now)
    core.next_deadline                                                # when to poll it again if nothing happens before
    core.events()                                                     # results of calls, and errors

`poll` is due after every call, every event, every response, and at the deadline.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container
from typing import Any, NamedTuple

from proxy.consumer import events as told
from proxy.consumer.coordinator_requests import CoordinatorRequests
from proxy.consumer.events import BackgroundError, BackgroundEvent, CallDone, ConsumerError
from proxy.consumer.metadata_requests import MetadataRequests
from proxy.consumer.requests import Outcome, RetryBackoff, UnsentRequest
from proxy.consumer.share_acknowledgements import AcknowledgeType
from proxy.consumer.share_calls import ShareCalls
from proxy.consumer.share_chunks import AcquiredChunk, AcquiredRecords, opened_share_chunk
from proxy.consumer.share_events import AwaitAcknowledgements, ShareApplicationEvent
from proxy.consumer.share_holds import AcknowledgementResult, ShareHolds
from proxy.consumer.share_membership import ShareMembership, ShareMemberState
from proxy.consumer.share_messages import ShareMessages
from proxy.consumer.share_options import ShareConsumerOptions
from proxy.consumer.share_renewals import ShareJob, ShareRenewals
from proxy.consumer.share_requests import ShareRequests
from proxy.consumer.states import CoordinatorState, StateChange, coordinator_trace
from proxy.wire.record_views import LazyRecords
from proxy.wire.values import TopicPartition


class DeliveredRecords(NamedTuple):
    """Records for the application, which holds them from now on."""

    partition: TopicPartition
    records: LazyRecords
    delivery_count: int
    delivery: int
    """Tells this delivery from others of the same records."""


class Taken(NamedTuple):
    """What one poll returns: renewed records, or new ones."""

    again: list[Any]
    """What `say` was given for them."""
    parts: list[DeliveredRecords]

    def __bool__(self) -> bool:
        return bool(self.again or self.parts)


class _Opened(NamedTuple):
    chunk: AcquiredChunk
    part: AcquiredRecords


class ShareCore:
    """Composes the managers; owns the state that they share."""

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
        """Nothing is asked before `start`.

        Args:
            options: checked settings.
            jitter: draws from [-1, 1], for backoffs.
            member_id: a fresh UUID.
            check_crcs: compare checksums of record batches.
            on_coordinator_state: hears of every transition.
            on_member_state: hears of every transition.
            on_result: hears what became of every acknowledgement, renewals included.
        """
        self.options = options
        self.is_polling = False
        """The application waits for records."""
        self.next_deadline = math.inf
        self.coordinator_trace = coordinator_trace(on_coordinator_state)
        self._check_crcs = check_crcs
        self._on_result = on_result
        self._outbox: list[BackgroundEvent] = []
        self._opened: deque[_Opened] = deque()
        """What one poll left for the next."""
        self._leave: list[int] = []
        """Calls that wait until sessions are closed and the group is left."""

        def backoff() -> RetryBackoff:
            return RetryBackoff(options.retry_backoff_s, options.retry_backoff_max_s, jitter)

        self.coordinator = CoordinatorRequests(
            options.group, self.coordinator_trace, backoff(), options.request_timeout_s
        )
        self.metadata = MetadataRequests(options, backoff())
        self.held = ShareHolds(self._answered)
        self.membership = ShareMembership(
            options, self.coordinator, self.metadata, backoff(), member_id, on_member_state
        )
        self._calls = ShareCalls()
        self._renewals = ShareRenewals(self.held)
        messages = ShareMessages(options, member_id)
        self._requests = ShareRequests(options, self.metadata, self.held, self._renewals, messages, backoff)
        self._managers = (self._requests, self.membership, self.metadata, self.coordinator)

    # The application's poll

    def start(self, now: float) -> None:
        """The network side runs."""
        self.coordinator.start(now)

    def stop(self, now: float) -> None:
        """The consumer is closed: nothing is asked any more, and what was held is lost."""
        self.coordinator.stop(now)
        for session in list(self._requests.sessions):
            self.held.lose(session, ConsumerError("the consumer is closed"))

    def begin_poll(self, now: float) -> None:
        """The application polls: in the implicit mode all that it has been given is accepted."""
        self.coordinator.retry()
        self.membership.polled(now)
        if not self.options.is_explicit:
            self.held.accept_all()

    @property
    def has_news(self) -> bool:
        """Whether `take` is worth a call."""
        return bool(self._opened or self._requests.has_chunks or self.held.has_returnable)

    def take(self, now: float) -> Taken:
        """What the application is given: renewed records alone, if there are any."""
        if again := self.held.returnable():
            return Taken(again, [])
        parts: list[DeliveredRecords] = []
        room = self.options.max_poll_records
        while room > 0 and (opened := self._next_opened(now)) is not None:
            chunk, part = opened
            if self.options.limits_records and len(part.records) > room:
                self._opened.appendleft(_Opened(chunk, part._replace(records=part.records[room:])))
                part = part._replace(records=part.records[:room])
            offsets = part.records.positions.offsets
            delivery = self.held.deliver(chunk.partition, offsets, chunk.session, chunk.lock_until)
            parts.append(DeliveredRecords(chunk.partition, part.records, part.delivery_count, delivery))
            room -= len(part.records)
        return Taken([], parts)

    def _next_opened(self, now: float) -> _Opened | None:
        while True:  # ends: chunks are taken away
            while self._opened:
                opened = self._opened.popleft()
                if opened.chunk.lock_until > now and self._requests.is_current(opened.chunk.session):
                    return opened
            chunk = self._requests.take(now)
            if chunk is None:
                return None
            self._open(chunk)

    def _open(self, chunk: AcquiredChunk) -> None:
        found = opened_share_chunk(chunk, check_crcs=self._check_crcs)
        self._opened += [_Opened(chunk, part) for part in found.parts]
        for offsets, kind in (
            (found.gaps, AcknowledgeType.GAP),
            (found.bad, AcknowledgeType.REJECT),
            (found.unread, AcknowledgeType.RELEASE),
        ):
            self.held.settle(chunk.session, chunk.partition, offsets, kind)
        if found.trouble:
            done = f"{len(found.bad)} records rejected, {len(found.unread)} released"
            error = ConsumerError(f"{chunk.partition}: {found.trouble}: {done}")
            self._outbox.append(BackgroundError(error=error, partitions=frozenset({chunk.partition})))

    # Calls that wait for nothing

    def say(
        self, partition: TopicPartition, offset: int, delivery: int, kind: AcknowledgeType, *, again: Any = None
    ) -> bool:
        """Say what becomes of a delivered record. Returns: False where its lock is lost.

        Raises:
            ValueError: it was not delivered here, or is acknowledged already.
        """
        return self.held.say(partition, offset, self.held.find(partition, offset, delivery), kind, again=again)

    def send_at_once(self, but: Container[tuple[TopicPartition, int]] = ()) -> None:
        """What is due does not wait for the next fetch.

        In the implicit mode all that was returned is accepted, but for these offsets: a loop was not given them yet.
        """
        if not self.options.is_explicit:
            self.held.accept_all(but)
        for session in self._requests.sessions:
            session.is_urgent = bool(session.due)

    def begin_work(
        self, partition: TopicPartition, offset: int, delivery: int, on_lost: Callable[[], None], now: float
    ) -> ShareJob:
        """See ShareRenewals.begin."""
        return self._renewals.begin(partition, offset, delivery, on_lost, now)

    def end_work(self, job: ShareJob, kind: AcknowledgeType) -> bool:
        """See ShareRenewals.end."""
        return self._renewals.end(job, kind)

    # Events

    def handle(self, event: ShareApplicationEvent, _: float) -> None:
        """Take what the application wants, in the order in which it says it."""
        match event:
            case told.Subscribe(topics):
                self._requests.reopen()
                self._left()
                self.metadata.watch(topics)
                self.membership.subscribe(topics)
            case told.LeaveGroup(call_id):
                self._leave.append(call_id)
                self._opened.clear()
                self._requests.close()
            case AwaitAcknowledgements(call_id, only):
                self._calls.add(call_id, self._requests.sessions, only)
        self.coordinator.retry()

    def events(self) -> list[BackgroundEvent]:
        """What the application has not been told yet, in order."""
        events, self._outbox = [*self._outbox, *self._calls.finished()], []
        return events

    # Requests

    def poll(self, now: float) -> list[UnsentRequest]:
        """What is to be sent now; sets `next_deadline`."""
        if self.is_polling:
            self.membership.polled(now)
        self._finish_leaving(now)
        if self.membership.assigned != self._requests.assigned:
            self._requests.keep_only(self.membership.assigned)
        self._requests.wants_records = self.is_polling and not self._opened
        requests: list[UnsentRequest] = []
        self.next_deadline = math.inf
        for manager in self._managers:
            wanted = manager.poll(now)
            requests += wanted.requests
            self.next_deadline = min(self.next_deadline, wanted.wake_at)
            self._outbox += wanted.events
        return requests

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> None:
        """Hand the outcome of a request to who wanted it."""
        self._outbox += request.sender.on_response(request, outcome, now)

    # Inside

    def _answered(self, result: AcknowledgementResult) -> None:
        self._calls.answered(result)
        if self._on_result is not None:
            self._on_result(result)

    def _finish_leaving(self, now: float) -> None:
        """Sessions end first, so that what is due is said; then the group is left."""
        if not self._leave or not self._requests.is_closed:
            return
        if self.membership.is_subscribed:
            self.membership.leave(now, "the consumer unsubscribes")
        if not self.membership.is_leaving:
            self._left()

    def _left(self) -> None:
        self._outbox += [CallDone(call_id=call_id) for call_id in self._leave]
        self._leave.clear()
