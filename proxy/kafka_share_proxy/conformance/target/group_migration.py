"""Classic groups that become KIP-848 groups and the other way round, with their members.

As `group.consumer.migration.policy=bidirectional` of Kafka 4.3: ConsumerGroup.fromClassicGroup and
ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.classic_members import ClassicMember
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup, GroupRefusal
from kafka_share_proxy.conformance.target.consumer_members import ClassicProtocols, ConsumerMember
from kafka_share_proxy.conformance.target.consumer_protocol import (
    CONSUMER,
    existing_partitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from kafka_share_proxy.wire.errors import ErrorCode


def upgrade(old: ClassicGroup, new: ConsumerGroup, size_max: int) -> None:
    """Fill a new KIP-848 group with the members of a classic group. Raises GroupRefusal.

    The first heartbeat of a consumer then begins the next group epoch. Requests that wait get REBALANCE_IN_PROGRESS,
    also if the group stays classic.
    """
    if old.protocol_type != CONSUMER:
        raise _cannot_upgrade(old, "the group does not use the consumer embedded protocol.")
    if len(old.members) > size_max:
        raise _cannot_upgrade(old, "the group size exceeds the consumer group maximum size.")
    old.end_requests(ErrorCode.REBALANCE_IN_PROGRESS)
    new.take_over([_consumer_member(old, new, member) for member in old.members.values()], old.generation)


def _consumer_member(old: ClassicGroup, new: ConsumerGroup, member: ClassicMember) -> ConsumerMember:
    subscription = read_subscription(member.metadata(old.protocol))
    assignment = read_assignment(member.assignment) if member.assignment else None
    if subscription is None or (member.assignment and assignment is None):
        raise _cannot_upgrade(old, "the embedded consumer protocol is malformed.")
    if assignment is not None and assignment.user_data:
        raise _cannot_upgrade(old, "an unsupported custom assignor is in use.")
    partitions = existing_partitions(assignment.assigned_partitions, new.topics) if assignment is not None else ()
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        epoch=old.generation,
        previous_epoch=old.generation,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        assigned=dict.fromkeys(partitions, old.generation),
        classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
    )


def _cannot_upgrade(group: ClassicGroup, reason: str) -> GroupRefusal:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    return GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, text)


def downgrade(old: ConsumerGroup, new: ClassicGroup, *, rebalances: bool) -> None:
    """Fill a new classic group with the members of a KIP-848 group, which are all classic, and their targets."""
    members = {
        member.member_id: ClassicMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.classic.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocols=member.classic.protocols,
            is_new=False,
        )
        for member in old.members.values()
        if member.classic is not None
    }
    new.take_over(members.values(), old.epoch)
    for member in members.values():
        target = old.target.get(member.member_id, set())
        member.assignment = write_assignment(target, old.topics, member.metadata(new.protocol))
    if rebalances:
        new.members_left()
