"""One KIP-848 group (ConsumerGroup and GroupMetadataManager.consumerGroupHeartbeat of Kafka 4.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from math import inf

from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.consumer_members import (
    UNOWNED,
    ConsumerMember,
    MemberTarget,
    Reconciliation,
    reconcile,
)
from kafka_share_proxy.conformance.target.server_assignors import ASSIGNORS, UNIFORM, Subscriber
from kafka_share_proxy.conformance.target.timers import ClusterTimer, ClusterTimers
from kafka_share_proxy.conformance.target.topics import TopicRegistry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2


class GroupRefusal(Exception):
    """A request of a member is refused."""

    def __init__(self, error: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.error, self.text = error, text


@dataclass(frozen=True, kw_only=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat request with its client."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """True if all fields are given, as after an error."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


class ConsumerGroup:
    """State of one group."""

    def __init__(
        self,
        group_id: str,
        topics: TopicRegistry,
        clock: Clock,
        timers: ClusterTimers,
        *,
        session_timeout_ms: int,
        assignment_interval_ms: int,
        downgrade: Callable[[ConsumerGroup, bool], None],
    ) -> None:
        """Create an empty group. `downgrade`: make it a classic group; True: with a rebalance."""
        self.group_id = group_id
        self.epoch = 1
        """A group begins with epoch 1, so that its first member gets 2."""
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, set[TopicIdPartition]] = {}
        self.session_timeout_ms = session_timeout_ms
        self.downgrade = downgrade
        self._assignment_interval_s = assignment_interval_ms / 1000
        self._assigned_at = -inf
        self._static: dict[str, str] = {}
        self.topics, self._clock, self._timers = topics, clock, timers
        self._subscribed: Mapping[str, tuple[bytes, int]] = {}

    @property
    def state(self) -> str:
        """State by the name that ConsumerGroupDescribe returns."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        members = self.members.values()
        is_stable = all(m.state is Reconciliation.STABLE and m.epoch == self.assignment_epoch for m in members)
        return "Stable" if is_stable else "Reconciling"

    @property
    def assignor(self) -> str:
        """Name of the assignor that most members prefer."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else UNIFORM

    # Heartbeats

    def heartbeat(self, request: ConsumerHeartbeat) -> tuple[ConsumerMember, bool]:
        """Return the member, and True if the response contains its assignment. Raises GroupRefusal."""
        if request.regex:
            _check_regex(request.regex)
        member = self._member(request)
        before = dict(member.assigned)
        subscription = (member.topics, member.regex)
        assignor = self.assignor
        self._update(member, request)
        is_changed = subscription != (member.topics, member.regex)
        is_new = member.member_id not in self.members
        self.members[member.member_id] = member
        self.refresh(bump=is_changed or is_new or assignor != self.assignor)
        self.reconcile(member, request.owned, is_changed=is_changed)
        self.start_timers(member)
        return member, request.epoch == JOIN_EPOCH or request.is_full or before.keys() != member.assigned.keys()

    def leave(self, member_id: str, instance_id: str | None, epoch: int) -> None:
        """Remove a member. A static one with epoch -2 keeps its partitions. Raises GroupRefusal."""
        member = self.known(member_id, instance_id)
        if instance_id is not None and epoch == LEAVE_STATIC_EPOCH:
            member.set_epoch(LEAVE_STATIC_EPOCH)
            member.revoking, member.state = {}, Reconciliation.STABLE
            self.start_timers(member)
            return
        self.remove([member])

    def refresh(self, *, bump: bool = False) -> None:
        """Begin a group epoch if subscriptions or subscribed topics changed, and compute its target assignment."""
        self.begin_epoch(bump=bump)
        is_due = self._clock.now() >= self._assigned_at + self._assignment_interval_s
        if self.epoch > self.assignment_epoch and self.members and is_due:
            self._assign()

    def begin_epoch(self, *, bump: bool) -> None:
        """Begin a group epoch if subscriptions or subscribed topics changed."""
        subscribed = self._subscribed_topics()
        if bump or subscribed != self._subscribed:
            self._subscribed = subscribed
            self.epoch += 1

    def reconcile(self, member: ConsumerMember, owned: Set[TopicIdPartition] | None, *, is_changed: bool) -> None:
        """Move a member towards its target. `is_changed`: True if its subscription has just changed."""
        target = MemberTarget(self.assignment_epoch, self.target.get(member.member_id, set()), self._topic_ids(member))
        reconcile(member, target, owned, self.owner_epoch, is_changed=is_changed)

    def owner_epoch(self, partition: TopicIdPartition) -> int:
        """Return the epoch in which a partition was given to the member that has it, UNOWNED if it is free."""
        for member in self.members.values():
            for held in (member.assigned, member.revoking):
                if partition in held:
                    return held[partition]
        return UNOWNED

    def subscribed(self) -> set[str]:
        """Return the topics that members subscribe to."""
        return set(self._subscribed_topics())

    def close(self) -> None:
        """Cancel all timers: the group is deleted."""
        for member in self.members.values():
            member.cancel_timers()

    # Members

    def take_over(self, members: Iterable[ConsumerMember], epoch: int) -> None:
        """Begin with the members of a classic group. What they have is their target."""
        for member in members:
            self.members[member.member_id] = member
            self.target[member.member_id] = set(member.assigned)
            if member.instance_id is not None:
                self._static[member.instance_id] = member.member_id
            self.start_timers(member)
        self.epoch = self.assignment_epoch = epoch
        self._subscribed = self._subscribed_topics()

    def known(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return a member. Raises GroupRefusal."""
        if instance_id is not None:
            return self._known_static(member_id, instance_id)
        return self._known(member_id)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return self.members.get(self._static.get(instance_id or "", ""))

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or one that has changed."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id

    def rename(self, member: ConsumerMember, member_id: str) -> None:
        """Give a static member another id. It joins anew and keeps its partitions."""
        del self.members[member.member_id]
        self.target[member_id] = self.target.pop(member.member_id, set())
        member.cancel_timers()
        member.member_id, member.epoch, member.previous_epoch = member_id, 0, 0
        self.put(member)

    def _member(self, request: ConsumerHeartbeat) -> ConsumerMember:
        joins = request.epoch == JOIN_EPOCH
        if request.instance_id is None and joins:
            return self.members.get(request.member_id) or ConsumerMember(request.member_id)
        if not joins:
            return self._check_epoch(self.known(request.member_id, request.instance_id), request)
        known = self.static_member(request.instance_id)
        return self._joined_static(request, known)

    def _joined_static(self, request: ConsumerHeartbeat, known: ConsumerMember | None) -> ConsumerMember:
        if known is None:
            return ConsumerMember(request.member_id)
        is_released = known.epoch == LEAVE_STATIC_EPOCH or known.classic is not None
        if not is_released and known.member_id != request.member_id:
            text = f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group"
            raise GroupRefusal(
                ErrorCode.UNRELEASED_INSTANCE_ID, f"{text}: the id is owned by {known.member_id} member."
            )
        self.rename(known, request.member_id)
        return known

    def _known(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return member

    def _known_static(self, member_id: str, instance_id: str) -> ConsumerMember:
        if instance_id not in self._static:
            raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        owner = self._static[instance_id]
        if owner != member_id:
            text = f"Static member {member_id} with instance id {instance_id} was fenced by member {owner}."
            raise GroupRefusal(ErrorCode.FENCED_INSTANCE_ID, text)
        return self.members[member_id]

    def _check_epoch(self, member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member, or refuse a wrong epoch. The previous one is accepted: a response may have been lost."""
        if request.epoch == member.epoch:
            return member
        is_subset = request.owned is not None and request.owned <= member.assigned.keys()
        if request.epoch < member.epoch and request.epoch == member.previous_epoch and is_subset:
            return member
        relation = "greater" if request.epoch > member.epoch else "smaller"
        text = f"The consumer group member has a {relation} member epoch ({request.epoch}) than the one known by the"
        text += f" group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        raise GroupRefusal(ErrorCode.FENCED_MEMBER_EPOCH, text)

    def _update(self, member: ConsumerMember, request: ConsumerHeartbeat) -> None:
        member.client_id, member.client_host = request.client_id, request.client_host
        if member.classic is not None:
            member.cancel_timers()
            member.classic = None
        if request.instance_id is not None:
            member.instance_id = request.instance_id
            self._static[request.instance_id] = member.member_id
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.assignor is not None:
            member.assignor = request.assignor
        if request.topics is not None:
            member.topics = request.topics
        if request.regex is not None:
            member.regex = request.regex

    def remove(self, members: Iterable[ConsumerMember]) -> None:
        """Remove members. If only classic ones remain, the group becomes a classic group."""
        for member in members:
            member.cancel_timers()
            del self.members[member.member_id]
            self.target.pop(member.member_id, None)
            if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
                del self._static[member.instance_id]
        if self.members and all(member.classic is not None for member in self.members.values()):
            self.downgrade(self, True)
            return
        self._subscribed = self._subscribed_topics()
        self.epoch += 1

    def start_timers(self, member: ConsumerMember) -> None:
        """Extend the session of a member, and limit the time in which it revokes partitions."""
        if member.session is not None:
            member.session.cancel()
        classic = member.classic
        member.session = self.fence_in(
            member, self.session_timeout_ms if classic is None else classic.session_timeout_ms
        )
        if classic is not None:
            return
        if member.state is not Reconciliation.UNREVOKED:
            if member.revocation is not None:
                member.revocation.cancel()
            member.revocation = None
        elif member.revocation is None:
            member.revocation = self.fence_in(member, member.rebalance_timeout_ms)

    def fence_in(self, member: ConsumerMember, timeout_ms: int) -> ClusterTimer:
        """Remove a member after a time, unless the timer is cancelled."""

        def due() -> None:
            if self.members.get(member.member_id) is member:
                self.remove([member])

        return self._timers.call_at(self._clock.now() + timeout_ms / 1000, due)

    # Subscriptions and targets

    def _names(self, member: ConsumerMember) -> Set[str]:
        if not member.regex:
            return member.topics
        pattern = re.compile(member.regex)
        matching = {
            name for name, topic in self.topics.by_name.items() if pattern.fullmatch(name) and not topic.is_internal
        }
        return member.topics | matching

    def _topic_ids(self, member: ConsumerMember) -> set[bytes]:
        return {topic.topic_id for name in self._names(member) if (topic := self.topics.with_name(name)) is not None}

    def _subscribed_topics(self) -> dict[str, tuple[bytes, int]]:
        names = sorted({name for member in self.members.values() for name in self._names(member)})
        known = {name: self.topics.with_name(name) for name in names}
        return {name: (topic.topic_id, len(topic.partitions)) for name, topic in known.items() if topic is not None}

    def _assign(self) -> None:
        members = {
            each.member_id: Subscriber(self._topic_ids(each), self.target.get(each.member_id, set()))
            for each in self.members.values()
        }
        topics = dict(self._subscribed.values())
        self.target = ASSIGNORS[self.assignor](members, topics)
        self.assignment_epoch, self._assigned_at = self.epoch, self._clock.now()


def _check_regex(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        raise GroupRefusal(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from error
