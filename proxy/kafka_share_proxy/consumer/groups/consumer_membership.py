"""Membership of a KIP-848 group: one request, ConsumerGroupHeartbeat, joins, acknowledges and leaves.

The coordinator sends the target assignment (`_received`). Owned partitions that are not in it are revoked first. Then
one heartbeat reports the remaining partitions, and another one the added partitions. A heartbeat with something to
report is sent immediately: when joining all fields, later the changed ones.

Source: ConsumerMembershipManager, ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kafka_share_proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.groups.coordinator_requests import COORDINATOR_MOVED, CoordinatorRequests
from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.groups.group_membership import GroupMembership
from kafka_share_proxy.consumer.groups.rebalance_flow import RebalanceFlow
from kafka_share_proxy.consumer.groups.states import RebalanceState
from kafka_share_proxy.consumer.metadata_requests import MetadataRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import NOTHING, Partitions, by_topic
from kafka_share_proxy.consumer.requests import DueRequests, Lane, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

State = RebalanceState
VERSIONS = (0, 1)
"""Version 0 is that of 3.9, where KIP-848 is early access."""
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""Epoch of a static member that leaves and will return."""

FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
RETRIABLE = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *COORDINATOR_MOVED})


class ConsumerMembership(GroupMembership):
    """A member of a group of the consumer protocol (KIP-848): ConsumerGroupHeartbeat."""

    protocol = RebalanceProtocol.CONSUMER

    def __init__(
        self,
        options: ConsumerOptions,
        flow: RebalanceFlow,
        coordinator: CoordinatorRequests,
        metadata: MetadataRequests,
        backoff: RetryBackoff,
        is_settled: Callable[[Partitions], bool],
        member_id: str,
    ) -> None:
        super().__init__(options, flow, coordinator, backoff, is_settled)
        self._metadata = metadata
        self.identity = MemberIdentity(member_id, JOIN_EPOCH, options.group_instance_id)
        self._reported_topics: frozenset[str] | None = None
        self._received: dict[bytes, list[int]] | None = None
        """Assignment that was not yet acted on."""
        self._ack_due = False
        self._in_flight: UnsentRequest | None = None
        self._next_heartbeat = -math.inf

    # Calls of the application

    def subscribe(self, topics: frozenset[str]) -> None:
        self._topics = topics

    def acknowledge_assigned(self, rebalance_id: int, now: float) -> None:
        if self._flow.acknowledge_assigned(rebalance_id, now):
            self._ack_due = True

    def leave(self, now: float, reason: str) -> None:
        """Leave the group. A static member announces that it will return (KIP-848)."""
        if self.identity.generation > JOIN_EPOCH or self._in_flight is not None:
            epoch = LEAVE_EPOCH if self.identity.instance_id is None else STATIC_LEAVE_EPOCH
            self._leave_as = self.identity._replace(generation=epoch)
        self._forget()
        self._topics = frozenset()
        self._flow.leave(now, reason)

    @property
    def is_leaving(self) -> bool:
        return self._leave_as is not None or (self._in_flight is not None and self._in_flight.context[1] < JOIN_EPOCH)

    def fenced(self, identity: MemberIdentity, _: ErrorCode, __: float) -> list[BackgroundEvent]:
        """Send a heartbeat, whose response shows what the refusal means."""
        if identity == self.identity:
            self._next_heartbeat = -math.inf
        return []

    @property
    def holds(self) -> Partitions:
        """Partitions of this member, including released ones that are not given up yet."""
        return self._flow.owned if self.identity.generation > JOIN_EPOCH else NOTHING

    # Manager interface

    def poll(self, now: float) -> DueRequests:
        if self.fatal is not None:
            return DueRequests()
        events = [*self._expire(now), *self._advance(now)]
        request = self._leave_request(now) or self._heartbeat_request(now)
        if (
            request is not None
            and request.message.topic_partitions is not None
            and self._flow.state is State.PARTITION_REVOKED
        ):
            events += self._flow.begin_assignment(now, "what was to be revoked is acknowledged")
        return DueRequests((request,) if request else (), self._wake_at(now), tuple(events))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if request is not self._in_flight:
            return []
        self._in_flight = None
        sent_at, epoch = request.context
        if epoch < JOIN_EPOCH:
            return []
        if isinstance(outcome, RequestFailure):
            if not outcome.is_retriable:
                return self._fail(ConsumerError(f"{request.api}: {outcome.reason}"), now)
            self._coordinator.check(outcome, now)
            self._resend(epoch, now)
            return []
        response: Any = outcome
        code = ErrorCode.of(response.error_code)
        if code:
            return self._refused(code, response.error_message, epoch, now)
        self._on_heartbeat_response(response, sent_at, now)
        return []

    # Time

    def _expire(self, now: float) -> list[BackgroundEvent]:
        if now >= self._poll_deadline:
            topics, reason = self._topics, "max.poll.interval.ms has passed without a poll"
            lost = self._flow.lose_everything(now, reason)
            self.leave(now, reason)
            self._topics, self._poll_deadline = topics, math.inf
            return lost
        if now >= self._session_deadline:
            self._coordinator.mark_unknown(now, "no heartbeat got a response within the session timeout")
            return self._start_over(now, "the session has expired: no heartbeat got a response")
        return self._flow.expire(now)

    def _wake_at(self, now: float) -> float:
        times = [self._poll_deadline, self._session_deadline, self._flow.deadline, self._settle_by]
        if self._in_flight is None:
            times += [self._next_heartbeat, self._backoff.ready_at]
        return min((each for each in times if each > now), default=math.inf)

    # Progress

    def _advance(self, now: float) -> list[BackgroundEvent]:
        events = self._take_up_assignment(now)
        if self._flow.check_revoked(now):
            self._settle_by = min(self._settle_by, now + self._options.request_timeout_s)
            if now >= self._settle_by or self._is_settled(self._flow.released):
                self._settle_by = math.inf
                self._flow.give_up_released()
                self._ack_due = True
        return events

    def _take_up_assignment(self, now: float) -> list[BackgroundEvent]:
        if self._received is None or self._flow.state not in (
            State.COMPLETING_REBALANCE,
            State.STABLE,
            State.REVOKING_PARTITION,
        ):
            return []
        target = self._resolve(self._received)
        if target is None:
            self._metadata.request_update()
            return []
        self._received, self._flow.target = None, target
        revoked = self._flow.owned - target
        reason = f"epoch {self.identity.generation}"
        if self._flow.state is State.REVOKING_PARTITION or (revoked and self._flow.state is State.STABLE):
            return self._flow.begin_revocation(revoked, self.protocol, now, reason)
        if self._flow.state is State.STABLE and target == self._flow.owned:
            self._ack_due = True
            return []
        return self._flow.begin_assignment(now, reason)

    def _resolve(self, received: dict[bytes, list[int]]) -> Partitions | None:
        names = {topic_id: self._metadata.topic_name(topic_id) for topic_id in received}
        partitions = [
            TopicPartition(name, number)
            for topic_id, name in names.items()
            if name is not None
            for number in received[topic_id]
        ]
        return None if None in names.values() else frozenset(partitions)

    # Requests

    def _heartbeat_request(self, now: float) -> UnsentRequest | None:
        if self._in_flight is not None or not self._topics or not self.is_polled:
            return None
        joining = self.identity.generation == JOIN_EPOCH
        if not (joining or self._is_due(now)) or not self._backoff.is_ready(now):
            return None
        node_id = self._coordinator.find(now, "ConsumerGroupHeartbeat")
        if node_id is None:
            return None
        if joining and self._flow.state is State.UNJOINED:
            self._flow.trace.to(State.PREPARING_REBALANCE, now, "joining")
        return self._send(self._message(joining), node_id, now, self.identity.generation)

    def _is_due(self, now: float) -> bool:
        return self._acknowledges() or self._topics != self._reported_topics or now >= self._next_heartbeat

    def _acknowledges(self) -> bool:
        return self._ack_due and self._flow.state in (
            State.PARTITION_REVOKED,
            State.ASSIGNING_PARTITIONS,
            State.STABLE,
        )

    def _leave_request(self, now: float) -> UnsentRequest | None:
        if self._leave_as is None or self._in_flight is not None:
            return None
        node_id = self._coordinator.find(now, "leaving the group")
        if node_id is None:
            return None
        identity, self._leave_as = self._leave_as, None
        message = messages.ConsumerGroupHeartbeatRequest(
            group_id=self._options.group,
            member_id=identity.member_id,
            member_epoch=identity.generation,
            instance_id=identity.instance_id,
        )
        return self._send(message, node_id, now, identity.generation)

    def _send(self, message: Any, node_id: int, now: float, epoch: int) -> UnsentRequest:
        self._in_flight = UnsentRequest(
            sender=self,
            api="ConsumerGroupHeartbeat",
            message=message,
            versions=VERSIONS,
            timeout_s=self._options.request_timeout_s,
            node_id=node_id,
            lane=Lane.COORDINATOR,
            context=(now, epoch),
        )
        return self._in_flight

    def _message(self, joining: bool) -> Any:
        message = messages.ConsumerGroupHeartbeatRequest
        heartbeat = message(
            group_id=self._options.group,
            member_id=self.identity.member_id,
            member_epoch=self.identity.generation,
            instance_id=self.identity.instance_id,
        )
        if joining:
            heartbeat.rack_id = self._options.rack
            heartbeat.rebalance_timeout_ms = round(self._options.max_poll_interval_s * 1000)
            heartbeat.server_assignor = self._options.server_assignor
            heartbeat.topic_partitions = []
        elif self._acknowledges():
            heartbeat.topic_partitions = [
                message.TopicPartitions(topic_id=self._metadata.topic_id(topic) or ZERO_UUID, partitions=numbers)
                for topic, numbers in by_topic(self._flow.owned).items()
            ]
            self._ack_due = False
        if joining or self._topics != self._reported_topics:
            heartbeat.subscribed_topic_names = sorted(self._topics)
            self._reported_topics = self._topics
        return heartbeat

    # Responses

    def _on_heartbeat_response(self, response: Any, sent_at: float, now: float) -> None:
        self._backoff.succeeded()
        self.identity = self.identity._replace(
            member_id=response.member_id or self.identity.member_id, generation=response.member_epoch
        )
        self._session_deadline = sent_at + self._options.session_timeout_s
        self._next_heartbeat = sent_at + response.heartbeat_interval_ms / 1000
        if self._flow.state is State.PREPARING_REBALANCE:
            self._flow.trace.to(State.COMPLETING_REBALANCE, now, f"epoch {response.member_epoch}")
        if response.assignment is not None:
            self._received = {
                bytes(each.topic_id): list(each.partitions) for each in response.assignment.topic_partitions
            }

    def _refused(self, code: ErrorCode, detail: str | None, epoch: int, now: float) -> list[BackgroundEvent]:
        self._coordinator.check(code, now)
        if code in FENCED:
            return self._start_over(now, f"ConsumerGroupHeartbeat: {code.name}")
        if code in RETRIABLE:
            self._resend(epoch, now)
            return []
        about = f"group {self._options.group_id}"
        return self._fail(BrokerRefused("ConsumerGroupHeartbeat", code, about, detail), now)

    def _resend(self, epoch: int, now: float) -> None:
        """Send everything: the coordinator may not have received the last request."""
        self._backoff.failed(now)
        self._next_heartbeat = now
        self._reported_topics = None
        if epoch > JOIN_EPOCH and self._flow.state in (State.ASSIGNING_PARTITIONS, State.STABLE):
            self._ack_due = True

    def _start_over(self, now: float, reason: str) -> list[BackgroundEvent]:
        self._forget()
        return self._flow.lose_everything(now, reason)

    def _fail(self, error: ConsumerError, now: float) -> list[BackgroundEvent]:
        self.fatal = error
        self._forget()
        return [BackgroundError(error=error), *self._flow.lose_everything(now, str(error))]

    def _forget(self) -> None:
        """Forget the membership, except the member id."""
        self.identity = self.identity._replace(generation=JOIN_EPOCH)
        self._in_flight = self._received = self._reported_topics = None
        self._ack_due = False
        self._next_heartbeat = -math.inf
        self._session_deadline = self._settle_by = math.inf
