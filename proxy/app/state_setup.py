"""The states that live in topics of the cluster, put together: who owns them, and the links to other proxies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.app import commit_setup, tls_contexts
from proxy.app.config import Config
from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_connection import OwnSettings
from proxy.commits.services import CommitServices
from proxy.durable import ownership_group
from proxy.durable.hosted_state import BrokerAccess, HostedState
from proxy.durable.journal import TopicJournal
from proxy.durable.ownership_group import Membership
from proxy.durable.state_home import StateHome
from proxy.fleet import links as fleet
from proxy.fleet.carried import CarriedFeatures, CarriedRequests
from proxy.loop.interfaces import Notes
from proxy.loop.reactor import Reactor
from proxy.sharegroups import share_group_apis
from proxy.sharegroups.carried_requests import CarriedShareRequests
from proxy.sharegroups.held_state import HeldShareState
from proxy.sharegroups.services import ShareServices
from proxy.wire.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSetup:
    """What states are made of."""

    config: Config
    services: ShareServices
    reactor: Reactor
    notes: Notes
    settings: OwnSettings
    """Of the proxy's own connections."""
    address: str
    """Where clients bootstrap from: what tells one proxy from another."""
    commits: CommitServices | None = None
    """Of individual commits; None where they are switched off."""

    def client(self) -> OwnClient:
        """A client more, for one task."""
        upstream = self.config.upstream
        return OwnClient(upstream.bootstrap, self.settings, upstream.nodes)

    @property
    def access(self) -> BrokerAccess:
        """How states reach the brokers."""
        return BrokerAccess(client=self.client, settings=self.settings, own=self.services.own, notes=self.notes)


HostState = Callable[[StateSetup], HostedState | None]
"""Makes a state; None where this proxy does not keep it in a topic."""


def share_state(setup: StateSetup) -> HostedState | None:
    """The state of share groups, unless it is in memory or the brokers serve them."""
    services = setup.services
    if not isinstance(services.journal, TopicJournal):
        return None
    return HostedState(services.journal, HeldShareState(services.coordinator), services.gate, setup.access)


def commit_state(setup: StateSetup) -> HostedState | None:
    """The state of individual commits, unless it is in memory or they are switched off."""
    commits = setup.commits
    if commits is None or not isinstance(commits.journal, TopicJournal):
        return None
    return HostedState(commits.journal, commits.held, commits.gate, setup.access)


STATES: tuple[HostState, ...] = (share_state, commit_state)
"""Every state that a proxy may host."""


def home(setup: StateSetup, states: Sequence[HostState] = STATES) -> StateHome | None:
    """Where they live; None where there are none.

    Raises:
        ConfigError: no clock here counts the time that the machine sleeps, and several proxies are to own state.
    """
    hosted = [made for made in (make(setup) for make in states) if made is not None]
    if not hosted:
        return None
    owner = _owner(setup, hosted)
    setup.services.fleet = links = _links(setup, owner)
    if setup.commits is not None:
        setup.commits.fleet = links
    return StateHome(hosted, owner, setup.access, setup.reactor, links=links)


def _owner(setup: StateSetup, hosted: Sequence[HostedState]) -> Membership:
    """This proxy's part in the group of proxies."""
    peer = setup.config.peer_address
    if peer is not None and not ownership_group.COUNTS_SLEEP_TOO:
        raise ConfigError("cluster.mode: fleet needs a clock that goes on while the machine sleeps (CLOCK_BOOTTIME)")
    return Membership(
        setup.client(),
        setup.notes,
        setup.address,
        setup.config.cluster.session_timeout_s,
        peer=str(peer or ""),
        serves=[each.state.serves for each in hosted],
    )


def _links(setup: StateSetup, owner: Membership) -> fleet.FleetLinks | None:
    if setup.config.peer_address is None:
        return None
    peer = setup.config.cluster.peer
    return fleet.FleetLinks(
        setup.reactor,
        setup.services,
        _carried(setup),
        owner,
        setup.notes,
        address=setup.address,
        secret=peer.key(),
        tls=tls_contexts.between_proxies(peer.tls),
    )


def _carried(setup: StateSetup) -> CarriedFeatures:
    """What other proxies may ask of this one: requests about states that it may own."""
    shares = CarriedShareRequests(setup.services, share_group_apis.of_owner(setup.services))
    features: list[CarriedRequests] = []
    if isinstance(setup.services.journal, TopicJournal):
        features.append(shares)
    if setup.commits is not None:
        features.append(commit_setup.carried(setup.commits))
    return CarriedFeatures(features, shares)
