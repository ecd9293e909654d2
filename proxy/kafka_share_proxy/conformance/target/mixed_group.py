"""Classic members of a KIP-848 group: generations are member epochs (GroupMetadataManager of Kafka 4.3)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.conformance.target.classic_members import ClassicJoin, JoinReply, SyncReply
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup, GroupRefusal
from kafka_share_proxy.conformance.target.consumer_members import (
    UNOWNED,
    ClassicProtocols,
    ConsumerMember,
    Reconciliation,
)
from kafka_share_proxy.conformance.target.consumer_protocol import (
    CONSUMER,
    existing_partitions,
    read_subscription,
    write_assignment,
)
from kafka_share_proxy.wire.definitions.messages import ConsumerProtocolSubscription
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition


def join(group: ConsumerGroup, request: ClassicJoin, member_id: str) -> JoinReply:
    """Add or update a member without waiting for others. `member_id`: for one without id. Raises GroupRefusal."""
    if not _supports(group, request):
        text = f"Member {member_id}'s protocols are not supported."
        raise GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
    if not request.member_id and request.instance_id is None and request.needs_member_id:
        return JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    known = _known(group, request)
    subscription = read_subscription(request.protocols[0][1])
    if subscription is None:
        # 4.3 throws an IllegalStateException; later releases return INCONSISTENT_GROUP_PROTOCOL.
        raise GroupRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, "The embedded consumer protocol is malformed.")
    replaced = None if request.instance_id is None else known
    is_downgrade = replaced is not None and replaced.classic is None and _are_classic(group, replaced)
    if known is not None and request.instance_id is not None and not request.member_id:
        group.rename(known, member_id)
    member = known or ConsumerMember(member_id)
    is_changed = _update(member, request, subscription)
    group.put(member)
    owned = existing_partitions(subscription.owned_partitions, group.topics)
    if is_downgrade:
        _downgrade(group, member, owned, is_changed=is_changed)
    else:
        group.refresh(bump=is_changed)
        group.reconcile(member, owned, is_changed=is_changed)
        _start_timers(group, member, request.rebalance_timeout_ms)
    return JoinReply(
        generation=member.epoch,
        protocol_type=CONSUMER,
        protocol=request.protocols[0][0],
        member_id=member.member_id,
    )


def _supports(group: ConsumerGroup, request: ClassicJoin) -> bool:
    """Return True if the classic members of the group support one of the protocols."""
    classic = [{name for name, _ in each.classic.protocols} for each in group.members.values() if each.classic]
    is_common = any(all(name in names for names in classic) for name, _ in request.protocols)
    return request.protocol_type == CONSUMER and is_common


def _known(group: ConsumerGroup, request: ClassicJoin) -> ConsumerMember | None:
    if request.instance_id is None:
        return group.members.get(request.member_id)
    if request.member_id:
        return group.known(request.member_id, request.instance_id)
    return group.static_member(request.instance_id)


def _are_classic(group: ConsumerGroup, without: ConsumerMember) -> bool:
    return all(each.classic is not None for each in group.members.values() if each is not without)


def _update(member: ConsumerMember, request: ClassicJoin, subscription: ConsumerProtocolSubscription) -> bool:
    """Return True if the subscription has changed."""
    before = (member.topics, member.regex)
    member.client_id, member.client_host = request.client_id, request.client_host
    member.instance_id = request.instance_id or member.instance_id
    member.rack_id = subscription.rack_id or member.rack_id
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.topics, member.regex = frozenset(subscription.topics), ""
    member.classic = ClassicProtocols(request.session_timeout_ms, request.protocols)
    return before != (member.topics, member.regex)


def _downgrade(group: ConsumerGroup, member: ConsumerMember, owned: set[TopicIdPartition], *, is_changed: bool) -> None:
    """Make the group classic: its last KIP-848 member is static and has come back as a classic one."""
    group.begin_epoch(bump=is_changed)
    rebalances = group.assignment_epoch < group.epoch
    if not rebalances:
        group.reconcile(member, owned, is_changed=is_changed)
    group.downgrade(group, rebalances)


def _start_timers(group: ConsumerGroup, member: ConsumerMember, rebalance_timeout_ms: int) -> None:
    member.cancel_timers()
    group.start_timers(member)
    member.syncing = group.fence_in(member, rebalance_timeout_ms)


def sync(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    protocol: tuple[str | None, str | None],
) -> SyncReply:
    """Return the assignment of a member. `protocol`: (type, name) of the request. Raises GroupRefusal."""
    member, classic = _member(group, member_id, instance_id, generation)
    if protocol[0] not in (None, CONSUMER) or protocol[1] not in (None, classic.preferred):
        raise GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id} uses {classic.preferred}.")
    if group.assignment_epoch > member.epoch and member.state is not Reconciliation.UNREVOKED:
        _expect_join(group, member)
        raise GroupRefusal(ErrorCode.REBALANCE_IN_PROGRESS, f"Member {member_id} must join again.")
    if member.syncing is not None:
        member.syncing.cancel()
        member.syncing = None
    group.start_timers(member)
    assignment = write_assignment(member.assigned, group.topics, classic.metadata)
    return SyncReply(protocol_type=protocol[0], protocol=protocol[1], assignment=assignment)


def heartbeat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Extend the session of a member, which may have to join again. Raises GroupRefusal."""
    member, _ = _member(group, member_id, instance_id, generation)
    group.start_timers(member)
    must_join = (
        member.epoch < group.assignment_epoch
        or member.state is Reconciliation.UNREVOKED
        or (member.state is Reconciliation.UNRELEASED and not _waits_for_partitions(group, member))
    )
    if not must_join:
        return ErrorCode.NONE
    _expect_join(group, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _waits_for_partitions(group: ConsumerGroup, member: ConsumerMember) -> bool:
    missing = group.target[member.member_id] - member.assigned.keys()
    return any(group.owner_epoch(each) != UNOWNED for each in missing)


def _expect_join(group: ConsumerGroup, member: ConsumerMember) -> None:
    if member.joining is None:
        member.joining = group.fence_in(member, member.rebalance_timeout_ms)


def leave(group: ConsumerGroup, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
    """Remove members of any protocol. Returns the error of each (member id, instance id)."""
    errors: list[ErrorCode] = []
    leaving: dict[str, ConsumerMember] = {}
    for member_id, instance_id in members:
        try:
            static = group.static_member(instance_id) if instance_id is not None and not member_id else None
            member = static or group.known(member_id, instance_id)
        except GroupRefusal as refused:
            errors.append(refused.error)
        else:
            errors.append(ErrorCode.NONE)
            leaving[member.member_id] = member
    if leaving:
        group.remove(leaving.values())
    return errors


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicProtocols]:
    member = group.known(member_id, instance_id)
    if member.classic is None:
        raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.epoch:
        text = f"The generation {generation} is not the member epoch {member.epoch} of member {member_id}."
        raise GroupRefusal(ErrorCode.ILLEGAL_GENERATION, text)
    return member, member.classic
