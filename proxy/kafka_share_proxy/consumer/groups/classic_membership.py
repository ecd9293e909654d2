"""Membership of a classic group: join, sync, heartbeats, leave; eager and cooperative (AbstractCoordinator, KIP-429).

Rules: consumer/README.md 9 and 24 to 27.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kafka_share_proxy.consumer.assignors.interface import Assignor
from kafka_share_proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.groups import classic_messages as messages
from kafka_share_proxy.consumer.groups.classic_messages import JoinFacts, MemberIdentity
from kafka_share_proxy.consumer.groups.coordinator_requests import COORDINATOR_MOVED, CoordinatorRequests
from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.groups.group_leader import GroupLeader
from kafka_share_proxy.consumer.groups.group_membership import GroupMembership
from kafka_share_proxy.consumer.groups.group_protocol import (
    NO_GENERATION,
    MalformedAssignment,
    MalformedMember,
    read_assignment,
)
from kafka_share_proxy.consumer.groups.rebalance_flow import RebalanceFlow
from kafka_share_proxy.consumer.groups.states import RebalanceState
from kafka_share_proxy.consumer.metadata_requests import MetadataRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import NOTHING, Partitions
from kafka_share_proxy.consumer.requests import DueRequests, Lane, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.wire.errors import ErrorCode

State = RebalanceState
JOIN_LAPSE_S = 5.0
"""Seconds that JoinGroup may take beyond the rebalance timeout (JOIN_GROUP_TIMEOUT_LAPSE)."""

RETRIABLE = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, *COORDINATOR_MOVED})
FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""Errors after which the group continues without this member, which joins as a new member."""


