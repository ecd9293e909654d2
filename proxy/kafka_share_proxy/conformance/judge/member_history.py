"""History of members of groups: classic, consumer and share groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.conformance.judge.events import RequestSeen, ResponseSeen
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

MEMBERS_MAX = 10_000
"""Maximum number of members that are remembered. The oldest is forgotten first."""
HEARTBEATS_KEPT = 16
LEAVE_EPOCHS = frozenset({-1, -2})
EPOCH_HEARTBEATS = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_HEARTBEAT})
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID})

MemberKey = tuple[str, str]
"""Group id and member id."""


@dataclass(slots=True)
class MemberHistory:
    """One member."""

    key: int
    """API key of the request that joins."""
    group_id: str
    member_id: str
    epoch: int
    """Epoch or generation that the member received last."""
    epoch_at: float
    former: int | None = None
    """Epoch before it."""
    doubtful: bool = False
    """True if the member could not read a response: the judge does not know its epoch."""
    left: bool = False
    leave_error: int = 0
    """Error code of the last request to leave."""
    fenced: bool = False
    """True if the cluster removed the member."""
    is_static: bool = False
    is_leader: bool = False
    interval_ms: int = 0
    connections: set[int] = field(default_factory=set)
    heartbeats: deque[float] = field(default_factory=lambda: deque(maxlen=HEARTBEATS_KEPT))

    @property
    def is_active(self) -> bool:
        return not (self.left or self.fenced)

    def is_stale(self, epoch: int, at: float, grace_s: float) -> bool:
        """Return True if a request has another epoch than the last one, and was not sent before that was known."""
        if self.doubtful or epoch == self.epoch:
            return False
        return epoch != self.former or at - self.epoch_at > grace_s

    def set_epoch(self, epoch: int, at: float) -> None:
        if epoch != self.epoch:
            self.former, self.epoch, self.epoch_at = self.epoch, epoch, at
        self.left = self.fenced = self.doubtful = False


@dataclass(slots=True)
class MemberHistories:
    """All members."""

    members: dict[MemberKey, MemberHistory] = field(default_factory=dict)
    required: dict[tuple[int, str], str] = field(default_factory=dict)
    """Member id that the next JoinGroup of (connection, group) must have (KIP-394)."""

    def find(self, group_id: str | None, member_id: str | None) -> MemberHistory | None:
        return self.members.get((group_id or "", member_id or ""))

    def on_request(self, seen: RequestSeen) -> None:
        request: Any = seen.request
        member = self.find(getattr(request, "group_id", None), getattr(request, "member_id", None))
        if member is not None:
            member.connections.add(seen.connection)
            if seen.key in EPOCH_HEARTBEATS or seen.key == ApiKey.HEARTBEAT:
                member.heartbeats.append(seen.at)
        if seen.key == ApiKey.JOIN_GROUP:
            self.required.pop((seen.connection, request.group_id), None)

    def on_unknown_outcome(self, seen: RequestSeen) -> None:
        """Accept any epoch after a request whose connection ended before the response."""
        if seen.key in EPOCH_HEARTBEATS:
            member = self.find(seen.request.group_id, seen.request.member_id)
            if member is not None:
                member.doubtful = True

    def on_response(self, event: ResponseSeen) -> None:
        key = event.seen.key
        if key == ApiKey.JOIN_GROUP:
            self._on_join(event)
        elif key in EPOCH_HEARTBEATS:
            self._on_epoch_heartbeat(event)
        elif key == ApiKey.LEAVE_GROUP:
            for member_id in leaving(event.seen):
                if (member := self.find(event.seen.request.group_id, member_id)) is not None:
                    member.left = True
        elif key in (ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP):
            self._note_fencing(event)

    def _on_join(self, event: ResponseSeen) -> None:
        request, response = event.seen.request, _any(event)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED and event.delivered:
            self.required[event.seen.connection, request.group_id] = response.member_id
        elif response.error_code == ErrorCode.NONE:
            member = self._joined(event, response.member_id, response.generation_id)
            member.is_static = request.group_instance_id is not None
            member.is_leader = response.leader == response.member_id
        else:
            self._note_fencing(event)

    def _on_epoch_heartbeat(self, event: ResponseSeen) -> None:
        request, response = event.seen.request, _any(event)
        if response.error_code != ErrorCode.NONE:
            self._note_fencing(event)
            member = self.find(request.group_id, request.member_id)
            if member is not None and request.member_epoch in LEAVE_EPOCHS:
                member.leave_error = response.error_code
        elif request.member_epoch in LEAVE_EPOCHS:
            if (left := self.find(request.group_id, request.member_id)) is not None:
                left.left = True
        else:
            member = self._joined(event, response.member_id or request.member_id, response.member_epoch)
            member.is_static = getattr(request, "instance_id", None) is not None
            member.interval_ms = response.heartbeat_interval_ms

    def _joined(self, event: ResponseSeen, member_id: str, epoch: int) -> MemberHistory:
        group_id = event.seen.request.group_id
        member = self.members.get((group_id, member_id))
        if member is None:
            if len(self.members) >= MEMBERS_MAX:
                del self.members[next(iter(self.members))]
            member = MemberHistory(event.seen.key, group_id, member_id, epoch, event.at)
            self.members[group_id, member_id] = member
        member.set_epoch(epoch, event.at)
        member.connections.add(event.seen.connection)
        member.doubtful = not event.delivered
        return member

    def _note_fencing(self, event: ResponseSeen) -> None:
        request, response = event.seen.request, _any(event)
        member = self.find(request.group_id, request.member_id)
        if member is not None:
            member.fenced |= response.error_code in FENCED
            member.doubtful |= not event.delivered


def leaving(seen: RequestSeen) -> Iterator[str]:
    """Yield the member ids of a LeaveGroup request."""
    if seen.version >= 3:
        yield from (member.member_id for member in seen.request.members)
    else:
        yield seen.request.member_id


def _any(event: ResponseSeen) -> Any:
    return event.response
