"""Members of a KIP-848 group, and the reconciliation of one with its target (CurrentAssignmentBuilder of Kafka 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum

from kafka_share_proxy.conformance.target.timers import ClusterTimer
from kafka_share_proxy.wire.values import TopicIdPartition

UNOWNED = -1
"""Epoch of a partition that no member has."""


class Reconciliation(Enum):
    """States of a member."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"


@dataclass(frozen=True)
class ClassicProtocols:
    """JoinGroup data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), the preferred first."""

    @property
    def preferred(self) -> str:
        return self.protocols[0][0]

    @property
    def metadata(self) -> bytes:
        return self.protocols[0][1]


@dataclass(eq=False)
class ConsumerMember:
    """One member."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    epoch: int = 0
    previous_epoch: int = 0
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    state: Reconciliation = Reconciliation.STABLE
    assigned: dict[TopicIdPartition, int] = field(default_factory=dict)
    """Epoch in which each partition was assigned."""
    revoking: dict[TopicIdPartition, int] = field(default_factory=dict)
    """Partitions that the member must still revoke."""
    classic: ClassicProtocols | None = None
    """None for a member that uses the KIP-848 protocol."""
    session: ClusterTimer | None = field(default=None, repr=False)
    revocation: ClusterTimer | None = field(default=None, repr=False)
    joining: ClusterTimer | None = field(default=None, repr=False)
    """Deadline of the next JoinGroup of a classic member that must join again."""
    syncing: ClusterTimer | None = field(default=None, repr=False)
    """Deadline of the SyncGroup of a classic member that has joined."""

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch

    def cancel_timers(self) -> None:
        for timer in (self.session, self.revocation, self.joining, self.syncing):
            if timer is not None:
                timer.cancel()
        self.session = self.revocation = self.joining = self.syncing = None


@dataclass(frozen=True)
class MemberTarget:
    """Target assignment of a member."""

    epoch: int
    partitions: Set[TopicIdPartition]
    topic_ids: Set[bytes]
    """Topics that the member subscribes to."""


def reconcile(
    member: ConsumerMember,
    target: MemberTarget,
    owned: Set[TopicIdPartition] | None,
    owner_epoch: Callable[[TopicIdPartition], int],
    *,
    is_changed: bool,
) -> None:
    """Move a member towards its target.

    Args:
        member: changed in place.
        target: its target assignment.
        owned: partitions that it says it owns; None if the request does not say.
        owner_epoch: epoch in which a partition was given to a member, UNOWNED if it is free.
        is_changed: True if the subscription has just changed.
    """
    if member.state is Reconciliation.STABLE and member.epoch == target.epoch:
        if is_changed:
            _drop_unsubscribed(member, target, owned)
        return
    if member.state is Reconciliation.UNREVOKED and _owns(owned, member.revoking):
        if is_changed:
            _drop_unsubscribed(member, target, owned)
        return
    _compute_next(member, target, owned, owner_epoch)


def _owns(owned: Set[TopicIdPartition] | None, partitions: Mapping[TopicIdPartition, int]) -> bool:
    return owned is None or any(each in partitions for each in owned)


def _drop_unsubscribed(member: ConsumerMember, target: MemberTarget, owned: Set[TopicIdPartition] | None) -> None:
    dropped = {each: epoch for each, epoch in member.assigned.items() if each.topic_id not in target.topic_ids}
    if not dropped:
        return
    for partition in dropped:
        del member.assigned[partition]
    revoking = {**member.revoking, **dropped}
    if _owns(owned, revoking):
        member.state, member.revoking = Reconciliation.UNREVOKED, revoking


def _compute_next(
    member: ConsumerMember,
    target: MemberTarget,
    owned: Set[TopicIdPartition] | None,
    owner_epoch: Callable[[TopicIdPartition], int],
) -> None:
    goal = {each for each in target.partitions if each.topic_id in target.topic_ids}
    retained_epochs = {each: epoch for each, epoch in member.assigned.items() if each in goal}
    revoking = {each: epoch for each, epoch in member.assigned.items() if each not in goal}
    missing = goal - retained_epochs.keys()
    free = {each for each in missing if owner_epoch(each) == UNOWNED or each in member.revoking}
    if revoking and _owns(owned, revoking):
        member.state, member.assigned, member.revoking = Reconciliation.UNREVOKED, retained_epochs, revoking
        return
    member.assigned = {**retained_epochs, **dict.fromkeys(free, target.epoch)}
    member.revoking = {}
    member.state = Reconciliation.STABLE if free == missing else Reconciliation.UNRELEASED
    member.set_epoch(target.epoch)
