"""Individual commits as a feature: their services, state, metrics, tasks and probe."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.commits import commit_apis, log_events, metrics
from kafka_share_proxy.commits.audit_events import CommitAudit
from kafka_share_proxy.commits.expired_ranges import ExpiredGroups
from kafka_share_proxy.commits.followed_groups import FollowedGroups
from kafka_share_proxy.commits.held_state import HeldCommits
from kafka_share_proxy.commits.lag import CommitLag
from kafka_share_proxy.commits.services import FEATURE, CommitOptions, CommitServices, commit_gate
from kafka_share_proxy.commits.settings import Commits
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS, CommitKey
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.feature.feature import (
    NONE,
    PART,
    Coverage,
    Feature,
    FeatureKind,
    Platform,
    Probe,
    SharedRules,
    Stage,
)
from kafka_share_proxy.feature.status import StatusSection
from kafka_share_proxy.fleet.carried import NothingKept
from kafka_share_proxy.forwarding.dispatch.routes import FramedHandler
from kafka_share_proxy.loop.promise import PROCESS

if TYPE_CHECKING:
    from kafka_share_proxy.commits.checks import CommitCheck


class CarriedCommits:
    """See carried.CarriedRequests."""

    feature = FEATURE

    def __init__(self, services: CommitServices, handlers: Mapping[int, FramedHandler]) -> None:
        self._services = services
        self._handlers = handlers

    @property
    def handlers(self) -> Mapping[int, FramedHandler]:
        return self._handlers

    def knows(self, group_id: str) -> bool:
        return self._services.knows(group_id) is True

    def edge(self) -> NothingKept:
        return NothingKept()

    def link_ended(self, number: int) -> None:
        """Do nothing: no records are read over links."""

    def links_changed(self) -> None:
        """Check again the requests that wait at the gate."""
        self._services.gate.wake()


PROBE = "commits"
PLAIN = Coverage("plain_commits", NONE, "OffsetCommit of groups that do not commit individually passes through unread")


class IndividualCommitFeature(FeatureKind):
    """Declaration of the feature."""

    section = "commits"
    events = log_events.EVENTS
    probe_path = PROBE

    def states(self, settings: Commits, cluster: ClusterSnapshot) -> Sequence[DescribedState[Any]]:  # noqa: ARG002 - overrides
        return (INDIVIDUAL_COMMITS,) if settings.serve and settings.state != "memory" else ()

    def rules(self, settings: Commits, shared: SharedRules) -> SharedRules:
        return replace(shared, has_ranges=options(settings).has_ranges) if settings.serve else shared

    def check(self, settings: Commits) -> CommitCheck:
        from kafka_share_proxy.commits.checks import CommitCheck  # for the command `check` only

        return CommitCheck(settings)

    def build(self, settings: Commits, platform: Platform) -> Feature:
        if not settings.serve:
            off = Coverage("commits", NONE, "commits.serve is off: metadata of commits is not inspected")
            reason = "individual commits are switched off (commits.serve)"
            return Feature(probe=Probe(path=PROBE, off=reason), coverage=(off, PLAIN))
        services = new_services(settings, platform)
        runtime, lag = CommitRuntime(services), CommitLag(services)
        coverage = Coverage("commits", PART, "without commits in transactions and deletions by tools and brokers")
        return Feature(
            apis={
                Stage.BEFORE_GROUPS: commit_apis.deletions(services),
                Stage.AFTER_GROUPS: commit_apis.commits(services),
            },
            carried=CarriedCommits(services, commit_apis.of_owner(services)),
            add_metrics=partial(metrics.add, services=services, tail=services.followed.tail, lag=lag),
            status=partial(_status, services, lag),
            tasks=(runtime.run,),
            probe=runtime.probe(),
            coverage=(coverage, PLAIN),
            services=services,
        )


INDIVIDUAL = IndividualCommitFeature()


@dataclass(slots=True)
class CommitRuntime:
    """Background work for individual commits."""

    services: CommitServices

    @property
    def is_stored(self) -> bool:
        """True if ranges are stored in their topic."""
        return self.services.followed.tail is not None

    @property
    def why_not(self) -> str:
        """Return why requests must wait, regardless of the owner; empty if they need not."""
        if not (self.is_stored and self.services.followed.uncertain):
            return ""
        return f"which groups commit individually is not known of {len(self.services.followed.uncertain)} partitions"

    def state(self) -> dict[str, object]:
        """Return the details for /readyz."""
        followed = self.services.followed
        where = f"in topic {INDIVIDUAL_COMMITS.topic}" if self.is_stored else "in memory"
        if self.services.options.in_metadata:
            where = f"in commit metadata and {where[3:]}"
        return {"state": where, "groups": len(self.services.held.groups.keys() | followed.groups.keys())}

    def probe(self) -> Probe:
        """Return the probe of individual commits."""
        return Probe(
            path=PROBE,
            topic=INDIVIDUAL_COMMITS.topic if self.is_stored else "",
            why_not=lambda: self.why_not,
            details=lambda: {"commits": self.state()},
        )

    async def run(self) -> None:
        """Follow which groups commit individually, and watch for deleted groups."""
        ExpiredGroups(self.services).start()
        if self.services.options.in_metadata:
            self.services.limit.start(self.services.base)
        await self.services.followed.run()


def new_services(settings: Commits, platform: Platform) -> CommitServices:
    """Create the services of the handlers. Parts that are only displayed keep ranges in memory."""
    held, gate = HeldCommits(in_metadata=settings.state == "metadata"), commit_gate()
    journal: TopicJournal[CommitKey] | MemoryJournal[CommitKey] = MemoryJournal()
    followed = FollowedGroups(platform.notes)
    if settings.state != "memory" and not platform.is_displayed:
        hosted = platform.host(INDIVIDUAL_COMMITS, held, state_partition)
        gate, journal = hosted.gate, hosted.journal
        followed = FollowedGroups(
            platform.notes, access=platform.access, is_owned=lambda partition: gate.lets_in((partition,))
        )
    state_owner = journal if isinstance(journal, TopicJournal) else PROCESS
    return CommitServices(
        base=platform.services,
        journal=journal,
        state_owner=state_owner,
        options=options(settings),
        held=held,
        gate=gate,
        fleet=platform.fleet,
        followed=followed,
        audit=None if platform.audit is None else CommitAudit(platform.audit, state_owner),
        base_of=platform.rules.base_of,
    )


def options(settings: Commits) -> CommitOptions:
    return CommitOptions(
        groups=settings.groups, ranges_max=settings.ranges_max, in_metadata=settings.state == "metadata"
    )


def _status(services: CommitServices, lag: CommitLag) -> Generator[None, None, StatusSection]:
    from kafka_share_proxy.commits import status  # loaded when the page is open: an idle proxy should be small

    return status.section(services, lag)