class ClassicMembership(GroupMembership):
    """A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

    def __init__(
        self,
        options: ConsumerOptions,
        flow: RebalanceFlow,
        coordinator: CoordinatorRequests,
        assignors: Sequence[Assignor],
        metadata: MetadataRequests,
        backoff: RetryBackoff,
        is_settled: Callable[[Partitions], bool],
    ) -> None:
        super().__init__(options, flow, coordinator, backoff, is_settled)
        self._assignors = assignors
        self._leader = GroupLeader(assignors, metadata)
        cooperative = all(each.protocol is RebalanceProtocol.COOPERATIVE for each in assignors)
        self.protocol = RebalanceProtocol.COOPERATIVE if cooperative else RebalanceProtocol.EAGER
        self.identity = MemberIdentity(instance_id=options.group_instance_id)
        self._rejoin: str | None = None
        """Reason for JoinGroup while it is due."""
        self._sync_due: str | None = None
        """Name of the assignor while SyncGroup is due."""
        self._assigned: Partitions | None = None
        self._assigned_generation = NO_GENERATION
        self._in_flight: dict[str, UnsentRequest] = {}
        """Request in flight, by API name."""
        self._next_heartbeat = math.inf
        self._leave_reason = ""

    # Calls of the application

    def subscribe(self, topics: frozenset[str]) -> None:
        if topics != self._topics:
            self._topics = topics
            self._rejoin = "the subscription has changed"

    def acknowledge_assigned(self, rebalance_id: int, now: float) -> None:
        self._flow.acknowledge_assigned(rebalance_id, now)

    def leave(self, now: float, reason: str) -> None:
        """Leave the group. A static member sends no LeaveGroup (KIP-345)."""
        if self.identity.member_id and self.identity.instance_id is None:
            self._leave_as, self._leave_reason = self.identity, reason
        self._forget()
        self._topics, self._rejoin = frozenset(), None
        self._flow.leave(now, reason)

    @property
    def is_leaving(self) -> bool:
        return self._leave_as is not None or "LeaveGroup" in self._in_flight

    def fenced(self, identity: MemberIdentity, code: ErrorCode, now: float) -> list[BackgroundEvent]:
        """Handle a fencing error, unless it was sent under an earlier identity."""
        if identity != self.identity or code not in {*FORGOTTEN, ErrorCode.FENCED_INSTANCE_ID}:
            return []
        if code is ErrorCode.ILLEGAL_GENERATION and "JoinGroup" in self._in_flight:
            return []  # the response to JoinGroup will return the group's new generation
        return self._refused("OffsetCommit", code, identity, now)

    # Manager interface

    def poll(self, now: float) -> DueRequests:
        if self.fatal is not None:
            return DueRequests()
        events = [*self._expire(now), *self._advance(now)]
        requests = (
            self._leave_request(now),
            self._join_request(now),
            self._sync_request(now),
            self._heartbeat_request(now),
        )
        return DueRequests(tuple(each for each in requests if each), self._wake_at(now), tuple(events))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if self._in_flight.get(request.api) is not request:
            return []
        del self._in_flight[request.api]
        if isinstance(outcome, RequestFailure):
            return self._failed(request, outcome, now)
        if request.api == "LeaveGroup":
            return []
        response: Any = outcome
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.identity = self.identity._replace(member_id=response.member_id)
            self._rejoin = "the member id is known now"
            return []
        if code:
            return self._refused(request.api, code, request.context[1], now)
        return {
            "JoinGroup": self._on_join_response,
            "SyncGroup": self._on_sync_response,
            "Heartbeat": self._on_heartbeat_response,
        }[request.api](request, response, now)

    # Time

    def _expire(self, now: float) -> list[BackgroundEvent]:
        if now >= self._poll_deadline:
            return self._leave_after_poll_timeout(now)
        if now >= self._session_deadline and "JoinGroup" not in self._in_flight:
            self._coordinator.mark_unknown(now, "no heartbeat got a response within the session timeout")
            return self._start_over(now, "the session has expired: no heartbeat got a response", keep_id=True)
        return self._flow.expire(now)

    def _leave_after_poll_timeout(self, now: float) -> list[BackgroundEvent]:
        """Leave the group until the next poll, so that other members receive the idle partitions."""
        topics, reason = self._topics, "max.poll.interval.ms has passed without a poll"
        lost = self._flow.lose_everything(now, reason)
        self.leave(now, reason)
        self._topics, self._rejoin = topics, reason
        self._poll_deadline = math.inf
        return lost

    def _wake_at(self, now: float) -> float:
        times = [self._poll_deadline, self._session_deadline, self._flow.deadline, self._settle_by]
        if "Heartbeat" not in self._in_flight and "JoinGroup" not in self._in_flight:
            times.append(self._next_heartbeat)
        if self._rejoin is not None and self._backoff.ready_at > now:
            times.append(self._backoff.ready_at)
        return min((each for each in times if each > now), default=math.inf)

    # Progress

    def _advance(self, now: float) -> list[BackgroundEvent]:
        if self._leader.needs_new_assignment():
            self._rejoin = self._rejoin or "the partitions of a topic have changed"
        if self._flow.state is State.UNJOINED:
            if self._may_join() and self._rejoin is not None:
                self._flow.trace.to(State.PREPARING_REBALANCE, now, self._rejoin)
            return []
        if self._flow.state is State.STABLE and self._rejoin and self.protocol is RebalanceProtocol.EAGER:
            events = self._flow.begin_revocation(self._flow.owned, self.protocol, now, self._rejoin)
            return [*events, *self._give_up_released(now)]
        return self._give_up_released(now)

    def _may_join(self) -> bool:
        return bool(self._topics) and self.is_polled

    def _give_up_released(self, now: float) -> list[BackgroundEvent]:
        """Give up released partitions once their commits are complete."""
        if self._is_joining:
            return []
        complete = self._flow.check_revoked(now)
        partly = self.protocol is RebalanceProtocol.COOPERATIVE and self._flow.state is State.REVOKING_PARTITION
        if not complete and not (partly and self._flow.released):
            return []
        self._settle_by = min(self._settle_by, now + self._options.request_timeout_s)
        if now < self._settle_by and not self._is_settled(self._flow.released):
            return []
        self._settle_by = math.inf
        if self._flow.give_up_released() and self.protocol is RebalanceProtocol.COOPERATIVE:
            self._rejoin = "partitions were released"
        if not complete:
            return []
        if self.protocol is RebalanceProtocol.COOPERATIVE:
            return self._flow.begin_assignment(now, "what was to be revoked is released")
        self._flow.trace.to(State.PREPARING_REBALANCE, now, self._rejoin or "the group rebalances")
        return []

    @property
    def _is_joining(self) -> bool:
        return self._sync_due is not None or bool({"JoinGroup", "SyncGroup"} & self._in_flight.keys())

    # Requests

    def _request(self, api: str, message: Any, now: float, timeout_s: float | None = None) -> UnsentRequest | None:
        node_id = self._coordinator.find(now, api)
        if node_id is None:
            return None
        request = UnsentRequest(
            sender=self,
            api=api,
            message=message,
            versions=messages.VERSIONS[api],
            timeout_s=timeout_s or self._options.request_timeout_s,
            node_id=node_id,
            lane=Lane.JOINING if api in ("JoinGroup", "SyncGroup") else Lane.COORDINATOR,
            context=(now, self.identity),
        )
        self._in_flight[api] = request
        return request

    def _join_request(self, now: float) -> UnsentRequest | None:
        joins_from = {State.PREPARING_REBALANCE}
        if self.protocol is RebalanceProtocol.COOPERATIVE:
            joins_from |= {State.STABLE, State.REVOKING_PARTITION}
        busy = self._is_joining or self._leave_as
        if self._rejoin is None or busy or self._flow.state not in joins_from or not self._may_join():
            return None
        if not self._backoff.is_ready(now):
            return None
        facts = JoinFacts(
            self._topics,
            self._flow.owned - self._flow.released,
            self._assigned,
            self._assigned_generation,
            self._rejoin,
        )
        message = messages.join_group(self._options, self.identity, self._assignors, facts)
        timeout_s = max(self._options.request_timeout_s, self._options.max_poll_interval_s + JOIN_LAPSE_S)
        request = self._request("JoinGroup", message, now, timeout_s)
        if request is not None:
            self._rejoin = self._sync_due = None
        return request

    def _sync_request(self, now: float) -> UnsentRequest | None:
        if self._sync_due is None or self._coordinator.find(now, "SyncGroup") is None:
            return None
        assignments = self._leader.assign()
        if assignments is None:
            return None
        message = messages.sync_group(self._options.group, self.identity, self._sync_due, assignments)
        self._sync_due = None
        return self._request("SyncGroup", message, now)

    def _heartbeat_request(self, now: float) -> UnsentRequest | None:
        if now < self._next_heartbeat or {"Heartbeat", "JoinGroup"} & self._in_flight.keys():
            return None
        if self._flow.state is State.PREPARING_REBALANCE:
            return None
        return self._request("Heartbeat", messages.heartbeat(self._options.group, self.identity), now)

    def _leave_request(self, now: float) -> UnsentRequest | None:
        if self._leave_as is None:
            return None
        message = messages.leave_group(self._options.group, self._leave_as, self._leave_reason)
        request = self._request("LeaveGroup", message, now)
        if request is not None:
            self._leave_as = None
        return request

    # Responses

    def _on_join_response(self, _: UnsentRequest, response: Any, now: float) -> list[BackgroundEvent]:
        self._backoff.succeeded()
        self.identity = self.identity._replace(member_id=response.member_id, generation=response.generation_id)
        self._extend_session(now, now)
        self._leader.step_down()
        try:
            if response.leader == response.member_id:
                self._leader.become_leader(response)
        except MalformedMember as error:
            self._rejoin_later(now, "a member's subscription is malformed")
            return [BackgroundError(error=error)]
        except ConsumerError as error:
            return self._fail(error, now)
        if self._flow.state is State.PREPARING_REBALANCE:
            self._flow.trace.to(State.COMPLETING_REBALANCE, now, f"generation {response.generation_id}")
        self._sync_due = response.protocol_name
        return []

    def _on_sync_response(self, _: UnsentRequest, response: Any, now: float) -> list[BackgroundEvent]:
        self._extend_session(now, now)
        try:
            assigned = frozenset(read_assignment(bytes(response.assignment)).partitions)
        except MalformedAssignment as error:
            self._rejoin_later(now, "the assignment is malformed")
            return [BackgroundError(error=error)]
        target = frozenset(each for each in assigned if each.topic in self._topics)
        if target != assigned:
            self._rejoin = "the assignment is not of the subscription"
        self._assigned, self._assigned_generation = target, self.identity.generation
        self._flow.target = target
        revoked = self._flow.owned - target
        reason = f"generation {self.identity.generation} is synced"
        if self._flow.state is State.REVOKING_PARTITION or (revoked and self._flow.state is State.STABLE):
            return self._flow.begin_revocation(revoked, self.protocol, now, reason)
        return self._flow.begin_assignment(now, reason)

    def _on_heartbeat_response(self, request: UnsentRequest, _: Any, __: float) -> list[BackgroundEvent]:
        self._backoff.succeeded()
        self._extend_session(request.context[0], request.context[0])
        return []

    def _extend_session(self, sent_at: float, heartbeat_at: float) -> None:
        """Extend the session. At the coordinator it starts no earlier than the request was sent."""
        self._session_deadline = sent_at + self._options.session_timeout_s
        self._next_heartbeat = heartbeat_at + self._options.heartbeat_interval_s

    # Troubles

    def _failed(self, request: UnsentRequest, failure: RequestFailure, now: float) -> list[BackgroundEvent]:
        if not failure.is_retriable:
            return self._fail(ConsumerError(f"{request.api}: {failure.reason}"), now)
        self._coordinator.check(failure, now)
        self._retry_later(request.api, now, failure.kind.value)
        return []

    def _refused(self, api: str, code: ErrorCode, identity: MemberIdentity, now: float) -> list[BackgroundEvent]:
        self._coordinator.check(code, now)
        if api == "Heartbeat" and code in FORGOTTEN and (identity != self.identity or "JoinGroup" in self._in_flight):
            self._next_heartbeat = now + self._options.heartbeat_interval_s
            return []  # JoinGroup overtook it on its own connection; its response decides
        if code in FORGOTTEN:
            keep_id = code is ErrorCode.ILLEGAL_GENERATION
            return self._start_over(now, f"{api}: {code.name}", keep_id=keep_id)
        if api == "Heartbeat" and code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._extend_session(now, now)
            self._rejoin = self._rejoin or "the group rebalances"
            return []
        if code in RETRIABLE:
            self._retry_later(api, now, code.name)
            return []
        return self._fail(BrokerRefused(api, code, f"group {self._options.group_id}"), now)

    def _retry_later(self, api: str, now: float, reason: str) -> None:
        if api == "Heartbeat":
            self._next_heartbeat = now + self._options.retry_backoff_s
        elif api in ("JoinGroup", "SyncGroup"):
            if api == "JoinGroup":  # the session timeout did not apply while it was in flight
                self._session_deadline = now + self._options.session_timeout_s
            self._rejoin_later(now, f"{api}: {reason}")

    def _rejoin_later(self, now: float, reason: str) -> None:
        self._backoff.failed(now)
        self._rejoin = self._rejoin or reason
        self._sync_due = None
        if self._flow.state is State.COMPLETING_REBALANCE:
            self._flow.trace.to(State.PREPARING_REBALANCE, now, reason)

    def _start_over(self, now: float, reason: str, *, keep_id: bool) -> list[BackgroundEvent]:
        member_id = self.identity.member_id if keep_id else messages.NO_MEMBER
        self._forget()
        self.identity = self.identity._replace(member_id=member_id)
        self._rejoin = reason
        return self._flow.lose_everything(now, reason)

    def _fail(self, error: ConsumerError, now: float) -> list[BackgroundEvent]:
        self.fatal = error
        self._forget()
        return [BackgroundError(error=error), *self._flow.lose_everything(now, str(error))]

    def _forget(self) -> None:
        self.identity = MemberIdentity(instance_id=self.identity.instance_id)
        self._in_flight.clear()
        self._leader.step_down()
        self._sync_due = None
        self._next_heartbeat = self._session_deadline = self._settle_by = math.inf

    @property
    def holds(self) -> Partitions:
        """Partitions of this member, including released ones that are not given up yet."""
        return self._flow.owned if self.identity.generation != NO_GENERATION else NOTHING
