"""One classic group: joins, rebalances, sessions (ClassicGroup and GroupMetadataManager of Kafka 4.3)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kafka_share_proxy.conformance.target.classic_members import (
    ClassicJoin,
    ClassicMember,
    JoinReply,
    SyncReply,
    common_protocols,
    select_protocol,
)
from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.consumer_protocol import CONSUMER
from kafka_share_proxy.conformance.target.pending import PendingResponse
from kafka_share_proxy.conformance.target.seeded import SeededBytes
from kafka_share_proxy.conformance.target.timers import ClusterTimer, ClusterTimers
from kafka_share_proxy.wire.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Time after which a new member whose first join is still waiting is removed (GroupCoordinatorConfig)."""


class ClassicState(Enum):
    """States by the names that DescribeGroups returns."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """State of one group. A group without members may have committed offsets."""

    def __init__(
        self, group_id: str, clock: Clock, timers: ClusterTimers, seeded: SeededBytes, settings: ClusterSettings
    ) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.pending: dict[str, ClusterTimer] = {}
        """Members that were given an id and have not joined with it yet."""
        self._static: dict[str, str] = {}
        self._clock, self._timers, self._seeded, self._settings = clock, timers, seeded, settings
        self._join_timer: ClusterTimer | None = None
        self._sync_timer: ClusterTimer | None = None
        self._unsynced: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""
        self._from_empty = False
        """True while the first rebalance of an empty group waits for more members."""
        self._member_added = False

    # Joining

    def join(self, request: ClassicJoin) -> JoinReply | PendingResponse[JoinReply]:
        """Add or update a member. The response may wait for the other members."""
        if not self._supports(request):
            return self._join_error(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            return self._join_new(request)
        if request.member_id in self.pending:
            if request.instance_id is not None:
                return self._join_error(request, ErrorCode.UNKNOWN_SERVER_ERROR)
            return self._add(request, request.member_id)
        error = self.member_error(request.member_id, request.instance_id)
        if error != ErrorCode.NONE:
            return self._join_error(request, error)
        return self._rejoin(request, self.members[request.member_id])

    def _supports(self, request: ClassicJoin) -> bool:
        if not self.members:
            return bool(request.protocol_type) and bool(request.protocols)
        names = {name for name, _ in request.protocols}
        return request.protocol_type == self.protocol_type and bool(names & common_protocols(self.members.values()))

    def _join_new(self, request: ClassicJoin) -> JoinReply | PendingResponse[JoinReply]:
        known = self._static.get(request.instance_id or "")
        if known is None and len(self.members) + len(self.pending) >= self._settings.group_size_max:
            return self._join_error(request, ErrorCode.GROUP_MAX_SIZE_REACHED)
        member_id = f"{request.instance_id or request.client_id}-{self._seeded.uuid_text()}"
        if known is not None:
            return self._replace_static(request, self.members.pop(known), member_id)
        if request.instance_id is None and request.needs_member_id:
            self._expect(member_id, request.session_timeout_ms)
            return JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        return self._add(request, member_id)

    def _expect(self, member_id: str, session_timeout_ms: int) -> None:
        deadline = self._clock.now() + session_timeout_ms / 1000
        self.pending[member_id] = self._timers.call_at(deadline, lambda: self._forget_pending(member_id))

    def _forget_pending(self, member_id: str) -> None:
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            self._maybe_complete_join()

    def _add(self, request: ClassicJoin, member_id: str) -> PendingResponse[JoinReply]:
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        self.leader = self.leader or member_id
        if request.instance_id is not None:
            self._static[request.instance_id] = member_id
        self._member_added |= self._from_empty
        pending = member.joining = PendingResponse()
        self._start_session(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete()
        return pending

    def _rejoin(self, request: ClassicJoin, member: ClassicMember) -> JoinReply | PendingResponse[JoinReply]:
        is_leader = member.member_id == self.leader
        is_same = member.protocols == request.protocols
        if self.state is ClassicState.EMPTY:
            return self._join_error(request, ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is ClassicState.COMPLETING and is_same:
            return self._current(member, with_members=is_leader)
        if self.state is ClassicState.STABLE and is_same and not is_leader:
            return self._current(member, with_members=False)
        return self._update(request, member)

    def _update(self, request: ClassicJoin, member: ClassicMember) -> PendingResponse[JoinReply]:
        member.update(request)
        if member.joining is None:
            member.joining = PendingResponse()
        pending = member.joining
        self._rebalance_or_complete()
        return pending

    def _replace_static(
        self, request: ClassicJoin, old: ClassicMember, member_id: str
    ) -> JoinReply | PendingResponse[JoinReply]:
        """Give a static member a new id. Requests of the old one are fenced (KIP-345)."""
        _end_requests(old, ErrorCode.FENCED_INSTANCE_ID)
        was_leader, leader_before = self.leader == old.member_id, self.leader or ""
        old.cancel_timer()
        old.member_id = self._static[request.instance_id or ""] = member_id
        self.members[member_id] = old
        if was_leader:
            self.leader = member_id
        self._start_session(old, old.session_timeout_ms)
        old.update(request)
        if self.state is ClassicState.STABLE and self.protocol == select_protocol(self.members):
            if request.skips_assignment:
                return self._current(old, with_members=was_leader, skip_assignment=was_leader)
            return self._current(old, with_members=False, leader=leader_before)
        pending = old.joining = PendingResponse()
        self._rebalance_or_complete()
        return pending

    def _current(
        self, member: ClassicMember, *, with_members: bool, skip_assignment: bool = False, leader: str | None = None
    ) -> JoinReply:
        members = tuple((m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())
        return JoinReply(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=(self.leader or "") if leader is None else leader,
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members if with_members else (),
        )

    @staticmethod
    def _join_error(request: ClassicJoin, error: ErrorCode) -> JoinReply:
        return JoinReply(error=error, member_id=request.member_id)

    # Rebalances

    def _rebalance_or_complete(self) -> None:
        if self.state is not ClassicState.PREPARING:
            self._prepare()
        else:
            self._maybe_complete_join()

    def _prepare(self) -> None:
        if self.state is ClassicState.COMPLETING:
            self._end_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        self._cancel_sync_timer()
        self._from_empty = self.state is ClassicState.EMPTY
        self.state = ClassicState.PREPARING
        if self._from_empty:
            delay = self._settings.group_initial_rebalance_delay_ms
            self._wait_for_more(delay, max(self._rebalance_timeout_ms() - delay, 0))
        elif self._all_joined():
            self._complete_join()
        else:
            self._complete_join_in(self._rebalance_timeout_ms())

    def _wait_for_more(self, delay_ms: int, remaining_ms: int) -> None:
        """Delay the first rebalance, longer if members were added meanwhile (KIP-134)."""

        def due() -> None:
            if self._member_added and remaining_ms > 0:
                self._member_added = False
                delay = min(self._settings.group_initial_rebalance_delay_ms, remaining_ms)
                self._wait_for_more(delay, max(remaining_ms - delay_ms, 0) if delay_ms else 0)
            else:
                self._complete_join()

        self._join_timer = self._timers.call_at(self._clock.now() + delay_ms / 1000, due)

    def _complete_join_in(self, delay_ms: int) -> None:
        self._cancel_join_timer()
        self._join_timer = self._timers.call_at(self._clock.now() + delay_ms / 1000, self._complete_join)

    def _maybe_complete_join(self) -> None:
        if self.state is ClassicState.PREPARING and not self._from_empty and self._all_joined():
            self._complete_join()

    def _all_joined(self) -> bool:
        return not self.pending and all(member.joining is not None for member in self.members.values())

    def _complete_join(self) -> None:
        self._cancel_join_timer()
        self._from_empty = self._member_added = False
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._drop(member)
        if self.members and not self._elect_joined_leader():
            self._complete_join_in(self._rebalance_timeout_ms())
            return
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = ClassicState.EMPTY, None, None
            return
        self.state, self.protocol = ClassicState.COMPLETING, select_protocol(self.members)
        self._unsynced = set(self.members)
        for member in self.members.values():
            self._respond_to_join(member)
        self._sync_timer = self._timers.call_at(
            self._clock.now() + self._rebalance_timeout_ms() / 1000, self._expire_syncs
        )

    def _respond_to_join(self, member: ClassicMember) -> None:
        pending, member.joining = member.joining, None
        if pending is not None:
            pending.set(self._current(member, with_members=member.member_id == self.leader))
            self._start_session(member, member.session_timeout_ms)
        member.is_new = False
        member.syncing = None

    def _elect_joined_leader(self) -> bool:
        """Return False if no member has joined. A leader that has not joined again is replaced."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.joining is None:
            joined = next((each for each in self.members.values() if each.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Assignments

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
    ) -> SyncReply | PendingResponse[SyncReply]:
        """Return the member's assignment, once the leader has sent it. `protocol`: (type, name) of the request."""
        error = self._sync_error(member_id, instance_id, generation, protocol)
        if error != ErrorCode.NONE:
            return SyncReply(error=error)
        member = self.members[member_id]
        self._unsynced.discard(member_id)
        if self.state is ClassicState.STABLE:
            return self._assigned(member)
        pending = member.syncing = PendingResponse()
        if member_id == self.leader:
            for each in self.members.values():
                each.assignment = assignments.get(each.member_id, b"")
            self.state = ClassicState.STABLE
            self._end_syncs(ErrorCode.NONE)
        return pending

    def _sync_error(
        self, member_id: str, instance_id: str | None, generation: int, protocol: tuple[str | None, str | None]
    ) -> ErrorCode:
        error = self.member_error(member_id, instance_id)
        if error != ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if protocol[0] not in (None, self.protocol_type) or protocol[1] not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is ClassicState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is ClassicState.PREPARING else ErrorCode.NONE

    def _assigned(self, member: ClassicMember) -> SyncReply:
        return SyncReply(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)

    def _end_syncs(self, error: ErrorCode) -> None:
        for member in self.members.values():
            pending, member.syncing = member.syncing, None
            if error != ErrorCode.NONE:
                member.assignment = b""
            if pending is not None:
                pending.set(SyncReply(error=error) if error != ErrorCode.NONE else self._assigned(member))
                self._start_session(member, member.session_timeout_ms)

    def _expire_syncs(self) -> None:
        """Remove members that have not sent SyncGroup within the rebalance timeout."""
        self._sync_timer = None
        late = [member for member in self.members.values() if member.member_id in self._unsynced]
        if self.state in (ClassicState.COMPLETING, ClassicState.STABLE) and late:
            for member in late:
                self._drop(member)
            self._prepare()

    def _cancel_join_timer(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()
            self._join_timer = None

    def _cancel_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    # Heartbeats and members

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Extend the session of a member."""
        error = self.member_error(member_id, instance_id)
        if error == ErrorCode.NONE and generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error != ErrorCode.NONE:
            return error
        member = self.members[member_id]
        self._start_session(member, member.session_timeout_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is ClassicState.PREPARING else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove one member. The caller calls `members_left` after all of a request."""
        if not member_id:
            if instance_id is None or instance_id not in self._static:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._drop(self.members[self._static[instance_id]])
            return ErrorCode.NONE
        if member_id in self.pending:
            self.pending.pop(member_id).cancel()
            return ErrorCode.NONE
        error = self.member_error(member_id, instance_id)
        if error == ErrorCode.NONE:
            self._drop(self.members[member_id])
        return error

    def members_left(self) -> None:
        """Begin or complete a rebalance after members have left."""
        if self.state in (ClassicState.STABLE, ClassicState.COMPLETING):
            self._prepare()
        else:
            self._maybe_complete_join()

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that a member exists and is the one with its instance id (ClassicGroup.validateMember)."""
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def commit_error(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool
    ) -> ErrorCode:
        """Check who commits offsets (ClassicGroup.validateOffsetCommit)."""
        if generation < 0 and self.state is ClassicState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            error = self.member_error(member_id, instance_id)
            if error == ErrorCode.NONE and generation != self.generation:
                error = ErrorCode.ILLEGAL_GENERATION
            if error != ErrorCode.NONE:
                return error
        elif not in_transaction and self.state is not ClassicState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not in_transaction and self.state is ClassicState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if member_id in self.members and not in_transaction:
            self._start_session(self.members[member_id], self.members[member_id].session_timeout_ms)
        return ErrorCode.NONE

    def lose_requests(self, error: ErrorCode) -> None:
        """End all waiting requests: the coordinator has moved. Sessions begin anew there."""
        self.end_requests(error)
        for member in self.members.values():
            self._start_session(member, member.session_timeout_ms)
        for timer in self.pending.values():
            timer.cancel()
        self.pending.clear()
        if self.state in (ClassicState.PREPARING, ClassicState.COMPLETING):
            self._from_empty, self.state = False, ClassicState.PREPARING
            self._complete_join_in(self._rebalance_timeout_ms())

    def end_requests(self, error: ErrorCode) -> None:
        """End all waiting requests with an error."""
        for member in self.members.values():
            _end_requests(member, error)

    def take_over(self, members: Iterable[ClassicMember], generation: int) -> None:
        """Begin as a stable group with the members of a KIP-848 group."""
        self.members = {member.member_id: member for member in members}
        self._static = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        self.generation, self.state, self.protocol_type = generation, ClassicState.STABLE, CONSUMER
        self.protocol, self.leader = select_protocol(self.members), next(iter(self.members))
        for member in self.members.values():
            self._start_session(member, member.session_timeout_ms)

    def close(self) -> None:
        """Cancel all timers: the group is deleted."""
        self._cancel_join_timer()
        self._cancel_sync_timer()
        for member in self.members.values():
            member.cancel_timer()
        for timer in self.pending.values():
            timer.cancel()

    def _start_session(self, member: ClassicMember, timeout_ms: int) -> None:
        member.cancel_timer()
        deadline = self._clock.now() + timeout_ms / 1000
        member.timer = self._timers.call_at(deadline, lambda: self._expire(member))

    def _expire(self, member: ClassicMember) -> None:
        """Remove a member without heartbeat. One whose request waits here is alive, unless it is new."""
        waits = member.joining is not None or member.syncing is not None
        if self.members.get(member.member_id) is not member or (waits and not member.is_new):
            return
        self._drop(member)
        self.members_left()

    def _drop(self, member: ClassicMember) -> None:
        member.cancel_timer()
        self.members.pop(member.member_id, None)
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        _end_requests(member, ErrorCode.UNKNOWN_MEMBER_ID)


def _end_requests(member: ClassicMember, error: ErrorCode) -> None:
    joining, member.joining = member.joining, None
    syncing, member.syncing = member.syncing, None
    if joining is not None:
        joining.set(JoinReply(error=error, member_id=member.member_id))
    if syncing is not None:
        syncing.set(SyncReply(error=error))
