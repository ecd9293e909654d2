"""What the handlers of individual commits are given: built once at start, by tests from small parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from proxy.commits.audit_events import CommitAudit
from proxy.commits.counters import CommitFigures
from proxy.commits.followed_groups import FollowedGroups
from proxy.commits.held_state import HeldCommits
from proxy.commits.partition_locks import PartitionLocks
from proxy.commits.state_records import INDIVIDUAL_COMMITS, CommitKey
from proxy.durable.gate import StateGate
from proxy.durable.interfaces import Journal
from proxy.durable.state_partitions import state_partition
from proxy.fleet.group_owners import Fleet
from proxy.forwarding.services import Services
from proxy.loop.interfaces import Timers
from proxy.loop.promise import PROCESS, CallbackOwner
from proxy.offsets.commit_text import commit_text_version

EVERY_GROUP = "*"
FEATURE = "individual commits"
"""What links of a fleet call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How individual commits are served."""

    groups: str = EVERY_GROUP
    """A group id, or a pattern with * and ?: whose texts are looked at."""
    ranges_max: int = 10_000
    """Ranges stored of one partition of one group."""
    topic_age_s: float = 5.0
    """A topic that was made anew under the same name is noticed after this at the latest."""


def commit_gate() -> StateGate:
    """A gate for requests of groups that commit individually."""
    return StateGate(INDIVIDUAL_COMMITS.partitions, state_partition)


def _silent(_event: str, /, **_context: Any) -> None:
    """Tell nobody."""


def _nobody_followed() -> FollowedGroups:
    return FollowedGroups(_silent)


@dataclass(slots=True, kw_only=True)
class CommitServices:
    """What the handlers of individual commits may use beyond their `Call`. One per process."""

    services: Services
    journal: Journal[CommitKey]
    state_owner: CallbackOwner = PROCESS
    """On whose behalf appends are followed to their end, whoever asked for them."""
    options: CommitOptions = field(default_factory=CommitOptions)
    held: HeldCommits = field(default_factory=HeldCommits)
    locks: PartitionLocks = field(default_factory=PartitionLocks)
    gate: StateGate = field(default_factory=commit_gate)
    fleet: Fleet | None = None
    """Other proxies that own groups; None where this one owns all or none."""
    followed: FollowedGroups = field(default_factory=_nobody_followed)
    """Groups that are known to commit individually, whoever owns them."""
    figures: CommitFigures = field(default_factory=CommitFigures)
    """What the metrics show."""

    audit: CommitAudit | None = None
    """Told what was committed; None where audit is off, which is the default."""
    base_of: Callable[[str], str] = str
    """Topic -> the topic whose records it has: another one where it is a view."""

    @property
    def feature(self) -> str:
        """See owner_routing.OwnedServices."""
        return FEATURE

    @property
    def timers(self) -> Timers:
        """See owner_routing.OwnedServices."""
        return self.services.timers

    @property
    def state_wait_s(self) -> float:
        """See owner_routing.OwnedServices; every client repeats a commit."""
        return 0.0

    def knows(self, group_id: str) -> bool | None:
        """Whether all commits of a group go to its owner; None: that is not known yet."""
        if not self.serves(group_id):
            return False
        return True if group_id in self.held.groups else self.followed.is_known(group_id)

    @property
    def knows_any(self) -> bool:
        """Whether there may be any such group."""
        return bool(self.held.groups or self.followed.groups or self.followed.uncertain)

    @property
    def off(self) -> str:
        """What the proxy lacks to serve texts; empty: nothing."""
        return self.followed.off or self.gate.denied

    def has_ranges(self, group_id: str, metadata: str | None) -> bool:
        """Whether a commit with this metadata is an individual one (commits/README.md rule 1)."""
        return commit_text_version(metadata) is not None and self.serves(group_id)

    def serves(self, group_id: str) -> bool:
        """Whether texts of this group are looked at."""
        return self.options.groups == EVERY_GROUP or fnmatchcase(group_id, self.options.groups)
