"""One share group: its members, their epochs and their assignment (KIP-932; Kafka's GroupMetadataManager, 4.3).

How it works: a heartbeat that finds the assignment older than the group epoch computes a new one, at most every
`assignment_interval_s`. Epochs: sharegroups/README.md rules 6-8. Differences from Kafka 4.3: sharegroups/README.md
rules 61, 62.

Heartbeats are checked in this order (KafkaApis and GroupCoordinatorService): `share_requests.member_id_mistake`, the
caller's check of rights, `request_mistake`, `unknown_group` if the group is not known, `ShareGroup.heartbeat`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.sharegroups.model.assignor import Assignment, Partition, assign, by_topic
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits, GroupSettings
from kafka_share_proxy.wire.errors import ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
ASSIGNOR_NAME = "simple"
GROUP_TYPE = "share"

AT_ONCE_MAX = 300
"""Maximum number of members plus partitions for an immediate assignment at a join: about a millisecond of work."""

EMPTY = "Empty"
STABLE = "Stable"
DEAD = "Dead"

_NOTHING: Assignment = {}
_NO_MEMBER: dict[str, Assignment] = {}
"""Target shared by all groups without an assignment, of which there may be many. Never changed."""

Holds = Callable[[str, str, bytes, int], bool]
"""Return True if (group id, member id) holds records of (topic id, partition)."""


class TopicInfo(NamedTuple):
    """Topic id and number of partitions of a subscribed topic."""

    topic_id: bytes
    partitions: int


class Heartbeat(NamedTuple):
    """ShareGroupHeartbeat request with its client."""

    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    """Subscribed topic names. None: unchanged."""
    client_id: str = ""
    client_host: str = ""


class HeartbeatReply(NamedTuple):
    """Contents of a ShareGroupHeartbeat response."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_epoch: int = 0
    heartbeat_interval_s: float = 0.0
    assignment: Assignment | None = None
    """The member's whole assignment. None if it has not changed since it was last sent."""


class MemberDescription(NamedTuple):
    """A member as ShareGroupDescribe returns it."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: Assignment


class GroupDescription(NamedTuple):
    """A group as ShareGroupDescribe returns it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[MemberDescription, ...]


@dataclass(slots=True)
class Member:
    """One member, until it leaves or its session expires."""

    member_id: str
    rack_id: str | None = None
    topics: frozenset[str] = frozenset()
    client_id: str = ""
    client_host: str = ""
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = field(default_factory=dict)
    withdrawn: dict[Partition, float] = field(default_factory=dict)
    """Partitions assigned to others by the target, with the time until which this member acquires nothing from them."""
    deadline: float = math.inf
    """Time at which the member's session expires without a heartbeat."""


def request_mistake(group_id: str, beat: Heartbeat) -> str | None:
    """Return the error text (INVALID_REQUEST) for an invalid heartbeat, or None. Called after the check of rights."""
    if not group_id:
        return "GroupId can't be empty."
    if beat.rack_id == "":
        return "RackId can't be empty."
    if beat.member_epoch < LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    if beat.member_epoch == JOIN_EPOCH and not beat.topics:
        return "SubscribedTopicNames must be set in first request."
    return None


def unknown_group(group_id: str, beat: Heartbeat, *, lost_state_possible: bool) -> HeartbeatReply:
    """Return the response to a heartbeat that does not join, for a group that is not held here (sharegroups/README.md
    rule 10).
    """
    if lost_state_possible and beat.member_epoch > JOIN_EPOCH:
        return _refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member_id} is not a member of group {group_id}.")
    return _refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def _refusal(error: ErrorCode, message: str) -> HeartbeatReply:
    return HeartbeatReply(error=error, message=message)


def _no_member(group_id: str, deadline: float) -> None:
    """Default for `ends_at`: the caller polls `next_deadline`."""


