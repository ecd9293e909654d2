"""Membership of a share group: ShareGroupHeartbeat to join, stay and leave (consumer/share_consumers.md rules 1 and 2).

A heartbeat is sent at its interval, and immediately when the subscription has changed. The first poll joins.

Source: ShareMembershipManager, ShareHeartbeatRequestManager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from kafka_share_proxy.consumer.events import (
    BackgroundError,
    BackgroundEvent,
    BrokerRefused,
    ConsumerError,
    FatalGroupError,
)
from kafka_share_proxy.consumer.groups.coordinator_requests import COORDINATOR_MOVED, CoordinatorRequests
from kafka_share_proxy.consumer.groups.states import StateChange, StateTrace
from kafka_share_proxy.consumer.metadata_requests import MetadataRequests
from kafka_share_proxy.consumer.partitions import NOTHING, Partitions
from kafka_share_proxy.consumer.requests import DueRequests, Lane, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

VERSIONS = (1, 1)
JOIN_EPOCH = 0
LEAVE_EPOCH = -1

REJOIN_CODES = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""Codes after which the member joins again under the same id."""
FIRST_RETRY_S = 0.25
"""Seconds to the second heartbeat of a member without assignment. Doubled each time, up to the heartbeat interval."""
RETRIABLE = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *COORDINATOR_MOVED})


class ShareMemberState(Enum):
    """State of a member of a share group."""

    OUTSIDE = "outside"
    """The member has not polled, has left, or has exceeded max.poll.interval.ms."""
    JOINING = "joining"
    STABLE = "stable"
    LEAVING = "leaving"
    REFUSED = "refused"


_STATE = ShareMemberState
SHARE_MEMBER_TRANSITIONS: Mapping[ShareMemberState, frozenset[ShareMemberState]] = {
    _STATE.OUTSIDE: frozenset({_STATE.JOINING}),
    _STATE.JOINING: frozenset({_STATE.STABLE, _STATE.LEAVING, _STATE.OUTSIDE, _STATE.REFUSED}),
    _STATE.STABLE: frozenset({_STATE.JOINING, _STATE.LEAVING, _STATE.REFUSED}),
    _STATE.LEAVING: frozenset({_STATE.OUTSIDE}),
    _STATE.REFUSED: frozenset({_STATE.OUTSIDE}),
}


