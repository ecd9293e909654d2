"""One consumer: application events in, requests and background events out (consumer/README.md rules 1-3).

    core.begin_poll(now)                                   # the application's poll
    core.handle(Commit(call_id, offsets), now)             # any other call
    for request in core.poll(now): ...                     # send; then on_response(request, outcome, now)
    core.next_deadline                                     # when to poll it again if nothing happens before
    core.events()                                          # events for the application

`poll` is due after every event, every response, and at the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafka_share_proxy.consumer import events as event_types
from kafka_share_proxy.consumer.assignors.interface import Assignor
from kafka_share_proxy.consumer.assignors.range_assignor import RangeAssignor
from kafka_share_proxy.consumer.assignors.round_robin_assignor import RoundRobinAssignor
from kafka_share_proxy.consumer.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from kafka_share_proxy.consumer.assignors.weighted_sticky_assignor import WeightedStickyAssignor
from kafka_share_proxy.consumer.client_core import ClientCore
from kafka_share_proxy.consumer.commits.commit_requests import CommitRequests
from kafka_share_proxy.consumer.commits.committed_requests import CommittedRequests
from kafka_share_proxy.consumer.commits.slot_commits import SlotCommits
from kafka_share_proxy.consumer.events import ApplicationEvent, BackgroundEvent, CallDone, ConsumerError
from kafka_share_proxy.consumer.fetch.catch_up import CatchUp
from kafka_share_proxy.consumer.fetch.fetch_requests import FetchRequests
from kafka_share_proxy.consumer.fetch.first_positions import FirstPositions
from kafka_share_proxy.consumer.fetch.offset_requests import OffsetRequests
from kafka_share_proxy.consumer.fetch.positions import Position, Positions
from kafka_share_proxy.consumer.groups.classic_membership import ClassicMembership
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.groups.consumer_membership import ConsumerMembership
from kafka_share_proxy.consumer.groups.rebalance_flow import RebalanceFlow
from kafka_share_proxy.consumer.groups.revoke_ledger import RevokeLedger
from kafka_share_proxy.consumer.groups.states import (
    CoordinatorState,
    RebalanceState,
    StateChange,
    rebalance_trace,
)
from kafka_share_proxy.consumer.options import ConfigurationError, ConsumerOptions
from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata, Partitions
from kafka_share_proxy.consumer.requests import Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import TopicPartition

ASSIGNORS: Sequence[Assignor] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
    WeightedStickyAssignor(),
)
ERRORS_MAX = 100
"""Maximum number of errors that wait for the application."""


class ConsumerCore(ClientCore[ConsumerOptions]):
    """The managers of one consumer and the state that they share."""

    def __init__(
        self,
        options: ConsumerOptions,
        *,
        jitter: Callable[[], float],
        member_id: str,
        on_coordinator_state: Callable[[StateChange[CoordinatorState]], None] | None = None,
        on_rebalance_state: Callable[[StateChange[RebalanceState]], None] | None = None,
    ) -> None:
        """Create the managers. No request is sent before `start`.

        `jitter` draws from [-1, 1]. `member_id`: a fresh UUID, for a KIP-848 member.
        """
        super().__init__(
            options,
            jitter,
            on_coordinator_state,
            creates_topics=options.allow_auto_create_topics,
            needs_weights=options.group_protocol == "classic" and WeightedStickyAssignor.name in options.assignors,
        )
        backoff = self._backoff
        self.rebalance_trace = rebalance_trace(on_rebalance_state)
        self.positions = Positions()
        self.ledger = RevokeLedger()
        self._subscribed = False
        self._leave: tuple[int, float] | None = None
        """Call id of a LeaveGroup that is due, and the time from which on commits no longer delay it."""
        self._leave_call: int | None = None
        """Call id of a LeaveGroup in progress. 0 without a call that waits."""
        self._next_auto_commit = -math.inf
        self.flow = RebalanceFlow(self.rebalance_trace, options.delay_limits)
        self.offsets = OffsetRequests(options, self.metadata, self.positions, backoff(), self.troubles)
        self.fetches = FetchRequests(
            options, self.metadata, self.positions, self.offsets, backoff, troubles=self.troubles
        )
        self.committed = CommittedRequests(options, self.coordinator, backoff(), self._identity, self.troubles)
        self.commits = CommitRequests(
            options,
            self.coordinator,
            backoff(),
            self._identity,
            self._holds,
            self._fenced,
            self.troubles,
            query_committed=self.committed.query,
        )
        self._slots = SlotCommits(options.key_filter, self.commits, self.committed)
        self.membership = self._membership(backoff(), member_id)
        self.catch_up = CatchUp(options, self.metadata, self.positions, self.offsets, backoff, self._enqueue_event)
        self._first_positions = FirstPositions(options, self.positions, self._slots, self.offsets, self.catch_up)
        self._managers = (
            self.commits, self.committed, self.membership, self.offsets, self.fetches, self.catch_up.fetches,
            self.metadata, self.listing, self.coordinator,
        )  # fmt: skip

    def _membership(self, backoff: RetryBackoff, member_id: str) -> ClassicMembership | ConsumerMembership:
        settled = self.commits.is_settled
        if self.options.group_protocol == "consumer":
            return ConsumerMembership(
                self.options, self.flow, self.coordinator, self.metadata, backoff, settled, member_id
            )
        by_name = {each.name: each for each in ASSIGNORS}
        assignors = [by_name[name] for name in self.options.assignors]
        return ClassicMembership(self.options, self.flow, self.coordinator, assignors, self.metadata, backoff, settled)

    # Poll by the application

    def stop(self, now: float) -> None:
        super().stop(now)
        self.fetches.clear()
        self.catch_up.clear()

    def begin_poll(self, now: float) -> None:
        """Release partitions that were not delayed. Received records count as processed."""
        self.coordinator.retry()
        self.positions.retry()
        if self._subscribed:
            self.membership.on_poll(now)
        self._auto_commit(now)
        self._release(self.ledger.begin_poll(), now)
        self.catch_up.follow_main()

    def begin_poll_quietly(self, now: float) -> bool:
        """Begin a poll that releases, commits and joins nothing. Return False if it would."""
        commits = self.options.auto_commit_interval_s is not None and now >= self._next_auto_commit
        if commits or self.ledger.next or self.coordinator.failed is not None:
            return False
        if self._subscribed:
            if not self.membership.is_polled:
                return False
            self.membership.on_poll(now)
        self.ledger.begin_poll()
        return True

    @property
    def waits_for(self) -> str:
        states = f"coordinator {self.coordinator_trace.state.value}, rebalance {self.rebalance_trace.state.value}"
        return f"{states} (a rebalance waits for all members of the group)"

    @property
    def flows(self) -> tuple[FetchRequests, FetchRequests]:
        """Fetches of the main flow, and of the flow that catches up."""
        return self.fetches, self.catch_up.fetches

    def consumed(self, partition: TopicPartition, next_offset: int, flow: Flow = Flow.MAIN) -> None:
        """Note delivered records, for automatic commits."""
        if flow is Flow.CHILD:
            self.catch_up.consumed(partition, next_offset)
        else:
            self.positions.consumed(partition, next_offset)

    def processed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetSpan]:
        """Return the offsets delivered to the application by either flow."""
        spans: dict[TopicPartition, OffsetSpan] = {}
        for each in partitions:
            both = Position()
            for flow in (self.positions.get(each), self.catch_up.positions.get(each)):
                both.add_processed(None if flow is None else flow.processed)
            if both.processed is not None:
                spans[each] = both.processed
        return spans

    def to_commit(self, partitions: Partitions) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit when all delivered records are processed."""
        positions = ((each, self.positions.get(each)) for each in sorted(partitions))
        return {
            each: self.catch_up.consumed_offset(each, position.offset)
            if each in self.catch_up
            else OffsetAndMetadata(position.offset)
            for each, position in positions
            if position is not None and position.offset is not None
        }

    def split(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit, where each offset of the application belongs to one of two flows."""
        return {each: self.catch_up.split(each, offset) for each, offset in offsets.items()}

    def delay_revoke(self, partitions: Iterable[TopicPartition], now: float) -> bool:
        """Return False if any partition is lost, including by its deadline.

        Raises ConfigurationError if offsets are committed automatically, and ValueError if a partition is neither to be
        revoked nor lost; nothing is delayed.
        """
        if self.options.auto_commit_interval_s is not None:
            raise ConfigurationError("delay_revoke needs enable.auto.commit=false: polled is not processed")
        self._absorb(self.flow.expire(now), now)
        return self.ledger.delay(partitions)

    # Events

    def handle(self, event: ApplicationEvent, now: float) -> None:
        """Process an event of the application.

        Raises ConfigurationError for a call that needs a group, without one, and ValueError for an invalid regular
        expression.
        """
        self._check(event)
        match event:
            case event_types.Subscribe() | event_types.Assign():
                self._change_subscription(event, now)
            case event_types.LeaveGroup(call_id):
                self._leave = (call_id, now + self.options.request_timeout_s)
                self._commit_and_release_all(now)
                self._assign_only(frozenset())
            case event_types.Commit(call_id, offsets):
                self._absorb(self._slots.commit(offsets, call_id), now)
            case event_types.FetchCommitted(call_id, partitions):
                self._slots.query(partitions, lambda result: [_done(call_id, result)], call_id)
            case event_types.ListOffsets(call_id, timestamps):
                self.offsets.query(timestamps, lambda result: [_done(call_id, result)], call_id)
            case event_types.AckPartitionsRevoked(_, partitions):
                self.ledger.cancel(partitions)
                self._release(partitions, now)
            case event_types.AckPartitionsAssigned(rebalance_id):
                self.membership.acknowledge_assigned(rebalance_id, now)
            case event_types.UpdateMetadata():
                self.metadata.request_update()
            case event_types.Seek(partition, offset, flow):
                self._seek(partition, offset, flow)
            case event_types.Pause(partitions):
                self.positions.pause(partitions)
            case event_types.Resume(partitions):
                self.positions.resume(partitions)
        self.catch_up.follow_main()

    def last_refusal(self, call_id: int) -> ProxyError | None:
        return self.commits.last_refusal(call_id)

    def gauges(self) -> dict[str, float]:
        positions = [self.positions[each] for each in self.positions.assigned]
        lags = [each.lag(read_committed=self.options.read_committed) for each in positions]
        known = [each for each in lags if each is not None]
        values: dict[str, float] = {"coordinator.assigned.partitions": len(positions)}
        return values | ({"fetch.manager.records.lag.max": max(known)} if known else {})

    def give_up(self, call_id: int) -> None:
        self.commits.give_up(call_id)
        self.committed.give_up(call_id)
        self.metadata.drop(self.offsets.give_up(call_id))

    def _seek(self, partition: TopicPartition, offset: int, flow: Flow) -> None:
        if flow is Flow.MAIN:
            self.positions.seek(partition, offset)
        else:
            self.catch_up.read_again(partition)

    # Requests

    def poll(self, now: float) -> list[UnsentRequest]:
        for event in self._first_positions.find():
            self._enqueue_event(event)
        self._finish_leaving(now)
        if self._subscribed and (matching := self.metadata.matching()):
            self.membership.subscribe(matching)
        self.catch_up.follow_main()
        requests = super().poll(now)
        if self._leave is not None:
            self.next_deadline = min(self.next_deadline, self._leave[1])
        return requests

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> None:
        super().on_response(request, outcome, now)
        failed = self.coordinator.failed
        if failed is not None:
            self._absorb((*self.commits.fail(failed), *self.committed.fail(failed)), now)
        if isinstance(outcome, RequestFailure) and not outcome.is_retriable and request.sender is self.metadata:
            self._absorb(self.offsets.fail(ConsumerError(f"Metadata: {outcome.reason}")), now)

    # Private methods

    def _identity(self) -> MemberIdentity:
        return self.membership.identity if self._subscribed else MemberIdentity()

    def _holds(self) -> Partitions | None:
        return self.membership.holds if self._subscribed else None

    def _fenced(self, identity: MemberIdentity, code: ErrorCode, now: float) -> list[BackgroundEvent]:
        events = self.membership.fenced(identity, code, now)
        self._absorb(events, now)
        return []

    def _check(self, event: ApplicationEvent) -> None:
        needs_group = isinstance(event, event_types.Subscribe | event_types.Commit | event_types.FetchCommitted)
        if needs_group and self.options.group_id is None:
            raise ConfigurationError(f"{type(event).__name__} needs a group.id")
        if needs_group:
            self.coordinator.retry()

    def _change_subscription(self, event: event_types.Subscribe | event_types.Assign, now: float) -> None:
        if isinstance(event, event_types.Subscribe) and (event.topics or event.pattern):
            self.metadata.watch(event.topics, event.pattern)
            if not self._subscribed:
                self._commit_and_release_all(now)
                self._assign_only(frozenset())
            self._subscribed, self._leave = True, None
            if event.pattern is None:
                self.membership.subscribe(event.topics)
            return
        self._commit_and_release_all(now)
        if self._subscribed:
            self._leave = (self._leave or (0, 0.0))[0], now + self.options.request_timeout_s
        partitions = event.partitions if isinstance(event, event_types.Assign) else frozenset()
        self.metadata.watch(self._topics_of(partitions))
        self._assign_only(partitions)

    def _topics_of(self, partitions: Partitions) -> set[str]:
        """Include the topics under whose names the partitions are committed: the proxy creates views that Metadata
        names.
        """
        topics = {each.topic for each in partitions}
        if self.options.group_id is not None:
            topics |= {name.topic for each in partitions for name in self._slots.names(each)}
        return topics

    def _assign_only(self, partitions: Partitions) -> None:
        self.fetches.clear()
        self.catch_up.clear()
        self.positions.assign(())
        self.positions.assign(partitions)

    def _commit_and_release_all(self, now: float) -> None:
        if self.options.auto_commit_interval_s is not None:
            self._absorb(self._slots.commit(self.to_commit(self.positions.assigned)), now)
        self.ledger.release_all()

    def _finish_leaving(self, now: float) -> None:
        """Leave once commits are complete, because a member that has left cannot commit."""
        if self._leave is not None and (self.commits.is_idle or now >= self._leave[1]):
            self._leave_call = self._leave[0]
            self._leave = None
            if self._subscribed:
                self.membership.leave(now, "the consumer unsubscribes")
                self._subscribed = False
        if self._leave_call is not None and not self.membership.is_leaving:
            if self._leave_call:
                self._outbox.append(CallDone(call_id=self._leave_call))
            self._leave_call = None

    def _auto_commit(self, now: float) -> None:
        interval_s = self.options.auto_commit_interval_s
        if interval_s is not None and now >= self._next_auto_commit:
            self._next_auto_commit = now + interval_s
            self._absorb(self._slots.commit(self.to_commit(self.positions.assigned)), now)

    def _release(self, partitions: Partitions, now: float) -> None:
        if partitions:
            if self.options.auto_commit_interval_s is not None:
                self._absorb(self._slots.commit(self.to_commit(partitions)), now)
            self._drop(partitions)
            self.membership.acknowledge_revoked(partitions)

    def _drop(self, partitions: Partitions) -> None:
        self.positions.drop(partitions)
        self.fetches.drop(partitions)
        self.catch_up.drop(partitions)

    def _absorb(self, events: Iterable[BackgroundEvent], now: float) -> None:
        for event in events:
            self._enqueue_event(event)
            match event:
                case event_types.RevokePartitions():
                    self.positions.hold_back(event.partitions)
                    self._release(self.ledger.request(event.partitions, event.rebalance_id), now)
                case event_types.RevokeCancelled():
                    self.ledger.cancel(event.partitions)
                    self.positions.end_hold_back(event.partitions)
                case event_types.AssignPartitions() if self._leave is None:
                    self.positions.assign(event.assigned)
                case event_types.PartitionsLost():
                    self._drop(event.partitions)
                    self.ledger.add_lost(event.partitions)
                    self._absorb(self.commits.abandon(event.partitions), now)
                case _:
                    pass

    def _enqueue_event(self, event: BackgroundEvent) -> None:
        """Skip duplicates: the application may not poll for a long time."""
        if isinstance(event, event_types.FetchArrived):
            if any(isinstance(each, event_types.FetchArrived) for each in self._outbox):
                return
        elif isinstance(event, event_types.BackgroundError):
            pending = [str(each.error) for each in self._outbox if isinstance(each, event_types.BackgroundError)]
            if str(event.error) in pending or len(pending) >= ERRORS_MAX:
                return
        self._outbox.append(event)


def _done(call_id: int, result: object) -> CallDone:
    if isinstance(result, ConsumerError):
        return CallDone(call_id=call_id, error=result)
    return CallDone(call_id=call_id, value=result)
