"""Dependencies of the handlers of individual commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from kafka_share_proxy.commits.audit_events import CommitAudit
from kafka_share_proxy.commits.counters import CommitFigures
from kafka_share_proxy.commits.followed_groups import FollowedGroups
from kafka_share_proxy.commits.held_state import CommittingGroup, HeldCommits
from kafka_share_proxy.commits.metadata_limit import MetadataLimit
from kafka_share_proxy.commits.partition_locks import PartitionLocks
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS, CommitKey
from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.durable.interfaces import Journal
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.fleet.group_owners import Fleet
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.loop.promise import PROCESS, CallbackOwner
from kafka_share_proxy.offsets.commit_text import commit_text_version

EVERY_GROUP = "*"
FEATURE = "individual commits"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """Options of individual commits."""

    groups: str = EVERY_GROUP
    ranges_max: int = 10_000
    topic_age_s: float = 5.0
    in_metadata: bool = False
    """True if the brokers' metadata holds the ranges (commits/README.md rule 26)."""

    def has_ranges(self, group_id: str, metadata: str | None) -> bool:
        """True for an individual commit (commits/README.md rule 1)."""
        return commit_text_version(metadata) is not None and self.serves(group_id)

    def serves(self, group_id: str) -> bool:
        """Return True if the group may have individual commits."""
        return self.groups == EVERY_GROUP or fnmatchcase(group_id, self.groups)


def commit_gate() -> StateGate:
    return StateGate(INDIVIDUAL_COMMITS.partitions, state_partition)


def _silent(_event: str, /, **_context: Any) -> None: ...


def _none_followed() -> FollowedGroups:
    return FollowedGroups(_silent)


@dataclass(slots=True, kw_only=True)
class CommitServices:
    """Objects for the handlers in addition to their `Call`."""

    base: Services
    """Objects that the handlers of every feature share."""
    journal: Journal[CommitKey]
    state_owner: CallbackOwner = PROCESS
    """Receiver of the callbacks of appends."""
    options: CommitOptions = field(default_factory=CommitOptions)
    held: HeldCommits = field(default_factory=HeldCommits)
    locks: PartitionLocks = field(default_factory=PartitionLocks)
    gate: StateGate = field(default_factory=commit_gate)
    fleet: Fleet | None = None
    """Other proxies that own groups, if any."""
    followed: FollowedGroups = field(default_factory=_none_followed)
    figures: CommitFigures = field(default_factory=CommitFigures)
    limit: MetadataLimit = field(default_factory=MetadataLimit)

    audit: CommitAudit | None = None
    base_of: Callable[[str], str] = str
    """Topic that stores the records of a topic. For a view that is its base."""

    @property
    def feature(self) -> str:
        return FEATURE

    @property
    def timers(self) -> Timers:
        return self.base.timers

    @property
    def state_wait_s(self) -> float:
        """Return 0: commits do not wait longer for a state being loaded, because every client retries them."""
        return 0.0

    def knows(self, group_id: str) -> bool | None:
        """Return True if the group has individual commits. None while that is unknown."""
        if not self.serves(group_id):
            return False
        return True if group_id in self.held.groups else self.followed.is_known(group_id)

    @property
    def knows_any(self) -> bool:
        return bool(self.held.groups or self.followed.groups or self.followed.uncertain)

    def admits(self, group: CommittingGroup) -> bool:
        """Return True if this proxy owns a group that all proxies know to be marked."""
        if self.gate.refused or self.off:
            return False
        return group.is_marker_stored and group.is_marker_seen and self.gate.lets_in(group.state_partitions)

    @property
    def off(self) -> str:
        """Identity or right that the proxy lacks."""
        return self.followed.off or self.gate.denied

    def has_ranges(self, group_id: str, metadata: str | None) -> bool:
        """See CommitOptions.has_ranges."""
        return self.options.has_ranges(group_id, metadata)

    def serves(self, group_id: str) -> bool:
        return self.options.serves(group_id)
