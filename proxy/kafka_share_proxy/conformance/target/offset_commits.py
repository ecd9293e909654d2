"""Checks of clients that commit offsets (OffsetMetadataManager of Kafka 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.committed_offsets import GroupOffsets
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup, GroupRefusal
from kafka_share_proxy.conformance.target.consumer_members import ConsumerMember
from kafka_share_proxy.conformance.target.group_access import is_share_group, new_classic_group
from kafka_share_proxy.conformance.target.group_registry import AnyGroup
from kafka_share_proxy.conformance.target.individual_commits import RequestedOffset, with_ranges
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition, TopicPartition

NOT_FOUND_SINCE = 9
"""Version of OffsetCommit that knows GROUP_ID_NOT_FOUND and members of KIP-848 groups."""


@dataclass(frozen=True)
class Committer:
    """A client that may commit."""

    offsets: GroupOffsets
    metadata_max_bytes: int
    producer_id: int | None = None
    """Producer of a transaction, None outside of one."""
    late_member: ConsumerMember | None = None
    """Member whose epoch is older: it may commit what it was assigned up to that epoch (KIP-1251)."""
    epoch: int = -1

    def commit(self, partition: TopicPartition, assigned: TopicIdPartition, requested: RequestedOffset) -> ErrorCode:
        """Commit one offset, or hold it until the transaction ends."""
        if len(with_ranges(requested.committed).metadata) > self.metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if self.late_member is not None:
            since = self.late_member.assigned.get(assigned, self.late_member.revoking.get(assigned))
            if since is None or self.epoch < since:
                return stale_error(self.late_member)
        if self.offsets.is_full(partition):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        if self.producer_id is not None:
            return self.offsets.add_pending(self.producer_id, partition, requested, self.metadata_max_bytes)
        return self.offsets.commit(partition, requested)


def check_committer(
    cluster: TargetCluster,
    group_id: str,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    version: int,
    producer_id: int | None = None,
) -> Committer:
    """Return the client that may commit. `epoch`: generation or member epoch. Raises GroupRefusal."""
    group = _group(cluster, group_id, epoch, old_error=version < NOT_FOUND_SINCE)
    offsets, limit = cluster.groups.offsets(group_id), cluster.settings.offset_metadata_max_bytes
    in_transaction = producer_id is not None
    if isinstance(group, ClassicGroup):
        error = group.commit_error(member_id, instance_id, epoch, in_transaction=in_transaction)
        if error != ErrorCode.NONE:
            raise GroupRefusal(error, f"group {group_id}, member {member_id!r}, generation {epoch}")
        return Committer(offsets, limit, producer_id)
    is_outside = epoch < 0 and (not group.members or (in_transaction and not member_id and instance_id is None))
    if is_outside:
        return Committer(offsets, limit, producer_id)
    return _of_member(group, member_id, epoch, version, Committer(offsets, limit, producer_id))


def stale_error(member: ConsumerMember) -> ErrorCode:
    """Return the error of a wrong epoch, which is the generation of a classic member."""
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _group(cluster: TargetCluster, group_id: str, epoch: int, *, old_error: bool) -> AnyGroup:
    group = cluster.groups.get(group_id)
    if group is not None:
        return group
    if is_share_group(cluster, group_id):
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is a share group.")
    if epoch >= 0:
        code = ErrorCode.ILLEGAL_GENERATION if old_error else ErrorCode.GROUP_ID_NOT_FOUND
        raise GroupRefusal(code, f"Group {group_id} not found.")
    created = new_classic_group(cluster, group_id)
    if isinstance(created, ErrorCode):
        raise GroupRefusal(created, "The cluster has its maximum number of groups.")
    return created


def _of_member(group: ConsumerGroup, member_id: str, epoch: int, version: int, committer: Committer) -> Committer:
    member = group.members.get(member_id)
    if member is None:
        raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of {group.group_id}.")
    if committer.producer_id is None and member.classic is None and version < NOT_FOUND_SINCE:
        raise GroupRefusal(ErrorCode.UNSUPPORTED_VERSION, "OffsetCommit version 9 or above must be used by members")
    if epoch == member.epoch:
        return committer
    if epoch > member.epoch:
        raise GroupRefusal(stale_error(member), f"The member epoch is {member.epoch}, not {epoch}.")
    return Committer(committer.offsets, committer.metadata_max_bytes, committer.producer_id, member, epoch)
