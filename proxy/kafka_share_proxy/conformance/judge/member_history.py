"""History of members of groups: classic, consumer and share groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.conformance.judge.events import ReceivedRequest, SentResponse
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
    has_left: bool = False
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
        return not (self.has_left or self.fenced)

    def is_stale(self, epoch: int, at: float, grace_s: float) -> bool:
        """Return True if a request has another epoch than the last one, and was not sent before that was known."""
        if self.doubtful or epoch == self.epoch:
            return False
        return epoch != self.former or at - self.epoch_at > grace_s

    def set_epoch(self, epoch: int, at: float) -> None:
        if epoch != self.epoch:
            self.former, self.epoch, self.epoch_at = self.epoch, epoch, at
        self.has_left = self.fenced = self.doubtful = False


@dataclass(slots=True)
class MemberHistories:
    """All members."""

    members: dict[MemberKey, MemberHistory] = field(default_factory=dict)
    required: dict[tuple[int, str], str] = field(default_factory=dict)
    """Member id that the next JoinGroup of (connection, group) must have (KIP-394)."""

    def find(self, group_id: str | None, member_id: str | None) -> MemberHistory | None:
        return self.members.get((group_id or "", member_id or ""))

    def on_request(self, event: ReceivedRequest) -> None:
        request: Any = event.request
        member = self.find(getattr(request, "group_id", None), getattr(request, "member_id", None))
        if member is not None:
            member.connections.add(event.connection)
            if event.key in EPOCH_HEARTBEATS or event.key == ApiKey.HEARTBEAT:
                member.heartbeats.append(event.at)
        if event.key == ApiKey.JOIN_GROUP:
            self.required.pop((event.connection, request.group_id), None)

    def on_unknown_outcome(self, event: ReceivedRequest) -> None:
        """Accept any epoch after a request whose connection ended before the response."""
        if event.key in EPOCH_HEARTBEATS:
            member = self.find(event.request.group_id, event.request.member_id)
            if member is not None:
                member.doubtful = True

    def on_response(self, event: SentResponse) -> None:
        key = event.received.key
        if key == ApiKey.JOIN_GROUP:
            self._on_join(event)
        elif key in EPOCH_HEARTBEATS:
            self._on_epoch_heartbeat(event)
        elif key == ApiKey.LEAVE_GROUP:
            for member_id in leaving(event.received):
                if (member := self.find(event.received.request.group_id, member_id)) is not None:
                    member.has_left = True
        elif key in (ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP):
            self._note_fencing(event)

    def _on_join(self, event: SentResponse) -> None:
        request, response = event.received.request, _any(event)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED and event.delivered:
            self.required[event.received.connection, request.group_id] = response.member_id
        elif response.error_code == ErrorCode.NONE:
            member = self._joined(event, response.member_id, response.generation_id)
            member.is_static = request.group_instance_id is not None
            member.is_leader = response.leader == response.member_id
        else:
            self._note_fencing(event)

    def _on_epoch_heartbeat(self, event: SentResponse) -> None:
        request, response = event.received.request, _any(event)
        if response.error_code != ErrorCode.NONE:
            self._note_fencing(event)
            member = self.find(request.group_id, request.member_id)
            if member is not None and request.member_epoch in LEAVE_EPOCHS:
                member.leave_error = response.error_code
        elif request.member_epoch in LEAVE_EPOCHS:
            if (member := self.find(request.group_id, request.member_id)) is not None:
                member.has_left = True
        else:
            member = self._joined(event, response.member_id or request.member_id, response.member_epoch)
            member.is_static = getattr(request, "instance_id", None) is not None
            member.interval_ms = response.heartbeat_interval_ms

    def _joined(self, event: SentResponse, member_id: str, epoch: int) -> MemberHistory:
        group_id = event.received.request.group_id
        member = self.members.get((group_id, member_id))
        if member is None:
            if len(self.members) >= MEMBERS_MAX:
                del self.members[next(iter(self.members))]
            member = MemberHistory(event.received.key, group_id, member_id, epoch, event.at)
            self.members[group_id, member_id] = member
        member.set_epoch(epoch, event.at)
        member.connections.add(event.received.connection)
        member.doubtful = not event.delivered
        return member

    def _note_fencing(self, event: SentResponse) -> None:
        request, response = event.received.request, _any(event)
        member = self.find(request.group_id, request.member_id)
        if member is not None:
            member.fenced |= response.error_code in FENCED
            member.doubtful |= not event.delivered


def leaving(event: ReceivedRequest) -> Iterator[str]:
    """Yield the member ids of a LeaveGroup request."""
    if event.version >= 3:
        yield from (member.member_id for member in event.request.members)
    else:
        yield event.request.member_id


def _any(event: SentResponse) -> Any:
    return event.response
