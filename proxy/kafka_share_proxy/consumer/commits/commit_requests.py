"""OffsetCommit (CommitRequestManager, consumer/README.md rules 21-23).

How it works. Each partition has at most one commit waiting and one in flight. A newer commit replaces the waiting one
and takes over its calls: states are monotone, and the newest contains all. A commit refused because the generation
changed is not lost: it is held until the member has a new generation, and sent again if the member still owns the
partition. Every call ends exactly once, even if the application has stopped waiting for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.consumer.commits.commit_texts import CommitTexts
from kafka_share_proxy.consumer.commits.committed_requests import Committed, Deliver
from kafka_share_proxy.consumer.events import (
    BackgroundEvent,
    BrokerRefused,
    CallDone,
    CommitRefused,
    ConsumerError,
    PartitionLostError,
    RangesLeftOut,
)
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.groups.coordinator_requests import COORDINATOR_MOVED, CoordinatorRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions, by_topic
from kafka_share_proxy.consumer.requests import DueRequests, Lane, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.consumer.troubles import TroubleKind, Troubles
from kafka_share_proxy.offsets.ledger import BROKER_METADATA_MAX
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.values import TopicPartition

VERSIONS = (8, 9)
"""Topics are identified by name. KIP-848 members need 9."""

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        *COORDINATOR_MOVED,
    }
)
OUTDATED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Errors of an outdated member: it has or will have a new generation, or the group has forgotten it."""


@dataclass(slots=True)
class PendingCommit:
    """The newest uncommitted offset of a partition, and the calls that wait for it."""

    offset: OffsetAndMetadata
    call_ids: list[int] = field(default_factory=list)
    texts: CommitTexts | None = None


@dataclass(slots=True)
class _OpenCall:
    waiting_for: set[TopicPartition]
    errors: dict[TopicPartition, ProxyError] = field(default_factory=dict)
    left_out: dict[TopicPartition, Sequence[OffsetSpan]] = field(default_factory=dict)


