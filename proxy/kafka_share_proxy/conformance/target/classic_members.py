"""Members of a classic group, and what they send and receive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_share_proxy.conformance.target.pending import PendingResponse
from kafka_share_proxy.conformance.target.timers import ClusterTimer
from kafka_share_proxy.wire.errors import ErrorCode


@dataclass(frozen=True, kw_only=True)
class ClassicJoin:
    """JoinGroup request with its client."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), the preferred first."""
    needs_member_id: bool
    """True if a new dynamic member must join again with the id that it is given (KIP-394)."""
    skips_assignment: bool
    """True from version 9 on (KIP-814)."""


@dataclass(frozen=True, kw_only=True)
class JoinReply:
    """Contents of a JoinGroup response."""

    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """(member id, instance id, metadata), for the leader only."""


@dataclass(frozen=True, kw_only=True)
class SyncReply:
    """Contents of a SyncGroup response."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(eq=False)
class ClassicMember:
    """One member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    is_new: bool = True
    """True until its first JoinGroup has a response."""
    assignment: bytes = b""
    joining: PendingResponse[JoinReply] | None = None
    syncing: PendingResponse[SyncReply] | None = None
    timer: ClusterTimer | None = field(default=None, repr=False)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def update(self, request: ClassicJoin) -> None:
        self.protocols = request.protocols
        self.session_timeout_ms, self.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def common_protocols(members: Iterable[ClassicMember]) -> set[str]:
    """Return the protocols that all members support."""
    common: set[str] | None = None
    for member in members:
        names = {name for name, _ in member.protocols}
        common = names if common is None else common & names
    return common or set()


def select_protocol(members: Mapping[str, ClassicMember]) -> str | None:
    """Return the protocol with the most votes: each member votes for the first that all support."""
    candidates = common_protocols(members.values())
    votes = Counter(_vote(member.protocols, candidates) for member in members.values())
    return max(votes, key=lambda name: votes[name]) if votes else None


def _vote(protocols: Sequence[tuple[str, bytes]], candidates: set[str]) -> str:
    return next(name for name, _ in protocols if name in candidates)