class ShareMembership:
    """Membership of one share consumer."""

    def __init__(
        self,
        options: ShareConsumerOptions,
        coordinator: CoordinatorRequests,
        metadata: MetadataRequests,
        backoff: RetryBackoff,
        member_id: str,
        on_state: Callable[[StateChange[ShareMemberState]], None] | None = None,
    ) -> None:
        self.trace = StateTrace(ShareMemberState.OUTSIDE, SHARE_MEMBER_TRANSITIONS, on_state)
        self.assigned: Partitions = NOTHING
        self.fatal: ConsumerError | None = None
        """No request is sent after a refusal."""
        self.epoch = JOIN_EPOCH
        self._options = options
        self._coordinator = coordinator
        self._metadata = metadata
        self._backoff = backoff
        self._member_id = member_id
        self._topics: frozenset[str] = frozenset()
        self._reported_topics: frozenset[str] | None = None
        self._pending: dict[bytes, list[int]] | None = None
        """Assignment with at least one unknown topic id."""
        self._in_flight: UnsentRequest | None = None
        self._next_heartbeat = -math.inf
        self._retry_s = FIRST_RETRY_S
        self._poll_deadline = math.inf

    # Called for the application

    def subscribe(self, topics: frozenset[str]) -> None:
        self._topics = topics

    @property
    def is_subscribed(self) -> bool:
        return bool(self._topics)

    def on_poll(self, now: float) -> None:
        self._poll_deadline = now + self._options.max_poll_interval_s

    def leave(self, now: float, reason: str) -> None:
        self._topics = frozenset()
        self._end_membership(now, reason)

    @property
    def is_leaving(self) -> bool:
        return self.trace.state is ShareMemberState.LEAVING

    # RequestManager

    def poll(self, now: float) -> DueRequests:
        if self.fatal is not None:
            return DueRequests()
        if now >= self._poll_deadline:
            self._poll_deadline = math.inf
            self._end_membership(now, "max.poll.interval.ms has passed without a poll")
        self._resolve()
        request = self._leave_request(now) if self.is_leaving else self._heartbeat_request(now)
        times = [self._poll_deadline, self._backoff.ready_at if self._in_flight is None else math.inf]
        if self._in_flight is None and self.trace.state is ShareMemberState.STABLE:
            times.append(self._next_heartbeat)
        return DueRequests((request,) if request else (), min((each for each in times if each > now), default=math.inf))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if request is not self._in_flight:
            return []
        self._in_flight = None
        sent_at, epoch = request.context
        if epoch == LEAVE_EPOCH:
            self.trace.to(ShareMemberState.OUTSIDE, now, "left")
            return []
        if isinstance(outcome, RequestFailure):
            if not outcome.is_retriable:
                return self._fail(FatalGroupError(f"{request.api}: {outcome.reason}"), now)
            self._coordinator.check(outcome, now)
            self._resend(now)
            return []
        response: Any = outcome
        if code := ErrorCode.of(response.error_code):
            return self._refused(code, response.error_message, epoch, now)
        self._on_heartbeat_response(response, sent_at, now)
        return []

    # Requests

    def _heartbeat_request(self, now: float) -> UnsentRequest | None:
        if self._in_flight is not None or not self._topics or self._poll_deadline == math.inf:
            return None
        joining = self.epoch == JOIN_EPOCH
        if not (joining or self._topics != self._reported_topics or now >= self._next_heartbeat):
            return None
        node_id = self._coordinator.find(now, "ShareGroupHeartbeat") if self._backoff.is_ready(now) else None
        if node_id is None:
            return None
        if joining and self.trace.state is not ShareMemberState.JOINING:
            self.trace.to(ShareMemberState.JOINING, now, "joining")
        message = messages.ShareGroupHeartbeatRequest(
            group_id=self._options.group, member_id=self._member_id, member_epoch=self.epoch
        )
        if joining:
            message.rack_id = self._options.rack
        if joining or self._topics != self._reported_topics:
            message.subscribed_topic_names = sorted(self._topics)
            self._reported_topics = self._topics
        return self._send(message, node_id, now)

    def _leave_request(self, now: float) -> UnsentRequest | None:
        if self._in_flight is not None:
            return None
        if self._coordinator.failed is not None:
            self.trace.to(ShareMemberState.OUTSIDE, now, f"no coordinator to notify: {self._coordinator.failed}")
            return None
        node_id = self._coordinator.find(now, "leaving the group")
        if node_id is None:
            return None
        message = messages.ShareGroupHeartbeatRequest(
            group_id=self._options.group, member_id=self._member_id, member_epoch=LEAVE_EPOCH
        )
        return self._send(message, node_id, now)

    def _send(self, message: Any, node_id: int, now: float) -> UnsentRequest:
        self._in_flight = UnsentRequest(
            sender=self,
            api="ShareGroupHeartbeat",
            message=message,
            versions=VERSIONS,
            timeout_s=self._options.request_timeout_s,
            node_id=node_id,
            lane=Lane.COORDINATOR,
            context=(now, message.member_epoch),
        )
        return self._in_flight

    # Responses

    def _on_heartbeat_response(self, response: Any, sent_at: float, now: float) -> None:
        self._backoff.succeeded()
        self.epoch = response.member_epoch
        interval_s = response.heartbeat_interval_ms / 1000
        if self.trace.state is ShareMemberState.JOINING:
            self.trace.to(ShareMemberState.STABLE, now, f"epoch {self.epoch}")
        if response.assignment is not None:
            self._pending = {
                bytes(each.topic_id): list(each.partitions) for each in response.assignment.topic_partitions
            }
        if not (self._pending or self.assigned):
            interval_s, self._retry_s = min(interval_s, self._retry_s), self._retry_s * 2
        self._next_heartbeat = sent_at + interval_s

    def _resolve(self) -> None:
        """Assign partitions. Those of a topic without a known name are assigned when it is known."""
        if self._pending is None:
            return
        names = {topic_id: self._metadata.topic_name(topic_id) for topic_id in self._pending}
        self.assigned = frozenset(
            TopicPartition(name, number)
            for topic_id, name in names.items()
            if name is not None
            for number in self._pending[topic_id]
        )
        if None in names.values():
            self._metadata.request_update()
        else:
            self._pending = None

    def _refused(self, code: ErrorCode, detail: str | None, epoch: int, now: float) -> list[BackgroundEvent]:
        self._coordinator.check(code, now)
        error = BrokerRefused("ShareGroupHeartbeat", code, f"group {self._options.group}", detail)
        if code in REJOIN_CODES and epoch > JOIN_EPOCH:
            self.epoch, self._reported_topics = JOIN_EPOCH, None
            self.trace.to(ShareMemberState.JOINING, now, code.name)
            return []
        self._resend(now)
        if code in RETRIABLE:
            return []
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return [BackgroundError(error=error)]
        return self._fail(error, now)

    def _resend(self, now: float) -> None:
        """Send everything: the coordinator may not have processed the last heartbeat."""
        self._backoff.failed(now)
        self._next_heartbeat = now
        self._reported_topics = None

    def _fail(self, error: ConsumerError, now: float) -> list[BackgroundEvent]:
        self.fatal = error
        self.trace.to(ShareMemberState.REFUSED, now, str(error))
        self._forget()
        return [BackgroundError(error=error)]

    def _end_membership(self, now: float, reason: str) -> None:
        before = self.trace.state
        if before in (ShareMemberState.JOINING, ShareMemberState.STABLE):
            self.trace.to(ShareMemberState.LEAVING, now, reason)
        elif before is ShareMemberState.REFUSED:
            self.trace.to(ShareMemberState.OUTSIDE, now, reason)
        self._forget()

    def _forget(self) -> None:
        self.epoch = JOIN_EPOCH
        self._in_flight = self._pending = self._reported_topics = None
        self.assigned = NOTHING
        self._next_heartbeat = -math.inf
        self._retry_s = FIRST_RETRY_S
