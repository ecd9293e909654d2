"""Checks of a request for one group at one node."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup, GroupRefusal
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.group_migration import downgrade, upgrade
from kafka_share_proxy.conformance.target.group_registry import AnyGroup
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE


def coordinator_error(
    cluster: TargetCluster, node_id: int, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP
) -> ErrorCode:
    """Return the error if a node does not coordinate a group or transactional id."""
    coordinator = cluster.coordinators.node_of(kind, key)
    if coordinator == UNKNOWN_NODE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE if coordinator == node_id else ErrorCode.NOT_COORDINATOR


def group_error(cluster: TargetCluster, node_id: int, group_id: str) -> ErrorCode:
    """Return the error of a request that names no group, or a group of another coordinator."""
    return coordinator_error(cluster, node_id, group_id) if group_id else ErrorCode.INVALID_GROUP_ID


def is_share_group(cluster: TargetCluster, group_id: str) -> bool:
    return cluster.share.coordinator.group(group_id) is not None


def known_group(cluster: TargetCluster, group_id: str) -> AnyGroup:
    """Return a classic or KIP-848 group. Raises GroupRefusal."""
    group = cluster.groups.get(group_id)
    if group is None:
        kind = "is not a consumer group." if is_share_group(cluster, group_id) else "not found."
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}")
    return group


def classic_group_to_join(cluster: TargetCluster, group_id: str) -> ClassicGroup | ErrorCode:
    """Return a classic group, created if there is none. An empty KIP-848 group becomes classic (KIP-848)."""
    group = cluster.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return group
    if is_share_group(cluster, group_id):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return new_classic_group(cluster, group_id)


def new_classic_group(cluster: TargetCluster, group_id: str) -> ClassicGroup | ErrorCode:
    if cluster.groups.is_full:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    group = ClassicGroup(group_id, cluster.clock, cluster.timers, cluster.seeded, cluster.settings)
    cluster.groups.put(group)
    return group


def consumer_group_to_join(cluster: TargetCluster, group_id: str) -> ConsumerGroup:
    """Return a KIP-848 group, created if there is none. A classic group becomes one with its members (KIP-848).

    The caller adds it to the registry if its member is accepted, otherwise closes it. Raises GroupRefusal.
    """
    group = cluster.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if is_share_group(cluster, group_id):
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if group is None and cluster.groups.is_full:
        raise GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, "The cluster has its maximum number of groups.")
    timeout_ms = int(cluster.group_configs.value(group_id, "consumer.session.timeout.ms"))
    created = ConsumerGroup(
        group_id,
        cluster.topics,
        cluster.clock,
        cluster.timers,
        session_timeout_ms=timeout_ms,
        assignment_interval_ms=cluster.settings.consumer_assignment_interval_ms,
        downgrade=lambda old, rebalances: _downgrade(cluster, old, rebalances=rebalances),
    )
    if group is not None and group.members:
        upgrade(group, created, cluster.settings.group_size_max)
    return created


def _downgrade(cluster: TargetCluster, old: ConsumerGroup, *, rebalances: bool) -> None:
    created = ClassicGroup(old.group_id, cluster.clock, cluster.timers, cluster.seeded, cluster.settings)
    downgrade(old, created, rebalances=rebalances)
    cluster.groups.put(created)


def check_size(cluster: TargetCluster, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Refuse a new member of a full group. Raises GroupRefusal."""
    limit = cluster.settings.group_size_max
    is_known = member_id in group.members or group.static_member(instance_id) is not None
    if not is_known and len(group.members) >= limit:
        text = f"The consumer group has reached its maximum capacity of {limit} members."
        raise GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
