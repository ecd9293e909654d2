"""This proxy as a member of the group of proxies: its identity and its requests (durable/README.md rules 20 and 24)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafka_share_proxy.durable.member_errors import error_of
from kafka_share_proxy.durable.ownership_rules import GROUP, PROTOCOL_TYPE
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError


class LeavingMember(NamedTuple):
    """Member as a LeaveGroup request names it."""

    member_id: str
    instance: str | None
    """Name of a static member (`group.instance.id`)."""


@dataclass(slots=True)
class GroupMember:
    """Identity of the member. Its requests carry it."""

    instance: str | None
    """Name of the static member. None after a second proxy of that name has fenced this one."""
    protocol: str
    """Protocol name, which all members must have."""
    session_s: float
    """Session timeout and rebalance timeout in seconds."""
    member_id: str = ""
    """Id that the coordinator assigned. Empty before."""
    generation: int = -1
    """Negative before the first assignment."""

    def forget_membership(self) -> None:
        """Join as a new member next time."""
        self.member_id, self.generation = "", -1

    def error(self, code: ErrorCode) -> ProxyError:
        """Return the error for the code of a response. A fenced member continues without its name."""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.instance = None
        return error_of(code, self.session_s)

    def heartbeat(self) -> messages.HeartbeatRequest:
        return messages.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )

    def join(self, metadata: bytes) -> messages.JoinGroupRequest:
        """Return a JoinGroup request. `metadata`: see `ownership_rules.encode_member`."""
        request = messages.JoinGroupRequest
        timeout_ms = round(self.session_s * 1000)
        return request(
            group_id=GROUP,
            session_timeout_ms=timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=PROTOCOL_TYPE,
            protocols=[request.JoinGroupRequestProtocol(name=self.protocol, metadata=metadata)],
        )

    def sync(self, generation: int, assignments: Mapping[str, bytes]) -> messages.SyncGroupRequest:
        """Return a SyncGroup request. `assignments`: by member id, from the leader of the group only."""
        request = messages.SyncGroupRequest
        entry = request.SyncGroupRequestAssignment
        return request(
            group_id=GROUP,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol,
            assignments=[entry(member_id=member_id, assignment=each) for member_id, each in assignments.items()],
        )

    def leave(self) -> messages.LeaveGroupRequest:
        return leave_request([LeavingMember(self.member_id, self.instance)], "shutdown")


def leave_request(members: Iterable[LeavingMember], reason: str) -> messages.LeaveGroupRequest:
    """Return the request that removes members from the group."""
    request = messages.LeaveGroupRequest
    entries = [
        request.MemberIdentity(member_id=member_id, group_instance_id=instance or None, reason=reason)
        for member_id, instance in members
    ]
    return request(group_id=GROUP, members=entries)
