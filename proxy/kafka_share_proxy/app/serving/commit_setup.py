"""Setup of individual commits: the services of their handlers, and their position among the served features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.commits import commit_apis
from kafka_share_proxy.commits.carried_requests import CarriedCommits
from kafka_share_proxy.commits.followed_groups import FollowedGroups
from kafka_share_proxy.commits.garbage_collection import GroupsThatAreGone
from kafka_share_proxy.commits.services import CommitOptions, CommitServices
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS, RANGE_PREFIX, CommitKey
from kafka_share_proxy.durable.hosted_state import BrokerAccess
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.durable.tail import Tail
from kafka_share_proxy.forwarding.dispatch import chain
from kafka_share_proxy.forwarding.dispatch.declared_api import Served
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.reactor import Reactor


@dataclass(slots=True)
class CommitRuntime:
    """Background work for individual commits."""

    services: CommitServices
    tail: Tail | None
    """Reader of the topic of ranges; None if ranges are in memory."""

    @property
    def is_stored(self) -> bool:
        """True if ranges are stored in their topic."""
        return self.tail is not None

    @property
    def why_not(self) -> str:
        """Return the reason why requests must wait here, regardless of the owner of the ranges; empty if there
        is none.
        """
        if not self.services.followed.uncertain:
            return ""
        return f"which groups commit individually is not known of {len(self.services.followed.uncertain)} partitions"

    def state(self) -> dict[str, object]:
        """Return the details for /readyz."""
        followed = self.services.followed
        where = f"in topic {INDIVIDUAL_COMMITS.topic}" if self.is_stored else "in memory"
        return {"state": where, "groups": len(self.services.held.groups.keys() | followed.groups.keys())}

    async def run(self) -> None:
        """Follow which groups commit individually, and watch for deleted groups, until cancelled."""
        GroupsThatAreGone(self.services).start()
        if self.tail is not None:
            await self.services.followed.run(self.tail)


def runtime(services: CommitServices | None, access: BrokerAccess) -> CommitRuntime | None:
    """Create the background work; None if individual commits are switched off."""
    if services is None:
        return None
    is_stored = isinstance(services.journal, TopicJournal)
    tail = Tail(INDIVIDUAL_COMMITS, services.followed, access, unwanted=RANGE_PREFIX) if is_stored else None
    if tail is not None:
        tail.is_owned = lambda partition: services.gate.lets_in((partition,))
    return CommitRuntime(services, tail)


def options(config: Config) -> CommitOptions:
    """Return the options of individual commits from the settings."""
    return CommitOptions(groups=config.commits.groups, ranges_max=config.commits.ranges_max)


def set_up(
    config: Config, services: Services, notes: Notes, address: str, reactor: Reactor | None
) -> CommitServices | None:
    """Create the services of the handlers; None if individual commits are switched off.

    Without a reactor, ranges are kept in memory, for parts that are only displayed.
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
    """Combine the handlers of individual commits with `served`: deletions run before it, commits after it."""
    if commits is None:
        return dict(served)
    return chain.in_order((commit_apis.deletions(commits), served, commit_apis.commits(commits)))


def carried(commits: CommitServices) -> CarriedCommits:
    """Return the requests that other proxies may send to this one."""
    return CarriedCommits(commits, commit_apis.of_owner(commits))