class _Refusals:
    """Retriable errors of partitions: the last code, and the time of the first one since the last final result."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: dict[TopicPartition, float] = {}
        self.codes: dict[TopicPartition, ErrorCode] = {}

    def last_too_long(self, partition: TopicPartition, code: ErrorCode, now: float) -> bool:
        """Note an error and return True if retriable errors have lasted for the timeout.

        REBALANCE_IN_PROGRESS does not count: the length of a rebalance is not limited here.
        """
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        self.codes[partition] = code
        return now - self._since.setdefault(partition, now) >= self._timeout_s

    def forget(self, partition: TopicPartition) -> None:
        self._since.pop(partition, None)
        self.codes.pop(partition, None)

    def error(self, partition: TopicPartition, code: ErrorCode) -> BrokerRefused:
        return BrokerRefused("OffsetCommit", code, str(partition), f"again and again for {self._timeout_s:g} s")


class CommitRequests:
    """All commits of one consumer."""

    def __init__(
        self,
        options: ConsumerOptions,
        coordinator: CoordinatorRequests,
        backoff: RetryBackoff,
        identity: Callable[[], MemberIdentity],
        holds: Callable[[], Partitions | None],
        fenced: Callable[[MemberIdentity, ErrorCode, float], list[BackgroundEvent]],
        troubles: Troubles | None = None,
        query_committed: Callable[[Partitions, Deliver], None] | None = None,
    ) -> None:
        """`query_committed`: CommittedRequests.query. None: several texts are assumed to be added up."""
        self._troubles = troubles or Troubles()
        self._options = options
        self._coordinator = coordinator
        self._backoff = backoff
        self._identity = identity
        self._holds = holds
        """Return the partitions that the member may commit. None: no group membership, therefore any partition."""
        self._fenced = fenced
        self.on_accepted: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = lambda _offsets: None
        """Called with offsets that the group has accepted, including automatic commits. Must not raise."""
        self._waiting: dict[TopicPartition, PendingCommit] = {}
        self._held: dict[TopicPartition, tuple[PendingCommit, MemberIdentity]] = {}
        """Commits refused because of the generation, with the identity under which they were sent."""
        self._refusals = _Refusals(options.api_timeout_s)
        self._in_flight: set[TopicPartition] = set()
        self._completed: dict[TopicPartition, OffsetAndMetadata] = {}
        """Accepted offsets that `on_accepted` has not received yet."""
        self._limited: set[TopicPartition] = set()
        """Partitions whose coordinator has refused a long text."""
        self._query_committed = query_committed
        self._calls: dict[int, _OpenCall] = {}

    # Calls of the application

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], call_id: int | None = None
    ) -> list[BackgroundEvent]:
        """Queue commits. Partitions that the member does not own are refused immediately."""
        owned = self._holds()
        if call_id is not None:
            self._calls[call_id] = _OpenCall(set(offsets))
        events: list[BackgroundEvent] = []
        for partition, offset in offsets.items():
            calls = [] if call_id is None else [call_id]
            if owned is not None and partition not in owned:
                events += self._settle(partition, calls, _lost(partition))
            else:
                self._enqueue(partition, PendingCommit(offset, calls), newest=True)
        if call_id is not None and not offsets:
            events += self._finish(call_id)
        return events

    def is_settled(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return True if no commit of these partitions is waiting or in flight."""
        return not any(each in self._waiting or each in self._in_flight or each in self._held for each in partitions)

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._held or self._in_flight or self._calls)

    def abandon(self, partitions: Iterable[TopicPartition]) -> list[BackgroundEvent]:
        """Fail the commits of lost partitions that are not in flight."""
        events: list[BackgroundEvent] = []
        for each in partitions:
            self._refusals.forget(each)
            pending = self._waiting.pop(each, None)
            if pending is not None:
                events += self._settle(each, pending.call_ids, _lost(each))
            held = self._held.pop(each, None)
            if held is not None:
                events += self._settle(each, held[0].call_ids, _lost(each))
        return events

    def last_refusal(self, call_id: int) -> ProxyError | None:
        call = self._calls.get(call_id)
        refused = [each for each in sorted(call.waiting_for) if each in self._refusals.codes] if call else []
        return self._refusals.error(refused[0], self._refusals.codes[refused[0]]) if refused else None

    def give_up(self, call_id: int) -> None:
        """Forget a call. Its offsets are still committed."""
        self._calls.pop(call_id, None)

    def fail(self, error: ConsumerError) -> list[BackgroundEvent]:
        """Fail all waiting commits."""
        waiting, self._waiting = self._waiting, {}
        return [event for each, pending in waiting.items() for event in self._settle(each, pending.call_ids, error)]

    # Manager interface

    def poll(self, now: float) -> DueRequests:
        events = self._recommit()
        ready = [each for each in self._waiting if each not in self._in_flight]
        if not ready:
            return DueRequests(events=tuple(events))
        if not self._backoff.is_ready(now):
            return DueRequests((), self._backoff.ready_at, tuple(events))
        node_id = self._coordinator.find(now, "OffsetCommit")
        if node_id is None:
            return DueRequests(events=tuple(events))
        sent = {each: self._waiting.pop(each) for each in ready}
        events += self._prepare_texts(sent)
        if not sent:
            return DueRequests(events=tuple(events))
        self._in_flight.update(sent)
        identity = self._identity()
        request = UnsentRequest(
            sender=self,
            api="OffsetCommit",
            message=self._message(sent, identity),
            versions=(VERSIONS[1] if self._options.group_protocol == "consumer" else VERSIONS[0], VERSIONS[1]),
            timeout_s=self._options.request_timeout_s,
            node_id=node_id,
            lane=Lane.COORDINATOR,
            context=(sent, identity),
        )
        return DueRequests((request,), math.inf, tuple(events))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Process a response. The member may have another identity by now, or be closed."""
        sent, identity = request.context
        self._in_flight.difference_update(sent)
        if isinstance(outcome, RequestFailure):
            return self._failed(sent, outcome, now)
        response: Any = outcome
        codes = {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
        if not any(codes.values()):
            self._backoff.succeeded()
        events: list[BackgroundEvent] = []
        for partition, pending in sent.items():
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            events += self._on_code(partition, pending, code, identity, now)
        self._report_accepted()
        return events

    # Private methods

    def _prepare_texts(self, sent: dict[TopicPartition, PendingCommit]) -> list[BackgroundEvent]:
        """Split the metadata into texts. A commit whose metadata cannot be sent fails, and is removed from `sent`."""
        events: list[BackgroundEvent] = []
        for partition, pending in list(sent.items()):
            if pending.texts is not None:
                continue
            try:
                pending.texts = CommitTexts(pending.offset, is_limited=partition in self._limited)
            except ValueError as error:
                del sent[partition]
                refused = ConsumerError(f"OffsetCommit of {partition}: {error}")
                events += self._settle(partition, pending.call_ids, refused)
                continue
            if len(pending.offset.metadata) <= BROKER_METADATA_MAX:
                self._limited.discard(partition)
        return events

    def _message(self, sent: Mapping[TopicPartition, PendingCommit], identity: MemberIdentity) -> Any:
        message = messages.OffsetCommitRequest
        topics = [
            message.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    message.OffsetCommitRequestPartition(**_fields(sent[each], each.partition))
                    for each in (TopicPartition(topic, number) for number in numbers)
                ],
            )
            for topic, numbers in by_topic(sent).items()
        ]
        return message(
            group_id=self._options.group,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=topics,
        )

    def _enqueue(self, partition: TopicPartition, pending: PendingCommit, *, newest: bool) -> None:
        """Queue a commit. Of two commits that wait, keep the newer offset and the calls of both."""
        held = self._held.pop(partition, None) if newest else None
        other = self._waiting.get(partition) or (held[0] if held else None)
        if other is not None:
            first, last = (other, pending) if newest else (pending, other)
            call_ids = [each for each in (*first.call_ids, *last.call_ids) if each in self._calls]
            pending = PendingCommit(last.offset, call_ids)
        self._waiting[partition] = pending

    def _failed(
        self, sent: Mapping[TopicPartition, PendingCommit], failure: RequestFailure, now: float
    ) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        if failure.is_retriable:
            self._coordinator.check(failure, now)
            self._backoff.failed(now)
        for partition, pending in sent.items():
            if failure.is_retriable:
                self._enqueue(partition, pending, newest=False)
            else:
                error = ConsumerError(f"OffsetCommit of {partition}: {failure.reason}")
                events += self._settle(partition, pending.call_ids, error)
        return events

    def _on_code(
        self, partition: TopicPartition, pending: PendingCommit, code: ErrorCode, identity: MemberIdentity, now: float
    ) -> list[BackgroundEvent]:
        if code in RETRIABLE:
            return self._retry(partition, pending, code, now)
        self._refusals.forget(partition)
        if not code:
            return self._accepted(partition, pending)
        if code is ErrorCode.OFFSET_METADATA_TOO_LARGE and pending.texts is not None and pending.texts.shorten():
            self._limited.add(partition)
            self._enqueue(partition, pending, newest=False)
            return []
        if code in OUTDATED and self._holds() is not None:
            events = self._fenced(identity, code, now)
            if partition in self._waiting:
                self._enqueue(partition, pending, newest=False)
            else:
                self._held[partition] = (pending, identity)
            return [*events, *self._recommit()]
        return self._settle(partition, pending.call_ids, BrokerRefused("OffsetCommit", code, str(partition)))

    def _accepted(self, partition: TopicPartition, pending: PendingCommit) -> list[BackgroundEvent]:
        """Send the next text, or report the commit once all are accepted, and added up."""
        texts = pending.texts
        if texts is None or not texts.advance():
            self._enqueue(partition, pending, newest=False)
            return []
        if texts.needs_check and self._query_committed is not None:

            def on_committed(result: Committed | ConsumerError) -> list[BackgroundEvent]:
                if isinstance(result, ConsumerError):
                    return self._settle(partition, pending.call_ids, result)
                texts.check_stored(result[partition])
                events = self._complete(partition, pending, texts)
                self._report_accepted()
                return events

            self._query_committed(frozenset({partition}), on_committed)
            return []
        return self._complete(partition, pending, texts)

    def _complete(self, partition: TopicPartition, pending: PendingCommit, texts: CommitTexts) -> list[BackgroundEvent]:
        if texts.needs_check and texts.left_out:
            self._limited.add(partition)
        self._completed[partition] = pending.offset
        return self._settle(partition, pending.call_ids, None, texts.left_out)

    def _report_accepted(self) -> None:
        completed, self._completed = self._completed, {}
        if completed:
            self.on_accepted(completed)

    def _retry(
        self, partition: TopicPartition, pending: PendingCommit, code: ErrorCode, now: float
    ) -> list[BackgroundEvent]:
        """Retry after a backoff. When the timeout has passed, fail the commit and the newer one that waits after it."""
        self._coordinator.check(code, now)
        self._backoff.failed(now)
        self._troubles.report(TroubleKind.REQUEST, ("OffsetCommit", None), f"OffsetCommit of {partition}: {code.name}")
        if not self._refusals.last_too_long(partition, code, now):
            self._enqueue(partition, pending, newest=False)
            return []
        self._refusals.forget(partition)
        newer = self._waiting.pop(partition, None)
        call_ids = [*pending.call_ids, *(newer.call_ids if newer else ())]
        return self._settle(partition, call_ids, self._refusals.error(partition, code))

    def _recommit(self) -> list[BackgroundEvent]:
        """Queue held commits again once the identity has changed. Fail those whose partition is no longer owned."""
        events: list[BackgroundEvent] = []
        identity, holds = self._identity(), self._holds()
        for partition, (pending, before) in list(self._held.items()):
            if holds is not None and partition not in holds:
                del self._held[partition]
                events += self._settle(partition, pending.call_ids, _lost(partition))
            elif identity != before:
                del self._held[partition]
                self._enqueue(partition, pending, newest=False)
        return events

    def _settle(
        self,
        partition: TopicPartition,
        call_ids: Iterable[int],
        error: ProxyError | None,
        left_out: Sequence[OffsetSpan] = (),
    ) -> list[BackgroundEvent]:
        """Note the result of a partition for its calls. Return the calls that are finished."""
        events: list[BackgroundEvent] = []
        for call_id in call_ids:
            call = self._calls.get(call_id)
            if call is None:
                continue
            call.waiting_for.discard(partition)
            if error is not None:
                call.errors[partition] = error
            if left_out:
                call.left_out[partition] = left_out
            if not call.waiting_for:
                events += self._finish(call_id)
        return events

    def _finish(self, call_id: int) -> list[BackgroundEvent]:
        call = self._calls.pop(call_id)
        if call.errors:
            return [CallDone(call_id=call_id, value=CommitRefused(errors=call.errors, left_out=call.left_out))]
        return [CallDone(call_id=call_id, value=RangesLeftOut(left_out=call.left_out) if call.left_out else None)]


def _fields(pending: PendingCommit, number: int) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": pending.offset.offset,
        "committed_leader_epoch": pending.offset.leader_epoch,
        "committed_metadata": pending.offset.metadata if pending.texts is None else pending.texts.current,
    }


def _lost(partition: TopicPartition) -> PartitionLostError:
    return PartitionLostError(f"{partition} is no longer owned by this member: its offset is not committed")
