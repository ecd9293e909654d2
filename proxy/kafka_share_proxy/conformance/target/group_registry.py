"""All groups of a cluster, with their committed offsets. A group id has one type."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.committed_offsets import GroupOffsets
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind, Coordinators
from kafka_share_proxy.wire.errors import ErrorCode

AnyGroup = ClassicGroup | ConsumerGroup
GROUPS_MAX = 100_000
"""Maximum number of groups of a cluster. A further one gets GROUP_MAX_SIZE_REACHED."""


class GroupRegistry:
    """Classic and KIP-848 groups by id. Share groups are in `share_state`."""

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators
        self._groups: dict[str, AnyGroup] = {}
        self._nodes: dict[str, int] = {}
        """Coordinator of each group after the last move."""
        self._offsets: dict[str, GroupOffsets] = {}

    def get(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    def all(self) -> Iterable[AnyGroup]:
        return list(self._groups.values())

    @property
    def is_full(self) -> bool:
        return len(self._groups) >= GROUPS_MAX

    def put(self, group: AnyGroup) -> None:
        """Add a group, or replace the empty one of another type. Its committed offsets remain."""
        old = self._groups.get(group.group_id)
        if old is not None:
            old.close()
        self._groups[group.group_id] = group
        self._nodes[group.group_id] = self._coordinators.node_of(CoordinatorKind.GROUP, group.group_id)

    def delete(self, group_id: str) -> None:
        """Delete a group with its offsets."""
        self._groups.pop(group_id).close()
        del self._nodes[group_id]
        self._offsets.pop(group_id, None)

    def offsets(self, group_id: str) -> GroupOffsets:
        """Return the offsets of a group, which need not exist."""
        return self._offsets.setdefault(group_id, GroupOffsets())

    def offsets_or_none(self, group_id: str) -> GroupOffsets | None:
        return self._offsets.get(group_id)

    def follow_coordinators(self) -> None:
        """End the waiting requests of groups whose coordinator has moved."""
        for group in self._groups.values():
            node_id = self._coordinators.node_of(CoordinatorKind.GROUP, group.group_id)
            known, self._nodes[group.group_id] = self._nodes[group.group_id], node_id
            if known != node_id and isinstance(group, ClassicGroup):
                group.lose_requests(ErrorCode.NOT_COORDINATOR)

    def delete_topic(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        for offsets in self._offsets.values():
            offsets.delete_topic(topic)

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Commit or drop the offsets of a transaction in all groups."""
        for offsets in self._offsets.values():
            offsets.end_transaction(producer_id, commits=commits)
