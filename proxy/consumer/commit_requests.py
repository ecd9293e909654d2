"""OffsetCommit and OffsetFetch (CommitRequestManager, consumer/README.md rules 21-23).

Theory of operation. Each partition has at most one commit that waits and one under way. A newer one takes the place of
the waiting one and of its calls: states are monotone, and the newest says all. A refusal because the generation has
changed is no loss: the commit is held until the member is known under a new one, and sent again if it still has the
partition. Every call ends exactly once, also if the application has stopped waiting for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.consumer.classic_messages import MemberIdentity
from proxy.consumer.coordinator_requests import GONE, CoordinatorRequests
from proxy.consumer.events import (
    BackgroundEvent,
    BrokerRefused,
    CallDone,
    CommitRefused,
    ConsumerError,
    PartitionLostError,
)
from proxy.consumer.options import ConsumerOptions
from proxy.consumer.partitions import OffsetAndMetadata, Partitions, by_topic
from proxy.consumer.requests import Lane, Outcome, RequestFailure, RetryBackoff, UnsentRequest, Wanted
from proxy.wire import messages
from proxy.wire.errors import ErrorCode, ProxyError
from proxy.wire.values import TopicPartition

VERSIONS = (8, 9)
"""By topic name; what KIP-848 members may say begins with 9."""

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        *GONE,
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
"""The member is another one by now, or will be; or the group has forgotten it."""


@dataclass(slots=True)
class PendingCommit:
    """The newest offset of a partition that is not committed yet, and whose calls wait for it."""

    offset: OffsetAndMetadata
    call_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _OpenCall:
    waiting_for: set[TopicPartition]
    errors: dict[TopicPartition, ProxyError] = field(default_factory=dict)


class _Refusals:
    """Since when brokers have refused each partition for reasons that may pass, while nothing else was answered."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: dict[TopicPartition, float] = {}

    def last_too_long(self, partition: TopicPartition, code: ErrorCode, now: float) -> bool:
        """Note another one. A rebalance takes the time that it takes, so it does not count."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        return now - self._since.setdefault(partition, now) >= self._timeout_s

    def forget(self, partition: TopicPartition) -> None:
        """It is committed, or the last word is spoken."""
        self._since.pop(partition, None)

    def error(self, partition: TopicPartition, code: ErrorCode) -> BrokerRefused:
        """What callers are told in the end."""
        return BrokerRefused("OffsetCommit", code, str(partition), f"again and again for {self._timeout_s:g} s")


class CommitRequests:
    """All commits of one consumer."""

    def __init__(
        self,
        options: ConsumerOptions,
        coordinator: CoordinatorRequests,
        backoff: RetryBackoff,
        who: Callable[[], MemberIdentity],
        holds: Callable[[], Partitions | None],
        fenced: Callable[[MemberIdentity, ErrorCode, float], list[BackgroundEvent]],
    ) -> None:
        self._options = options
        self._coordinator = coordinator
        self._backoff = backoff
        self._who = who
        self._holds = holds
        """What this member may commit; None: it belongs to no group, and may commit anything."""
        self._fenced = fenced
        """Who is told that the group refuses this member."""
        self.on_accepted: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None] = lambda _offsets: None
        """Hears of offsets that the group has accepted, also of automatic commits; must not raise."""
        self._waiting: dict[TopicPartition, PendingCommit] = {}
        self._held: dict[TopicPartition, tuple[PendingCommit, MemberIdentity]] = {}
        """Refused because of the generation; each with who said it."""
        self._refusals = _Refusals(options.api_timeout_s)
        self._under_way: set[TopicPartition] = set()
        self._calls: dict[int, _OpenCall] = {}

    # What the application does

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], call_id: int | None = None
    ) -> list[BackgroundEvent]:
        """Have these committed. Those that the member does not hold are refused at once, the others go on."""
        held = self._holds()
        if call_id is not None:
            self._calls[call_id] = _OpenCall(set(offsets))
        events: list[BackgroundEvent] = []
        for partition, offset in offsets.items():
            calls = [] if call_id is None else [call_id]
            if held is not None and partition not in held:
                events += self._settle(partition, calls, _lost(partition))
            else:
                self._enqueue(partition, PendingCommit(offset, calls), newest=True)
        if call_id is not None and not offsets:
            events += self._finish(call_id)
        return events

    def is_settled(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether nothing of these is due or under way."""
        return not any(each in self._waiting or each in self._under_way or each in self._held for each in partitions)

    @property
    def is_idle(self) -> bool:
        """Whether no call is open and nothing is due or under way."""
        return not (self._waiting or self._held or self._under_way or self._calls)

    def abandon(self, partitions: Iterable[TopicPartition]) -> list[BackgroundEvent]:
        """These are lost: what is not under way is not sent any more."""
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

    def fail(self, error: ConsumerError) -> list[BackgroundEvent]:
        """The coordinator cannot be found: nothing that waits will be sent."""
        waiting, self._waiting = self._waiting, {}
        return [event for each, pending in waiting.items() for event in self._settle(each, pending.call_ids, error)]

    # The manager

    def poll(self, now: float) -> Wanted:
        """One OffsetCommit with all that waits and is not under way."""
        events = self._recommit()
        ready = [each for each in self._waiting if each not in self._under_way]
        if not ready:
            return Wanted(events=tuple(events))
        if not self._backoff.is_ready(now):
            return Wanted((), self._backoff.ready_at, tuple(events))
        node_id = self._coordinator.need(now, "OffsetCommit")
        if node_id is None:
            return Wanted(events=tuple(events))
        sent = {each: self._waiting.pop(each) for each in ready}
        self._under_way.update(sent)
        who = self._who()
        request = UnsentRequest(
            sender=self,
            api="OffsetCommit",
            message=self._message(sent, who),
            versions=(VERSIONS[1] if self._options.group_protocol == "consumer" else VERSIONS[0], VERSIONS[1]),
            timeout_s=self._options.request_timeout_s,
            node_id=node_id,
            lane=Lane.COORDINATOR,
            context=(sent, who),
        )
        return Wanted((request,), math.inf, tuple(events))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Take the result of each partition; the member may be another one by now, or closed."""
        sent, who = request.context
        self._under_way.difference_update(sent)
        if isinstance(outcome, RequestFailure):
            return self._failed(sent, outcome, now)
        answer: Any = outcome
        codes = {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }
        if not any(codes.values()):
            self._backoff.succeeded()
        if accepted := {each: pending.offset for each, pending in sent.items() if codes.get(each) == ErrorCode.NONE}:
            self.on_accepted(accepted)
        events: list[BackgroundEvent] = []
        for partition, pending in sent.items():
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            events += self._take(partition, pending, code, who, now)
        return events

    # Inside

    def _message(self, sent: Mapping[TopicPartition, PendingCommit], who: MemberIdentity) -> Any:
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
            generation_id_or_member_epoch=who.generation,
            member_id=who.member_id,
            group_instance_id=who.instance_id,
            topics=topics,
        )

    def _enqueue(self, partition: TopicPartition, pending: PendingCommit, *, newest: bool) -> None:
        """Behind what is under way; of two that wait the newer offset is kept, with the calls of both."""
        held = self._held.pop(partition, None) if newest else None
        other = self._waiting.get(partition) or (held[0] if held else None)
        if other is not None:
            first, last = (other, pending) if newest else (pending, other)
            pending = PendingCommit(last.offset, [*first.call_ids, *last.call_ids])
        self._waiting[partition] = pending

    def _failed(
        self, sent: Mapping[TopicPartition, PendingCommit], failure: RequestFailure, now: float
    ) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        if failure.is_retriable:
            self._coordinator.note(failure, now)
            self._backoff.failed(now)
        for partition, pending in sent.items():
            if failure.is_retriable:
                self._enqueue(partition, pending, newest=False)
            else:
                error = ConsumerError(f"OffsetCommit of {partition}: {failure.text or failure.kind.value}")
                events += self._settle(partition, pending.call_ids, error)
        return events

    def _take(
        self, partition: TopicPartition, pending: PendingCommit, code: ErrorCode, who: MemberIdentity, now: float
    ) -> list[BackgroundEvent]:
        if code in RETRIABLE:
            return self._try_again(partition, pending, code, now)
        self._refusals.forget(partition)
        if not code:
            return self._settle(partition, pending.call_ids, None)
        if code in OUTDATED and self._holds() is not None:
            events = self._fenced(who, code, now)
            if partition in self._waiting:
                self._enqueue(partition, pending, newest=False)
            else:
                self._held[partition] = (pending, who)
            return [*events, *self._recommit()]
        return self._settle(partition, pending.call_ids, BrokerRefused("OffsetCommit", code, str(partition)))

    def _try_again(
        self, partition: TopicPartition, pending: PendingCommit, code: ErrorCode, now: float
    ) -> list[BackgroundEvent]:
        """After a pause, until it has taken too long: then also what came behind it is told."""
        self._coordinator.note(code, now)
        self._backoff.failed(now)
        if not self._refusals.last_too_long(partition, code, now):
            self._enqueue(partition, pending, newest=False)
            return []
        self._refusals.forget(partition)
        newer = self._waiting.pop(partition, None)
        call_ids = [*pending.call_ids, *(newer.call_ids if newer else ())]
        return self._settle(partition, call_ids, self._refusals.error(partition, code))

    def _recommit(self) -> list[BackgroundEvent]:
        """What was refused because of the generation, once there is a newer one, or none."""
        events: list[BackgroundEvent] = []
        who, holds = self._who(), self._holds()
        for partition, (pending, before) in list(self._held.items()):
            if holds is not None and partition not in holds:
                del self._held[partition]
                events += self._settle(partition, pending.call_ids, _lost(partition))
            elif who != before:
                del self._held[partition]
                self._enqueue(partition, pending, newest=False)
        return events

    def _settle(
        self, partition: TopicPartition, call_ids: Iterable[int], error: ProxyError | None
    ) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        for call_id in call_ids:
            call = self._calls[call_id]
            call.waiting_for.discard(partition)
            if error is not None:
                call.errors[partition] = error
            if not call.waiting_for:
                events += self._finish(call_id)
        return events

    def _finish(self, call_id: int) -> list[BackgroundEvent]:
        errors = self._calls.pop(call_id).errors
        return [CallDone(call_id=call_id, value=CommitRefused(errors=errors) if errors else None)]


def _fields(pending: PendingCommit, number: int) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": pending.offset.offset,
        "committed_leader_epoch": pending.offset.leader_epoch,
        "committed_metadata": pending.offset.metadata,
    }


def _lost(partition: TopicPartition) -> PartitionLostError:
    return PartitionLostError(f"{partition} is not this member's any more: its offset is not committed")
