"""Individual commits, put together: what their handlers are given, and where they stand among the features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.app.config import Config
from proxy.commits import commit_apis
from proxy.commits.carried_requests import CarriedCommits
from proxy.commits.followed_groups import FollowedGroups
from proxy.commits.garbage_collection import GroupsThatAreGone
from proxy.commits.services import CommitOptions, CommitServices
from proxy.commits.state_records import INDIVIDUAL_COMMITS, RANGE_PREFIX, CommitKey
from proxy.durable.hosted_state import BrokerAccess
from proxy.durable.journal import TopicJournal
from proxy.durable.memory_journal import MemoryJournal
from proxy.durable.tail import Tail
from proxy.forwarding import chain
from proxy.forwarding.declared_api import Served
from proxy.forwarding.services import Services
from proxy.loop.interfaces import Notes
from proxy.loop.reactor import Reactor


@dataclass(slots=True)
class CommitRuntime:
    """What goes on about individual commits."""

    services: CommitServices
    tail: Tail | None
    """Of the topic of ranges; None where they are in memory."""

    @property
    def is_stored(self) -> bool:
        """Whether ranges are kept in their topic."""
        return self.tail is not None

    @property
    def why_not(self) -> str:
        """What keeps requests waiting here, whoever owns the ranges; empty: nothing."""
        if not self.services.followed.uncertain:
            return ""
        return f"which groups commit individually is not known of {len(self.services.followed.uncertain)} partitions"

    def state(self) -> dict[str, object]:
        """What /readyz says about it."""
        followed = self.services.followed
        where = f"in topic {INDIVIDUAL_COMMITS.topic}" if self.is_stored else "in memory"
        return {"state": where, "groups": len(self.services.held.groups.keys() | followed.groups.keys())}

    async def run(self) -> None:
        """Follow which groups commit individually, and look for those that are gone, until cancelled."""
        GroupsThatAreGone(self.services).start()
        if self.tail is not None:
            await self.services.followed.run(self.tail)


def runtime(services: CommitServices | None, access: BrokerAccess) -> CommitRuntime | None:
    """What goes on; None where individual commits are switched off."""
    if services is None:
        return None
    is_stored = isinstance(services.journal, TopicJournal)
    tail = Tail(INDIVIDUAL_COMMITS, services.followed, access, unwanted=RANGE_PREFIX) if is_stored else None
    if tail is not None:
        tail.is_owned = lambda partition: services.gate.lets_in((partition,))
    return CommitRuntime(services, tail)


def options(config: Config) -> CommitOptions:
    """How individual commits are served, by the settings."""
    return CommitOptions(groups=config.commits.groups, ranges_max=config.commits.ranges_max)


def set_up(
    config: Config, services: Services, notes: Notes, address: str, reactor: Reactor | None
) -> CommitServices | None:
    """What the handlers are given; None where individual commits are switched off.

    Without a reactor they are kept in memory: for parts that are only looked at.
    """
    if not config.commits.serve:
        return None
    if reactor is None or config.commits.state == "memory":
        return CommitServices(services=services, journal=MemoryJournal[CommitKey](), options=options(config))
    journal = TopicJournal(INDIVIDUAL_COMMITS, reactor, notes, address)
    return CommitServices(
        services=services,
        journal=journal,
        state_owner=journal,
        options=options(config),
        followed=FollowedGroups(notes),
    )


def with_commits(commits: CommitServices | None, served: Mapping[int, Served]) -> dict[int, Served]:
    """What is served with individual commits, around what share groups serve."""
    if commits is None:
        return dict(served)
    return chain.in_order((commit_apis.deletions(commits), served, commit_apis.commits(commits)))


def carried(commits: CommitServices) -> CarriedCommits:
    """Requests that other proxies may ask of this one."""
    return CarriedCommits(commits, commit_apis.of_owner(commits))
