"""Requests of a member of a classic group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.assignors.interface import Assignor
from kafka_share_proxy.consumer.groups.group_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    GroupSubscription,
    write_subscription,
)
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.definitions import messages

VERSIONS = {"JoinGroup": (5, 9), "SyncGroup": (3, 5), "Heartbeat": (3, 4), "LeaveGroup": (3, 5)}
"""All of them have group instance ids."""
NO_MEMBER = ""


class MemberIdentity(NamedTuple):
    """Identity of a member, as sent in its requests."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    """Generation, or member epoch (KIP-848)."""
    instance_id: str | None = None


class JoinFacts(NamedTuple):
    """JoinGroup request without the identity."""

    topics: frozenset[str]
    owned: Partitions
    """Empty for an eager member, which gave up all before it joins."""
    assigned: Partitions | None
    assigned_generation: int
    reason: str


def join_group(
    options: ConsumerOptions, identity: MemberIdentity, assignors: Sequence[Assignor], facts: JoinFacts
) -> Any:
    message = messages.JoinGroupRequest
    protocols = [
        message.JoinGroupRequestProtocol(name=each.name, metadata=_subscription(options, identity, each, facts))
        for each in assignors
    ]
    return message(
        group_id=options.group,
        session_timeout_ms=round(options.session_timeout_s * 1000),
        rebalance_timeout_ms=round(options.max_poll_interval_s * 1000),
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=facts.reason,
    )


def _subscription(options: ConsumerOptions, identity: MemberIdentity, assignor: Assignor, facts: JoinFacts) -> bytes:
    subscription = GroupSubscription(
        topics=tuple(facts.topics),
        user_data=assignor.user_data(facts.assigned, facts.assigned_generation),
        owned=tuple(facts.owned),
        generation=identity.generation,
        rack=options.rack,
    )
    return write_subscription(subscription)


def sync_group(
    group_id: str, identity: MemberIdentity, protocol_name: str | None, assignments: Iterable[tuple[str, bytes]]
) -> Any:
    """Build SyncGroup. Only the leader has assignments."""
    message = messages.SyncGroupRequest
    listed = [message.SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in assignments]
    return message(
        group_id=group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=listed,
    )


def heartbeat(group_id: str, identity: MemberIdentity) -> Any:
    return messages.HeartbeatRequest(
        group_id=group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
    )


def leave_group(group_id: str, identity: MemberIdentity, reason: str) -> Any:
    message = messages.LeaveGroupRequest
    member = message.MemberIdentity(member_id=identity.member_id, group_instance_id=identity.instance_id, reason=reason)
    return message(group_id=group_id, members=[member])
