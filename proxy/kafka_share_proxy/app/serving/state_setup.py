"""Setup of the states in topics of the cluster: their owner, and the links to other proxies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka_share_proxy.app.serving import commit_setup
from kafka_share_proxy.app.settings import tls_contexts
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.own_client import OwnClient
from kafka_share_proxy.brokers.own_connection import OwnSettings
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.durable.hosted_state import BrokerAccess, HostedState
from kafka_share_proxy.durable.journal import TopicJournal
from kafka_share_proxy.durable.ownership_group import Membership
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.fleet import links as fleet
from kafka_share_proxy.fleet.carried import CarriedFeatures, CarriedRequests
from kafka_share_proxy.loop import boot_clock
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.carried_requests import CarriedShareRequests
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.held_state import HeldShareState


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSetup:
    """Dependencies of states."""

    config: Config
    services: ShareServices
    reactor: Reactor
    notes: Notes
    settings: OwnSettings
    """Settings of the proxy's own connections."""
    address: str
    """Bootstrap address of this proxy, which identifies it among others."""
    commits: CommitServices | None = None
    """Services of individual commits; None if they are switched off."""

    def client(self) -> OwnClient:
        """Create another client, for one task."""
        upstream = self.config.upstream
        return OwnClient(upstream.bootstrap, self.settings, upstream.nodes)

    @property
    def access(self) -> BrokerAccess:
        return BrokerAccess(client=self.client, settings=self.settings, own=self.services.own, notes=self.notes)


HostState = Callable[[StateSetup], HostedState | None]
"""Factory of a state; returns None if this proxy does not keep it in a topic."""


def share_state(setup: StateSetup) -> HostedState | None:
    """Create the state of share groups, unless it is in memory or the brokers serve them."""
    services = setup.services
    if not isinstance(services.journal, TopicJournal):
        return None
    return HostedState(services.journal, HeldShareState(services.coordinator), services.gate, setup.access)


def commit_state(setup: StateSetup) -> HostedState | None:
    """Create the state of individual commits, unless it is in memory or they are switched off."""
    commits = setup.commits
    if commits is None or not isinstance(commits.journal, TopicJournal):
        return None
    return HostedState(commits.journal, commits.held, commits.gate, setup.access)


STATES: tuple[HostState, ...] = (share_state, commit_state)
"""States that a proxy may host."""


def home(setup: StateSetup, states: Sequence[HostState] = STATES) -> StateHome | None:
    """Create the keeper of all hosted states; None if there are none.

    Raises:
        ConfigError: several proxies are to own state, but no clock of this machine counts the time in suspension.
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
    """Create this proxy's membership in the group of proxies."""
    peer = setup.config.peer_address
    if peer is not None and not boot_clock.COUNTS_SUSPENSION:
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
    """Return the requests that other proxies may send to this one, about states that it may own."""
    shares = CarriedShareRequests(setup.services, share_group_apis.of_owner(setup.services))
    features: list[CarriedRequests] = []
    if isinstance(setup.services.journal, TopicJournal):
        features.append(shares)
    if setup.commits is not None:
        features.append(commit_setup.carried(setup.commits))
    return CarriedFeatures(features, shares)
