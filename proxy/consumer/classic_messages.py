"""Requests of a member of a classic group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from proxy.consumer.assignors.interface import Assignor
from proxy.consumer.group_protocol import NO_GENERATION, PROTOCOL_TYPE, GroupSubscription, write_subscription
from proxy.consumer.options import ConsumerOptions
from proxy.consumer.partitions import Partitions
from proxy.wire import messages

VERSIONS = {"JoinGroup": (5, 9), "SyncGroup": (3, 5), "Heartbeat": (3, 4), "LeaveGroup": (3, 5)}
"""Group instance ids are in all of them."""
NO_MEMBER = ""


class MemberIdentity(NamedTuple):
    """Who a member is, as its requests say it."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    """Or member epoch (KIP-848)."""
    instance_id: str | None = None


class JoinFacts(NamedTuple):
    """What a joining member says of itself besides its identity."""

    topics: frozenset[str]
    owned: Partitions
    """Of a cooperative member; an eager one has given everything up."""
    assigned: Partitions | None
    """The last assignment, None before the first."""
    assigned_generation: int
    reason: str


def join_group(options: ConsumerOptions, who: MemberIdentity, assignors: Sequence[Assignor], facts: JoinFacts) -> Any:
    """JoinGroup with the subscription in the words of each assignor."""
    message = messages.JoinGroupRequest
    protocols = [
        message.JoinGroupRequestProtocol(name=each.name, metadata=_subscription(options, who, each, facts))
        for each in assignors
    ]
    return message(
        group_id=options.group,
        session_timeout_ms=round(options.session_timeout_s * 1000),
        rebalance_timeout_ms=round(options.max_poll_interval_s * 1000),
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=facts.reason,
    )


def _subscription(options: ConsumerOptions, who: MemberIdentity, assignor: Assignor, facts: JoinFacts) -> bytes:
    subscription = GroupSubscription(
        topics=tuple(facts.topics),
        user_data=assignor.user_data(facts.assigned, facts.assigned_generation),
        owned=tuple(facts.owned),
        generation=who.generation,
        rack=options.rack,
    )
    return write_subscription(subscription)


def sync_group(
    group_id: str, who: MemberIdentity, protocol_name: str | None, assignments: Iterable[tuple[str, bytes]]
) -> Any:
    """SyncGroup; only the leader has assignments."""
    message = messages.SyncGroupRequest
    listed = [message.SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in assignments]
    return message(
        group_id=group_id,
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=listed,
    )


def heartbeat(group_id: str, who: MemberIdentity) -> Any:
    """A HeartbeatRequest of this member."""
    return messages.HeartbeatRequest(
        group_id=group_id,
        generation_id=who.generation,
        member_id=who.member_id,
        group_instance_id=who.instance_id,
    )


def leave_group(group_id: str, who: MemberIdentity, reason: str) -> Any:
    """LeaveGroup of a dynamic member."""
    message = messages.LeaveGroupRequest
    member = message.MemberIdentity(member_id=who.member_id, group_instance_id=who.instance_id, reason=reason)
    return message(group_id=group_id, members=[member])