class ShareGroup:
    """Members, epochs and assignment of one group. Epochs start at 1, so that the first join returns epoch 2."""

    __slots__ = (
        "_assigned_at", "_earliest_deadline", "_ends_at", "_shape", "_subscriptions", "_targets", "assignment_epoch",
        "dead", "deleting", "epoch", "group_id", "members", "stored_epoch",
    )  # fmt: skip

    def __init__(self, group_id: str, ends_at: Callable[[str, float], None] = _no_member) -> None:
        """`ends_at` is called with (group id, time when `expire` is due) whenever that time becomes earlier."""
        self.group_id = group_id
        self._ends_at = ends_at
        self.epoch = 1
        self.assignment_epoch = 0
        self.stored_epoch = 0
        """Stored group epoch. A later one is not sent to members before it is stored."""
        self.members: dict[str, Member] = {}
        self.dead = False
        self.deleting = False
        """True while the deletion is being stored: meanwhile no member joins, and no share partition starts."""
        self._targets: dict[str, Assignment] = _NO_MEMBER
        self._assigned_at = -math.inf
        self._shape: tuple[tuple[str, TopicInfo], ...] = ()
        self._subscriptions: dict[str, int] = {}
        self._earliest_deadline = math.inf

    @property
    def state(self) -> str:
        return DEAD if self.dead else STABLE if self.members else EMPTY

    def heartbeat(
        self,
        beat: Heartbeat,
        topics: Mapping[str, TopicInfo],
        settings: GroupSettings,
        limits: BrokerShareLimits,
        now: float,
        holds: Holds,
    ) -> HeartbeatReply:
        """Process a heartbeat: join, stay or leave. `topics`: the subscribed topics that exist."""
        if beat.member_epoch == LEAVE_EPOCH:
            return self._leave(beat.member_id, topics)
        refusal = self._refuse(beat, limits)
        if refusal is not None:
            return refusal
        member = self.members.get(beat.member_id) or Member(beat.member_id)
        self.members[beat.member_id] = member
        waits = self._subscribe(member, beat)
        changed = self._reshape(topics) or waits
        if changed:
            self.epoch += 1
        self._maybe_assign(topics, settings, now, waits)
        is_reassigned = self._reconcile(member, topics, changed, settings, now, holds)
        member.deadline = now + settings.session_timeout_s
        if member.deadline < self._earliest_deadline:
            self._earliest_deadline = member.deadline
            self._ends_at(self.group_id, member.deadline)
        is_full_heartbeat = beat.member_epoch == JOIN_EPOCH or beat.topics is not None
        return HeartbeatReply(
            member_epoch=member.epoch,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            assignment=member.assigned if is_full_heartbeat or is_reassigned else None,
        )

    def withdrawn_from(self, member_id: str, now: float) -> Collection[Partition]:
        """Return the partitions from which this member may no longer acquire, since they are assigned to others."""
        member = self.members.get(member_id)
        if member is None or not member.withdrawn:
            return ()
        return {partition for partition, until in member.withdrawn.items() if now < until}

    def subscribed_topics(self) -> set[str]:
        return set(self._subscriptions)

    def expire(self, now: float) -> tuple[str, ...]:
        """Remove members whose session expired by `now`. Return their ids. Their locks and share sessions continue."""
        if now < self._earliest_deadline:
            return ()
        expired = tuple(sorted(member.member_id for member in self.members.values() if member.deadline <= now))
        for member_id in expired:
            self._remove(member_id)
        self._earliest_deadline = min((member.deadline for member in self.members.values()), default=math.inf)
        return expired

    def next_deadline(self) -> float:
        """Return when to call `expire`. It may be too early, never too late."""
        return self._earliest_deadline

    def deletion_error(self) -> ErrorCode:
        """Return the error that forbids DeleteGroups. NONE if it is allowed."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def offsets_altered(self) -> None:
        """Advance the group epoch, which AlterShareGroupOffsets does by KIP-932."""
        self.epoch += 1

    def describe(self) -> GroupDescription:
        return GroupDescription(
            group_id=self.group_id,
            state=self.state,
            epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=ASSIGNOR_NAME,
            members=tuple(_described(self.members[member_id]) for member_id in sorted(self.members)),
        )

    def _refuse(self, beat: Heartbeat, limits: BrokerShareLimits) -> HeartbeatReply | None:
        member = self.members.get(beat.member_id)
        if member is None and len(self.members) >= limits.group_share_max_size:
            return _refusal(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limits.group_share_max_size} members.",
            )
        if beat.member_epoch == JOIN_EPOCH:
            return None
        if member is None:
            return self._not_a_member(beat.member_id)
        if beat.member_epoch not in (member.epoch, member.previous_epoch):
            return _refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The member's epoch {beat.member_epoch} is not the one known here ({member.epoch}, before that "
                f"{member.previous_epoch}); it must give up its partitions and join again.",
            )
        return None

    def _not_a_member(self, member_id: str) -> HeartbeatReply:
        return _refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")

    def _leave(self, member_id: str, topics: Mapping[str, TopicInfo]) -> HeartbeatReply:
        if member_id not in self.members:
            return self._not_a_member(member_id)
        self._remove(member_id)
        self._reshape(topics)
        return HeartbeatReply(member_epoch=LEAVE_EPOCH)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._targets.pop(member_id, None)
        self._count_topics(member.topics, -1)
        self.epoch += 1
        if not self.members:
            self._assigned_at = -math.inf  # as in a new group: the next join does not wait for the interval

    def _subscribe(self, member: Member, beat: Heartbeat) -> bool:
        """Update a member from its heartbeat. Return True if its subscription changed."""
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.topics is None or frozenset(beat.topics) == member.topics:
            return False
        topics_before, member.topics = member.topics, frozenset(beat.topics)
        self._count_topics(topics_before, -1)
        self._count_topics(member.topics, 1)
        return True

    def _count_topics(self, names: frozenset[str], change: int) -> None:
        for name in names:
            self._subscriptions[name] = self._subscriptions.get(name, 0) + change
            if not self._subscriptions[name]:
                del self._subscriptions[name]

    def _reshape(self, topics: Mapping[str, TopicInfo]) -> bool:
        """Update ids and sizes of the subscribed topics. Return True if they changed."""
        shape = tuple((name, topics[name]) for name in sorted(self._subscriptions) if name in topics)
        if shape == self._shape:
            return False
        self._shape = shape
        return True

    def _maybe_assign(
        self, topics: Mapping[str, TopicInfo], settings: GroupSettings, now: float, member_waits: bool
    ) -> None:
        if self.assignment_epoch >= self.epoch:
            return
        if now < self._assigned_at + settings.assignment_interval_s and not (member_waits and self._is_small()):
            return
        subscribed = {member_id: _topic_ids(member, topics) for member_id, member in self.members.items()}
        counts = {info.topic_id: info.partitions for _, info in self._shape}
        self._targets = assign(subscribed, counts, self._targets)
        self.assignment_epoch = self.epoch
        self._assigned_at = now

    def _is_small(self) -> bool:
        return len(self.members) + sum(info.partitions for _, info in self._shape) <= AT_ONCE_MAX

    def _reconcile(
        self,
        member: Member,
        topics: Mapping[str, TopicInfo],
        changed: bool,
        settings: GroupSettings,
        now: float,
        holds: Holds,
    ) -> bool:
        """Move a member to the target. Return True if its partitions differ from those last sent to it."""
        if member.epoch == self.assignment_epoch and not (changed or member.withdrawn):
            return False
        if member.epoch != self.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        subscribed = _topic_ids(member, topics)
        target = {
            topic_id: parts
            for topic_id, parts in self._targets.get(member.member_id, _NOTHING).items()
            if topic_id in subscribed
        }
        unsettled_partitions = self._withdraw(member, subscribed, target, settings, now, holds)
        assigned_before = member.assigned
        member.assigned = by_topic({*_partitions(target), *unsettled_partitions}) if unsettled_partitions else target
        return member.assigned != assigned_before

    def _withdraw(
        self,
        member: Member,
        subscribed: frozenset[bytes],
        target: Assignment,
        settings: GroupSettings,
        now: float,
        holds: Holds,
    ) -> list[Partition]:
        """Note the partitions that the member loses. Return those that it keeps until their records are settled."""
        target_partitions = set(_partitions(target))
        lost_partitions = [
            partition
            for partition in _partitions(member.assigned)
            if partition not in target_partitions and partition[0] in subscribed
        ]
        if not lost_partitions and not member.withdrawn:
            return []
        withdrawn_until = now + settings.lock_duration_s
        withdrawn = {
            partition: end
            for partition, end in member.withdrawn.items()
            if partition not in target_partitions and now < end
        }
        withdrawn.update({partition: member.withdrawn.get(partition, withdrawn_until) for partition in lost_partitions})
        member.withdrawn = withdrawn
        return [
            partition
            for partition in lost_partitions
            if now < withdrawn[partition] and holds(self.group_id, member.member_id, *partition)
        ]


def _partitions(assignment: Assignment) -> Iterator[Partition]:
    return ((topic_id, partition) for topic_id, partitions in assignment.items() for partition in partitions)


def _topic_ids(member: Member, topics: Mapping[str, TopicInfo]) -> frozenset[bytes]:
    return frozenset(topics[name].topic_id for name in member.topics if name in topics)


def _described(member: Member) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(member.topics)),
        assignment=member.assigned,
    )
